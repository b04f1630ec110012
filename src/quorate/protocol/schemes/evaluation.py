"""Evaluation: log densities of all shards at given points, in the shape of the paper's boxes.

No draws, but the same seam, so that the coordinator drives it as it drives a scheme: its "global
draws" are the points at which every shard has been evaluated. The first answer of any holder of a
shard counts, and nobody waits for a worker while another could do the same.
"""

from collections.abc import Collection, Iterator

import numpy as np

from quorate._types import Array
from quorate.protocol.allocation import Allocation
from quorate.protocol.messages import Evaluate, Values
from quorate.protocol.scheme import NOBODY

_TASK = 16  # points that a worker is asked for at a time


class Evaluation:
    """Σ_s log p(x)/K + log p(rows of s | x) at points x, whichever of the holders answers.

    Parameters
    ----------
    allocation
        Which worker holds which shards.
    points
        Shape (n_points, d). They travel with the tasks.
    """

    quarantined = NOBODY

    def __init__(self, allocation: Allocation, points: Array) -> None:
        # Data allocation: that of the run
        self.allocation = allocation
        self._points = points
        self._values = np.full((allocation.n_shards, len(points)), np.nan)
        self._n_answered = [0] * allocation.n_shards  # first points of each shard without a gap
        self._at_work: dict[tuple[int, int], set[int]] = {}  # by shard and first point

    # At worker k: evaluate, and send the values as they are

    # At the server: a point counts when every shard has been evaluated there

    def next_task(self, worker: int, n_draws: int | None) -> Evaluate | None:
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
        return Evaluate(worker, (shard,), first, self._points[first : first + _TASK])

    def receive(self, answer: Values) -> int:
        worker, (shard,), first, points = answer.task
        known = self._values[shard, first : first + len(points)]
        is_new = np.isnan(known)
        known[is_new] = answer.values[is_new, 0]
        self._at_work.get((shard, first), set()).discard(worker)
        gaps = np.flatnonzero(np.isnan(self._values[shard]))
        self._n_answered[shard] = int(gaps[0]) if len(gaps) else len(self._points)
        return min(self._n_answered)

    def take_back(self, worker: int) -> None:
        for at_work in self._at_work.values():
            at_work.discard(worker)

    def out_of_reach(self, n_draws: int, alive: Collection[int]) -> tuple[int, ...]:
        held = {shard for worker in alive for shard in self.allocation.shards_of(worker)}
        lacking = [s for s, n in enumerate(self._n_answered) if n < n_draws]
        return tuple(shard for shard in lacking if shard not in held)

    def leave_out(self, shards: Collection[int]) -> int:
        """Nothing: without a shard it is another posterior."""
        return min(self._n_answered)

    def log_densities(self) -> Array:
        """Of each shard, at the points where all are known: shape (n_shards, n)."""
        return self._values[:, : min(self._n_answered)]

    def _lacking(self, shard: int) -> Iterator[int]:
        """First points of the tasks that are not completely answered."""
        start = self._n_answered[shard] // _TASK * _TASK
        for first in range(start, len(self._points), _TASK):
            if np.isnan(self._values[shard, first : first + _TASK]).any():
                yield first
