"""Evaluation: log densities of all shards at given points, in the shape of the paper's boxes.

No draws, but the same seam, so that all that drives a run drives this: its "global draws" are the
points at which every shard has been evaluated. The first answer of any holder of a shard counts,
and nobody is waited for while another could do the same.
"""

from collections.abc import Collection, Iterator

import numpy as np

from quorate._types import Array
from quorate.protocol.allocation import Allocation
from quorate.protocol.ledger import DrawCounts
from quorate.protocol.messages import POINTS, Block, Task
from quorate.protocol.scheme import NOBODY
from quorate.protocol.schemes.cmc import SendDraws

_TASK = 16  # points that a worker is asked for at a time


class SendValues(SendDraws):
    """At worker k: send a number for each point."""

    def payload_shapes(self, n_shards: int, dim: int) -> Collection[tuple[int, ...]]:
        return [(n_shards,)]


class Evaluation:
    """Σ_s log p(x)/K + log p(rows of s | x) at points x, whoever of the holders answers.

    Parameters
    ----------
    allocation
        Who holds what.
    points
        Shape (n_points, d). They travel with the tasks.
    """

    def __init__(self, allocation: Allocation, points: Array) -> None:
        # Data allocation: that of the run
        self.allocation = allocation
        self._points = points
        self._n_shards = len({shard for held in allocation.held for shard in held})
        self._values = np.full((self._n_shards, len(points)), np.nan)
        self._n_answered = [0] * self._n_shards  # first points of each shard without a gap
        self._at_work: dict[tuple[int, int], set[int]] = {}  # by shard and first point
        self._counts = DrawCounts(0, 0)

    # At worker k: evaluate, and send the values as they are

    worker_side = SendValues()
    quarantined = NOBODY
    shares_starts = False

    def chain_of(self, worker: int, shard: int) -> int:
        return -1

    # At the server: a point counts when every shard has been evaluated there

    def next_task(self, worker: int, n_draws: int | None) -> Task | None:
        """The first points that nobody works on, of the held shard furthest behind.

        Where there are none left, those that the fewest others work on.
        """
        lacking = [
            (len(at_work), first, shard)
            for shard in self.allocation.shards_of(worker)
            for first in self._lacking(shard)
            if worker not in (at_work := self._at_work.get((shard, first), set()))
        ]
        if not lacking:
            return None
        _, first, shard = min(lacking)
        self._at_work.setdefault((shard, first), set()).add(worker)
        points = self._points[first : first + _TASK]
        # Every task is a chain of its own, for whoever follows how far chains have come
        return Task(worker, (shard,), -1 - first, 0, len(points), {POINTS: points})

    def receive(self, block: Block) -> int:
        (shard,), first = block.task.shards, -1 - block.task.chain
        values = self._values[shard, first:][block.first_draw :][: len(block.payload)]
        is_new = np.isnan(values)
        values[is_new] = block.payload[:, 0][is_new]
        n_new = int(is_new.sum())
        self._counts = DrawCounts(self._counts.received + len(values), self._counts.used + n_new)
        if block.first_draw + len(values) == block.task.n_draws:
            self._at_work.get((shard, first), set()).discard(block.task.worker)
        gaps = np.flatnonzero(np.isnan(self._values[shard]))
        self._n_answered[shard] = int(gaps[0]) if len(gaps) else len(self._points)
        return min(self._n_answered)

    def take_back(self, worker: int) -> None:
        for at_work in self._at_work.values():
            at_work.discard(worker)

    def can_reach(self, n_draws: int, alive: Collection[int]) -> bool:
        return all(
            n >= n_draws or any(k in alive for k in self.allocation.holders_of(shard))
            for shard, n in enumerate(self._n_answered)
        )

    def exclude(self, n_draws: int, alive: Collection[int]) -> int:
        """Nothing: without a shard it is another posterior."""
        return min(self._n_answered)

    def log_densities(self) -> Array:
        """Of each shard, at the points where all are known: shape (n_shards, n)."""
        return self._values[:, : min(self._n_answered)]

    def global_draws(self) -> Array:
        """Log posterior at those points, up to a constant, shape (n, 1)."""
        return np.asarray(self.log_densities().sum(axis=0)[:, None])

    def draw_counts(self) -> DrawCounts:
        return self._counts

    def _lacking(self, shard: int) -> Iterator[int]:
        """Where the tasks begin that have not all been answered."""
        start = self._n_answered[shard] // _TASK * _TASK
        for first in range(start, len(self._points), _TASK):
            if np.isnan(self._values[shard, first : first + _TASK]).any():
                yield first
