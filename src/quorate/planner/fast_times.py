"""Times to a number of draws, for many realisations at once.

The schemes are those of `quorate.protocol.schemes`; what they do is written down here again as
arithmetic on
whole arrays, some hundred times faster than running them. Where a time is that of a single draw
(`Work.block` and `Work.task` are 1) the results are those of `quorate.simulate`, to rounding. With
larger blocks they are approximate: a block counts when all of it is there, a worker that dies
loses the task it is on, and a queue of tasks at the worker is left out.

Arrays are over (realisation, worker, block) unless said.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, IntArray
from quorate.engines.latency import LatencyModel
from quorate.numerics.streams import Streams
from quorate.protocol.allocation import overlapping, worker_groups
from quorate.protocol.coding.cells import Cell, Copied, Repetition
from quorate.protocol.coding.code import GradientCode, make_code
from quorate.protocol.schemes.adaptive import shuffled

_NOTHING_TO_DO = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Work:
    """What there is to do, and how long it takes.

    Parameters
    ----------
    latency
        Time of one draw of one shard, one time for each block of them.
    n_workers, n_draws
        K, and the global draws to get.
    block
        Draws of single shards that a worker makes and sends together.
    task
        Draws of one shard that the adaptive scheme asks for at a time.
    warm_up
        How many draws of a shard the warm-up of its chain is worth.
    start
        Time before anybody begins.
    """

    latency: LatencyModel
    n_workers: int
    n_draws: int
    block: int = 1
    task: int = 1
    warm_up: float = 0.0
    start: float = 0.0
    seed: int = 0


class Outcomes(NamedTuple):
    """One entry for each realisation: when all draws were there, vectors of d floats sent."""

    times: Array
    n_vectors: Array


class Realisations:
    """Times of blocks and of deaths, made when they are asked for and kept for all schemes."""

    def __init__(self, work: Work, first: int, n: int) -> None:
        self.work = work
        self._streams = [Streams(work.seed, first + i) for i in range(n)]
        deaths = [work.latency.death_times(streams, work.n_workers) for streams in self._streams]
        self.deaths: Array = np.array(deaths)
        self._times: Array = np.empty((n, work.n_workers, 0))

    def up_to(self, n_blocks: int) -> Array:
        """Time of a draw in each of the first `n_blocks` blocks, and in some more."""
        n_known = self._times.shape[2]
        if n_blocks > n_known:
            n_more, n_workers = n_blocks - n_known, self.work.n_workers
            latency = self.work.latency
            more = [latency.times(each, n_workers, n_known, n_more) for each in self._streams]
            self._times = np.concatenate([self._times, np.array(more)], axis=2)
        return self._times


def simulated(scheme: str, redundancy: int, realisations: Realisations) -> Outcomes:
    """When a scheme gets there, in each realisation."""
    if scheme == "cmc":
        return _coded(make_code("grouped", realisations.work.n_workers, 1), realisations)
    if scheme == "grouped":
        return _grouped(redundancy, realisations)
    if scheme == "coded":
        code = make_code("grouped", realisations.work.n_workers, redundancy)
        return _coded(code, realisations)
    return _Adaptive(redundancy, realisations).run()


# ---------------------------------------------------------------- batches of all shards held


def _batch_ends(realisations: Realisations, workers: slice, n_shards: int) -> tuple[Array, Array]:
    """When blocks of batches are there, inf if never; and how many batches each has.

    A batch is one draw of each of `n_shards`; there are as many as one worker alone needs.
    """
    work = realisations.work
    per_block = max(1, work.block // n_shards)
    n_blocks = -(-work.n_draws // per_block)
    sizes = np.full(n_blocks, float(per_block))
    sizes[-1] = work.n_draws - per_block * (n_blocks - 1)
    draws = n_shards * sizes
    draws[0] += n_shards * work.warm_up
    times = realisations.up_to(n_blocks)[:, workers, :n_blocks]
    ends = work.start + np.cumsum(times * draws, axis=2)
    ends[ends > realisations.deaths[:, workers, None]] = np.inf
    return ends, sizes


def _coded(code: GradientCode, realisations: Realisations) -> Outcomes:
    """The last draw is there when the last answers of every cell decode. CMC is r = 1."""
    ends, sizes = _batch_ends(realisations, slice(None), code.redundancy)
    times = _decoded(code, ends[:, :, -1])
    n_answers = np.sum((ends <= times[:, None, None]) * sizes, axis=(1, 2))
    return Outcomes(times, n_answers)


def _decoded(code: GradientCode, answered: Array) -> Array:
    """When the answers that came at these times, (realisation, worker), decode."""
    cells = [_enough(cell, answered[:, members]) for members, cell in code.cells]
    return np.asarray(np.max(cells, axis=0))


def _enough(cell: Cell, answered: Array) -> Array:
    n_copies, needed = _copies_and_needed(cell)
    first = answered.reshape(len(answered), n_copies, -1).min(axis=1)
    return np.asarray(np.partition(first, needed - 1, axis=1)[:, needed - 1])


def _copies_and_needed(cell: Cell) -> tuple[int, int]:
    """How many workers send the same, and how many different answers are enough."""
    if isinstance(cell, Repetition):
        return cell.size, 1
    if isinstance(cell, Copied):
        return cell.n_copies, cell.needed
    return 1, cell.needed


def _grouped(redundancy: int, realisations: Realisations) -> Outcomes:
    """A group is there when its members together have all its batches."""
    groups = worker_groups(realisations.work.n_workers, redundancy)
    sizes = sorted({len(group) for group in groups}, reverse=True)
    parts = []
    for size in sizes:
        members = [worker for group in groups if len(group) == size for worker in group]
        parts.append(_groups_of(size, slice(members[0], members[-1] + 1), realisations))
    times = np.max([ready.max(axis=1) for _, ready, _ in parts], axis=0)
    n_vectors = np.zeros(len(times))
    for size, (ends, ready, n_batches) in zip(sizes, parts, strict=True):
        begun = np.concatenate([np.zeros((*ends.shape[:3], 1)), ends[..., :-1]], axis=3)
        asked = begun < ready[:, :, None, None]
        received = asked & (ends <= times[:, None, None, None])
        n_vectors += size * np.sum(received * n_batches, axis=(1, 2, 3))
    return Outcomes(times, n_vectors)


def _groups_of(size: int, workers: slice, realisations: Realisations) -> tuple[Array, Array, Array]:
    """Ends (realisation, group, member, block), when each group is ready, batches of blocks."""
    ends, n_batches = _batch_ends(realisations, workers, size)
    n, _, n_blocks = ends.shape
    merged = ends.reshape(n, -1, size * n_blocks)
    ready = np.partition(merged, n_blocks - 1, axis=2)[:, :, n_blocks - 1]
    return ends.reshape(n, -1, size, n_blocks), ready, n_batches


# ---------------------------------------------------------------- adaptive


class _Adaptive:
    """All realisations go on by one event at a time, each by its own next one."""

    def __init__(self, redundancy: int, realisations: Realisations) -> None:
        work = self._work = realisations.work
        placement = overlapping(work.n_workers, redundancy, work.seed)
        self._at_hand: IntArray = np.array(shuffled(placement.held, Streams(work.seed)))
        self._realisations = realisations
        self._per_block = max(1, min(work.block, work.task))
        n = len(realisations.deaths)
        by_worker = (n, work.n_workers)
        self._events: Array = np.full(by_worker, np.inf)  # when a task ends, or its worker
        self._lost: NDArray[np.bool_] = np.zeros(by_worker, dtype=np.bool_)  # the latter
        self._shard: IntArray = np.zeros(by_worker, dtype=np.int64)
        self._size: IntArray = np.zeros(by_worker, dtype=np.int64)
        self._n_blocks: IntArray = np.zeros(by_worker, dtype=np.int64)
        self._is_warm: NDArray[np.bool_] = np.zeros((*by_worker, redundancy), dtype=np.bool_)
        self._n_started: IntArray = np.zeros(by_worker, dtype=np.int64)  # of each shard
        self._n_received: IntArray = np.zeros(by_worker, dtype=np.int64)
        self._sums: Array = np.zeros((*by_worker, 1))

    def run(self) -> Outcomes:
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
        """What was asked for is there; or is not started after all, if the worker is lost."""
        shard, size = self._shard[rows, workers], self._size[rows, workers]
        lost = self._lost[rows, workers]
        self._n_received[rows, shard] += np.where(lost, 0, size)
        self._n_started[rows, shard] -= np.where(lost, size, 0)
        self._size[rows, workers] = 0

    def _assign(self, rows: IntArray, workers: IntArray, now: Array) -> None:
        """The shard at hand that is furthest behind, of those that lack draws."""
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
        size = np.clip(np.where(n_left > 0, n_left, n_lacking), 1, work.task)
        ends = now + self._seconds(rows, workers, slot, size)
        deaths = self._realisations.deaths[rows, workers]
        self._lost[rows, workers] = ends > deaths
        self._events[rows, workers] = np.where(ends > deaths, np.maximum(now, deaths), ends)
        self._shard[rows, workers], self._size[rows, workers] = shard, size
        self._n_started[rows, shard] += size

    def _seconds(self, rows: IntArray, workers: IntArray, slot: IntArray, size: IntArray) -> Array:
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
        """Times of that many blocks, summed up."""
        if n_blocks < self._sums.shape[2]:
            return
        n_wanted = max(n_blocks, 2 * self._sums.shape[2], 16)
        times = self._realisations.up_to(n_wanted)
        zeros = np.zeros((*times.shape[:2], 1))
        self._sums = np.concatenate([zeros, np.cumsum(times, axis=2)], axis=2)


# ---------------------------------------------------------------- losses


def losses_survived(scheme: str, n_workers: int, redundancy: int, orders: IntArray) -> IntArray:
    """How many of the workers can be lost, in each order (n, K) in which they may be lost.

    `orders[i, k]` is how many are lost before worker k.
    """
    if scheme == "adaptive":
        held = overlapping(n_workers, redundancy, 0)
        holders = np.array([held.holders_of(shard) for shard in range(n_workers)])
        return np.asarray(orders[:, holders].max(axis=2).min(axis=1))
    if scheme == "coded":
        code = make_code("grouped", n_workers, redundancy)
        cells = [_lost(cell, orders[:, members]) for members, cell in code.cells]
        return np.asarray(np.min(cells, axis=0))
    groups = worker_groups(n_workers, redundancy)
    return np.asarray(np.min([orders[:, group].max(axis=1) for group in groups], axis=0))


def _lost(cell: Cell, orders: IntArray) -> IntArray:
    """How many workers are lost when this cell decodes no more."""
    n_copies, needed = _copies_and_needed(cell)
    last = np.sort(orders.reshape(len(orders), n_copies, -1).max(axis=1), axis=1)
    return np.asarray(last[:, last.shape[1] - needed])


def losses_survived_at_worst(scheme: str, n_workers: int, redundancy: int) -> int:
    """However they are chosen."""
    if scheme == "grouped":
        return min(map(len, worker_groups(n_workers, redundancy))) - 1
    return 0 if scheme == "cmc" else redundancy - 1
