"""Cells of gradient codes: sets of workers that decode on their own.

Indices within a cell count from 0. `quorate.protocol.coding.code` puts cells together.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from quorate._types import Array, BoolArray, CodedArray, IntArray


class Cell(Protocol):
    """Workers that decode on their own. Indices within a cell count from 0."""

    @property
    def size(self) -> int:
        """Number of workers."""

    @property
    def needed(self) -> int:
        """The fewest different answers that can be enough."""

    @property
    def n_copies(self) -> int:
        """How many workers send each different answer."""

    def decodes(self, answered: BoolArray) -> bool:
        """Whether these are enough."""

    def decoding_vector(self, answered: BoolArray) -> CodedArray:
        """a, zero where there is no answer. Both have the shape (size of the cell,)."""

    def null_checks(self) -> CodedArray:
        """Independent rows y with yB = 0, shape (n_checks, size of the cell)."""


@dataclass(frozen=True)
class Repetition:
    """All `size` workers send the plain sum of the cell's shards: the first answer is enough."""

    size: int

    @property
    def needed(self) -> int:
        return 1

    @property
    def n_copies(self) -> int:
        return self.size

    def decodes(self, answered: BoolArray) -> bool:
        return bool(answered.any())

    def decoding_vector(self, answered: BoolArray) -> CodedArray:
        vector = np.zeros(self.size)
        vector[answered.argmax()] = 1.0  # the first that is true
        return vector

    def null_checks(self) -> CodedArray:
        return np.eye(self.size - 1, self.size) - np.eye(self.size - 1, self.size, 1)


@dataclass(frozen=True)
class RootsOfUnity:
    """Reed-Solomon code over the roots of unity, in closed form."""

    size: int
    redundancy: int

    @property
    def needed(self) -> int:
        return self.size - self.redundancy + 1

    @property
    def n_copies(self) -> int:
        return 1

    def decodes(self, answered: BoolArray) -> bool:
        return int(np.count_nonzero(answered)) >= self.needed

    def decoding_vector(self, answered: BoolArray) -> CodedArray:
        """a_k = (1/K) Π over stragglers j of (1 - ω^(k-j))."""
        gaps = self._members - np.flatnonzero(~answered)
        return np.asarray(self._one_minus_root[gaps].prod(axis=1) / self.size)

    def null_checks(self) -> CodedArray:
        powers = np.outer(np.arange(1, self.redundancy), np.arange(self.size))
        return np.asarray(1 - self._one_minus_root[powers % self.size])

    def coefficients(self, spacing: IntArray) -> CodedArray:
        """B_ks = K / Π over the other holders i of (1 - ω^(k-i)), for the holders s + `spacing`.

        They are the same for every shard: entry j is that of holder s + `spacing[j]`.
        """
        gaps = spacing[:, None] - spacing
        factors = self._one_minus_root[gaps] + np.eye(len(spacing))  # 1 where k is i
        return np.asarray(self.size / factors.prod(axis=1))

    @cached_property
    def _members(self) -> IntArray:
        return np.arange(self.size)[:, None]

    @cached_property
    def _one_minus_root(self) -> CodedArray:
        """1 - ω^j at index j; a negative j counts from the end, as it should."""
        return np.asarray(1 - np.exp(2j * np.pi * np.arange(self.size) / self.size))


@dataclass(frozen=True)
class Copied:
    """Each member of a smaller cell has `n_copies` workers, of which any one will do.

    Workers c, c + m, c + 2m, … are copies of member c, where m is the size of the smaller cell.
    """

    members: Cell
    n_copies: int

    @property
    def size(self) -> int:
        return self.members.size * self.n_copies

    @property
    def needed(self) -> int:
        return self.members.needed

    def decodes(self, answered: BoolArray) -> bool:
        return self.members.decodes(self._any_copy(answered))

    def decoding_vector(self, answered: BoolArray) -> CodedArray:
        copies = self._by_copy(answered)
        member_vector = self.members.decoding_vector(self._any_copy(answered))
        vector = np.zeros(copies.shape, dtype=member_vector.dtype)
        vector[copies.argmax(axis=0), np.arange(self.members.size)] = member_vector
        return vector.ravel()

    def null_checks(self) -> CodedArray:
        n_others = self.size - self.members.size
        first_copies = np.pad(self.members.null_checks(), ((0, 0), (0, n_others)))
        copies = np.eye(n_others, self.size) - np.eye(n_others, self.size, self.members.size)
        return np.concatenate([first_copies, copies])

    def _any_copy(self, answered: BoolArray) -> BoolArray:
        return np.asarray(self._by_copy(answered).any(axis=0))

    def _by_copy(self, answered: BoolArray) -> BoolArray:
        return answered.reshape(self.n_copies, self.members.size)


@dataclass(frozen=True, eq=False)
class ParityChecked:
    """A code known by G (r x K) with GB = e₁1ᵀ: any a = uG with u₁ = 1 has aB = 1.

    Rows 2, …, r of G are then parity checks of B, and r-1 of the u are free to make a vanish on
    r-1 stragglers. Decoding costs O(r³ + rK).
    """

    generator: Array

    @property
    def size(self) -> int:
        return len(self.generator.T)

    @property
    def needed(self) -> int:
        return self.size - len(self.generator) + 1

    @property
    def n_copies(self) -> int:
        return 1

    def decodes(self, answered: BoolArray) -> bool:
        return int(np.count_nonzero(answered)) >= self.needed

    def decoding_vector(self, answered: BoolArray) -> CodedArray:
        stragglers = np.flatnonzero(~answered)
        first, rest = self.generator[0], self.generator[1:]
        u, *_ = np.linalg.lstsq(rest[:, stragglers].T, -first[stragglers], rcond=0.0)
        vector = first + u @ rest
        vector[stragglers] = 0.0
        return np.asarray(vector)

    def null_checks(self) -> CodedArray:
        return self.generator[1:]
