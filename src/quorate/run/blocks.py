"""The blocks of a run as arrays, one entry for each block."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, IntArray


class BlockRow(NamedTuple):
    """One block: its entry in every array of `Blocks`."""

    begin: float
    end: float
    worker: int
    attempt: int
    cell: int
    first_draw: int
    n_draws: int
    n_shards: int
    n_bytes: int
    n_floats: int
    n_global: int


@dataclass(frozen=True, eq=False)
class Blocks:
    """All blocks in order of arrival: every array has one entry for each.

    Parameters
    ----------
    cells
        Sets of shards that blocks are made of, in the order in which they were first seen.
    begins, ends
        When its worker could begin with it, and when it arrived, in seconds.
    workers, attempts
        Which worker sent it, and how often that worker had been restarted by then.
    cell
        `cells[cell[i]]` are the shards of block i.
    first_draws, n_draws, n_shards
        Draw of its chain that it begins with, draws in it, shards that each of them is of.
    n_bytes, n_floats
        Size of what was sent for the draws, without the states of chains that travel along.
    n_global
        L(t), the global draws that were complete with it. Those that became complete because shards
        were left out count with the block before.
    """

    cells: tuple[tuple[int, ...], ...]
    begins: Array
    ends: Array
    workers: IntArray
    attempts: IntArray
    cell: IntArray
    first_draws: IntArray
    n_draws: IntArray
    n_shards: IntArray
    n_bytes: IntArray
    n_floats: IntArray
    n_global: IntArray

    @classmethod
    def of_rows(cls, cells: tuple[tuple[int, ...], ...], rows: Sequence[BlockRow]) -> "Blocks":
        """Blocks from their rows, one row for each block."""
        columns = np.array(rows, dtype=float).reshape(-1, len(BlockRow._fields)).T
        begins, ends, *counts = columns
        return cls(cells, begins, ends, *(c.astype(np.int64) for c in counts))

    def __len__(self) -> int:
        return len(self.ends)

    def of(self, worker: int) -> "Blocks":
        """The blocks of one worker."""
        return self.chosen(self.workers == worker)

    def chosen(self, which: NDArray[np.bool_]) -> "Blocks":
        """Some of the blocks."""
        arrays = {k: v[which] for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        return Blocks(self.cells, **arrays)

    @property
    def outages(self) -> Array:
        """Seconds that the worker of a block had been away just before, to be restarted."""
        away = np.zeros(len(self))
        for worker in np.unique(self.workers):
            mine = np.flatnonzero(self.workers == worker)
            before, after = mine[:-1], mine[1:]
            again = self.attempts[before] != self.attempts[after]
            away[after] = np.where(again, self.begins[after] - self.ends[before], 0.0)
        return away

    @cached_property
    def releases(self) -> tuple[Array, IntArray]:
        """The moments at which L(t) grew for good, and what it grew to.

        L(t) falls when a run that had left shards out is resumed.
        """
        lasting = np.minimum.accumulate(self.n_global[::-1])[::-1]
        grew = np.diff(lasting, prepend=0) > 0
        return self.ends[grew], lasting[grew]

    @property
    def releasing_time(self) -> float:
        """When the last global draw was complete; 0 before the first."""
        times, _ = self.releases
        return float(times[-1]) if len(times) else 0.0
