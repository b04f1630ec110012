"""Groups within groups: which inner group lies in which outer one."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import require
from quorate.models.groups.levels import Moments


@dataclass(frozen=True)
class Nesting:
    """Inner groups, sorted by the outer group that they lie in."""

    outer: IntArray  # codes (n_outer,), in rising order
    inner: IntArray  # codes (n_inner,)
    within: IntArray  # (n_inner,), the position in `outer` of each inner group's outer group

    @classmethod
    def of_rows(cls, group: IntArray, inner: IntArray) -> tuple["Nesting", IntArray]:
        """Nesting by the codes of rows on both levels, and the place of each row's inner group."""
        outer, first = np.unique(group, return_inverse=True)
        codes, second = np.unique(inner, return_inverse=True)
        pairs, place = np.unique(first * len(codes) + second, return_inverse=True)
        within, which = np.divmod(pairs, len(codes))
        twice = codes[np.bincount(which) > 1]
        require(
            not len(twice),
            f"Rows with code {twice[:1]} of `inner` lie in several groups. A group of the inner "
            "level needs a code of its own: cut the rows with by='group:OUTER/INNER'.",
        )
        return cls(np.asarray(outer), np.asarray(codes[which]), np.asarray(within)), place

    @property
    def n_outer(self) -> int:
        """Number of outer groups."""
        return len(self.outer)

    @property
    def n_inner(self) -> int:
        """Number of inner groups."""
        return len(self.inner)

    def summed(self, values: Array) -> Array:
        """Sums of values (..., n_inner) over the inner groups of each outer one: (..., n_outer)."""
        return np.asarray(np.add.reduceat(values, self._starts, axis=-1))

    def repeated(self, values: Array) -> Array:
        """Values (..., n_outer) of the outer group of each inner one: (..., n_inner)."""
        return np.asarray(values[..., self.within])

    def moments(
        self, outer: Array, inner: Array, centres: tuple[Array, Array] | None = None
    ) -> tuple[Moments, Moments]:
        """Moments of both levels from sums (3, n_groups, q) about centres (n_groups, q), or 0."""
        about = centres or (np.zeros_like(outer[0]), np.zeros_like(inner[0]))
        order = np.argsort(self.inner)
        return (
            Moments(self.outer, about[0], outer),
            Moments(self.inner[order], about[1][order], inner[:, order]),
        )

    def inner_of(self, outer: IntArray) -> IntArray:
        """Positions of all inner groups within outer groups at these positions."""
        sizes = np.bincount(self.within)[outer]
        skipped = self._starts[outer] - (np.cumsum(sizes) - sizes)
        return np.repeat(skipped, sizes) + np.arange(sizes.sum())

    def of_outer(self, outer: IntArray) -> "Nesting":
        """Outer groups at these positions, in rising order, and what lies within them."""
        inner = self.inner_of(outer)
        within = np.searchsorted(outer, self.within[inner])
        return Nesting(self.outer[outer], self.inner[inner], np.asarray(within))

    def parts(self, weights: Array, most: float) -> Iterator[IntArray]:
        """Positions of outer groups whose weights (n_inner,) sum to about `most`, or to less."""
        before = np.cumsum(self.summed(weights)) - 0.5 * self.summed(weights)
        part = (before // most).astype(np.int64)
        yield from np.split(np.arange(self.n_outer), np.flatnonzero(np.diff(part)) + 1)

    @cached_property
    def _starts(self) -> IntArray:
        """Position of the first inner group of each outer one."""
        return np.searchsorted(self.within, np.arange(self.n_outer))
