"""Finish times of the adaptive scheme: all realisations advance together, event by event."""

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, IntArray
from quorate.protocol.times import Outcomes, Realisations

FIRST_TASK = 8  # draws; tasks then grow with the draws of their shard, so none gets far ahead
_NOTHING_TO_DO = np.iinfo(np.int64).max


class AdaptiveTimes:
    """All realisations of a run, each advanced by its own next event.

    `at_hand[k]` are the shards of worker k, (K, r), in the order in which ties are broken.
    """

    def __init__(self, at_hand: IntArray, realisations: Realisations) -> None:
        work = self._work = realisations.work
        self._at_hand = at_hand
        self._realisations = realisations
        self._per_block = max(1, min(work.block, work.task))
        n = len(realisations.deaths)
        by_worker = (n, work.n_workers)
        self._events: Array = np.full(by_worker, np.inf)  # when a task ends, or its worker dies
        self._lost: NDArray[np.bool_] = np.zeros(by_worker, dtype=np.bool_)  # whether it dies
        self._shard: IntArray = np.zeros(by_worker, dtype=np.int64)
        self._size: IntArray = np.zeros(by_worker, dtype=np.int64)
        self._n_blocks: IntArray = np.zeros(by_worker, dtype=np.int64)
        self._is_warm: NDArray[np.bool_] = np.zeros((*by_worker, at_hand.shape[1]), dtype=np.bool_)
        self._n_started: IntArray = np.zeros(by_worker, dtype=np.int64)  # of each shard
        self._n_received: IntArray = np.zeros(by_worker, dtype=np.int64)
        self._sums: Array = np.zeros((*by_worker, 1))

    def run(self) -> Outcomes:
        """When all draws have arrived, in each realisation."""
        n = len(self._events)
        rows = np.arange(n)
        begin = np.full(n, self._work.start)
        for worker in range(self._work.n_workers):
            self._assign(rows, np.full(n, worker), begin)
        times = np.full(n, np.inf)
        while len(rows):
            workers = self._events[rows].argmin(axis=1)
            now = self._events[rows, workers]
            self._take(rows, workers)
            is_done = (self._n_received[rows] >= self._work.n_draws).all(axis=1)
            times[rows[is_done]] = now[is_done]
            goes_on = ~is_done & np.isfinite(now)
            rows, workers, now = rows[goes_on], workers[goes_on], now[goes_on]
            self._assign(rows, workers, now)
        return Outcomes(times, self._n_received.sum(axis=1).astype(float))

    def _take(self, rows: IntArray, workers: IntArray) -> None:
        """Count the draws of a task as received, or as not started if its worker is lost."""
        shard, size = self._shard[rows, workers], self._size[rows, workers]
        lost = self._lost[rows, workers]
        self._n_received[rows, shard] += np.where(lost, 0, size)
        self._n_started[rows, shard] -= np.where(lost, size, 0)
        self._size[rows, workers] = 0

    def _assign(self, rows: IntArray, workers: IntArray, now: Array) -> None:
        """Give each worker a task of its shard that is furthest behind, if one lacks draws."""
        work, at_hand = self._work, self._at_hand[workers]
        n_received = self._n_received[rows[:, None], at_hand]
        n_started = self._n_started[rows[:, None], at_hand]
        n_started[n_received >= work.n_draws] = _NOTHING_TO_DO
        slot = n_started.argmin(axis=1)
        behind = n_started[np.arange(len(rows)), slot]
        busy = (behind < _NOTHING_TO_DO) & ~self._lost[rows, workers]
        self._events[rows[~busy], workers[~busy]] = np.inf
        rows, workers, slot, now = rows[busy], workers[busy], slot[busy], now[busy]
        shard = self._at_hand[workers, slot]
        n_left = work.n_draws - behind[busy]
        n_lacking = work.n_draws - self._n_received[rows, shard]
        most = np.minimum(work.task, np.maximum(FIRST_TASK, behind[busy]))
        size = np.clip(np.where(n_left > 0, n_left, n_lacking), 1, most)
        ends = now + self._seconds(rows, workers, slot, size)
        deaths = self._realisations.deaths[rows, workers]
        self._lost[rows, workers] = ends > deaths
        self._events[rows, workers] = np.where(ends > deaths, np.maximum(now, deaths), ends)
        self._shard[rows, workers], self._size[rows, workers] = shard, size
        self._n_started[rows, shard] += size

    def _seconds(self, rows: IntArray, workers: IntArray, slot: IntArray, size: IntArray) -> Array:
        """How long tasks of these sizes take."""
        n_blocks = -(-size // self._per_block)
        first = self._n_blocks[rows, workers]
        last = first + n_blocks
        self._n_blocks[rows, workers] = last
        self._know(int(last.max(initial=0)))
        sums = self._sums[rows, workers, last] - self._sums[rows, workers, first]
        seconds = sums * size / n_blocks
        if self._work.warm_up:
            is_cold = ~self._is_warm[rows, workers, slot]
            self._is_warm[rows, workers, slot] = True
            seconds += is_cold * self._work.warm_up * sums / n_blocks
        return np.asarray(seconds)

    def _know(self, n_blocks: int) -> None:
        """Sum up the times of at least that many blocks."""
        if n_blocks < self._sums.shape[2]:
            return
        n_wanted = max(n_blocks, 2 * self._sums.shape[2], 16)
        times = self._realisations.up_to(n_wanted)
        zeros = np.zeros((*times.shape[:2], 1))
        self._sums = np.concatenate([zeros, np.cumsum(times, axis=2)], axis=2)
