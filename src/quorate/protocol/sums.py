"""How the sum over all shards at some points is put together from the answers of workers.

The log posterior is a sum over shards, so a pass needs what redundancy and gradient codes give: any
holder of a shard may answer for it, or a coded worker sends one number for all shards that it
holds. Values lie on a grid on which such sums are exact. So every scheme gives the same bits.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from quorate._types import Array, CodedArray
from quorate.protocol.allocation import Allocation, allocation_of
from quorate.protocol.coding.code import GradientCode, packed

_GRID = 2.0**20  # values are multiples of its inverse, a millionth of a log unit
_FINE_GRID = 2.0**30  # for gradients, in units of the fit
_NONE = -(2.0**38)  # what a worker sends for a density of 0: small beside it is still exact
NO_DENSITY = _NONE / 2  # sums below stand for a density of 0
_SETS_KNOWN = 1024  # sets of answers whose parity checks are remembered


def values_on_grid(values: Array) -> Array:
    """Log densities rounded to the grid, and not so low that others are lost beside them."""
    return _on_grid(np.maximum(values, _NONE), _GRID)


def gradients_on_grid(gradients: Array) -> Array:
    """Gradients, in units of the fit, rounded to their grid."""
    return _on_grid(gradients, _FINE_GRID)


def _on_grid(values: Array, grid: float) -> Array:
    """`values` rounded to multiples of 1 / `grid`."""
    return np.asarray(np.rint(values * grid) / grid)


def summed(arrays: Sequence[Array], coefficients: CodedArray | None) -> CodedArray:
    """The sum of arrays (n,), weighted by coefficients if there are any.

    Complex coefficients act on pairs of numbers, so that a sum has as many floats as an array.
    """
    if coefficients is None:
        return np.asarray(np.add.reduce(arrays))
    return np.asarray(coefficients @ packed(np.stack(arrays), coefficients))


def summed_values(arrays: Sequence[Array], coefficients: CodedArray | None) -> CodedArray:
    """The sum of log densities (n,), rounded to the grid, and weighted if coded: (n,).

    No two of them make up one complex number: beside one that stands for no density, the other
    would lose the bits that make every scheme the same.
    """
    values = [values_on_grid(array) for array in arrays]
    if coefficients is None:
        return summed(values, None)
    return np.asarray(coefficients @ np.stack(values))


class Part(NamedTuple):
    """What a worker can be asked for: a sum over shards, weighted by coefficients if coded."""

    number: int
    shards: tuple[int, ...]
    coefficients: CodedArray | None = None


class Sums(Protocol):
    """How a scheme sums over shards."""

    @property
    def allocation(self) -> Allocation:
        """Which worker holds which shards."""

    def parts_of(self, worker: int) -> Sequence[Part]:
        """The parts that a worker can give."""

    def givers_of(self, number: int) -> Sequence[int]:
        """The workers that can give a part."""

    def is_complete(self, parts: Collection[int]) -> bool:
        """Whether these parts give the sum over all shards."""

    def total(self, parts: Mapping[int, CodedArray], n: int) -> Array:
        """The sum over all shards, (n,), from parts that are complete."""

    def parity(self, number: int, parts: Collection[int]) -> Mapping[int, complex]:
        """Factors with which part `number` and some of `parts` add up to 0; none if none do."""

    def lost_shards(self, parts: Collection[int], alive: Collection[int]) -> tuple[int, ...]:
        """Shards of which neither `parts` nor `alive` workers have what is needed."""


@dataclass(frozen=True)
class AnyHolder:
    """Each cell of shards is answered for by any worker that holds it.

    `asked` are the workers to ask, cell by cell: by default all that hold the whole cell.
    """

    allocation: Allocation
    cells: tuple[tuple[int, ...], ...]
    asked: tuple[tuple[int, ...], ...] | None = None

    @classmethod
    def by_shard(cls, allocation: Allocation) -> "AnyHolder":
        """Each shard on its own."""
        return cls(allocation, tuple((shard,) for shard in range(allocation.n_shards)))

    def parts_of(self, worker: int) -> Sequence[Part]:
        return self._parts.get(worker, ())

    def givers_of(self, number: int) -> Sequence[int]:
        return self.givers[number]

    @cached_property
    def givers(self) -> tuple[tuple[int, ...], ...]:
        """The workers that can give each cell, in order."""
        return tuple(map(self._holders, self.cells)) if self.asked is None else self.asked

    def _holders(self, cell: tuple[int, ...]) -> tuple[int, ...]:
        first, *others = map(self.allocation.holders_of, cell)
        return first if not others else tuple(sorted(set(first).intersection(*others)))

    @cached_property
    def _parts(self) -> dict[int, list[Part]]:
        found: dict[int, list[Part]] = {}
        for number, cell in enumerate(self.cells):
            for worker in self.givers[number]:
                found.setdefault(worker, []).append(Part(number, cell))
        return found

    def is_complete(self, parts: Collection[int]) -> bool:
        return len(parts) == len(self.cells)

    def total(self, parts: Mapping[int, CodedArray], n: int) -> Array:
        """Parts are added in order, so that the bits do not depend on who was first."""
        return np.asarray(np.add.reduce([parts[number] for number in range(len(self.cells))]))

    def parity(self, number: int, parts: Collection[int]) -> Mapping[int, complex]:
        """None: parts have no shard in common."""
        return {}

    def lost_shards(self, parts: Collection[int], alive: Collection[int]) -> tuple[int, ...]:
        reached = {*parts, *(part.number for worker in alive for part in self.parts_of(worker))}
        lost = [cell for number, cell in enumerate(self.cells) if number not in reached]
        return tuple(shard for cell in lost for shard in cell)


@dataclass(frozen=True, eq=False)
class CodedSums:
    """A worker sends one coded sum over all shards that it holds: gradient coding."""

    code: GradientCode

    @cached_property
    def allocation(self) -> Allocation:
        return allocation_of(self.code.held.tolist())

    def parts_of(self, worker: int) -> Sequence[Part]:
        held = self.allocation.shards_of(worker)
        return [Part(worker, held, self.code.coefficients[worker])]

    def givers_of(self, number: int) -> Sequence[int]:
        return (number,)

    def is_complete(self, parts: Collection[int]) -> bool:
        return self.code.decodable(parts)

    def total(self, parts: Mapping[int, CodedArray], n: int) -> Array:
        """The decoded sum. Rounding it to the grid hides who answered."""
        workers = sorted(parts)
        vector = self.code.decoding_vector(workers)[workers]
        decoded = vector @ np.stack([parts[worker] for worker in workers])
        is_paired = len(decoded) != n
        return self.code.unpack(np.asarray(decoded), n) if is_paired else np.real(decoded)

    def parity(self, number: int, parts: Collection[int]) -> Mapping[int, complex]:
        """A parity check of the code, once there are more answers than it takes to decode."""
        return self._parity(number, frozenset((number, *parts)))

    @cached_property
    def _parity(self) -> Callable[[int, frozenset[int]], Mapping[int, complex]]:
        def found(worker: int, answered: frozenset[int]) -> Mapping[int, complex]:
            vector = self.code.parity(worker, answered)
            return {} if vector is None else {int(k): vector[k] for k in np.flatnonzero(vector)}

        return lru_cache(_SETS_KNOWN)(found)

    def lost_shards(self, parts: Collection[int], alive: Collection[int]) -> tuple[int, ...]:
        reached = self.code.decodable({*parts, *alive})
        return () if reached else tuple(range(self.code.n_workers))
