"""Finish times of any scheme, by running it in virtual time: for schemes that offer no short cut.

The coordinator, the scheme and what workers send are the real ones. To be fast, draws are standard
normal and made once for all realisations, and they arrive in blocks of half a task, as they might
from real workers. Blocks of one draw give the times of `quorate.simulate`.
"""

from heapq import heappop, heappush
from itertools import count
from math import ceil

import numpy as np

from quorate.engines.virtual.engine import Cluster, Drawn
from quorate.models.gaussian import GaussianSubposteriors
from quorate.numerics.streams import Streams
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.messages import Block, Event, Stop, Task, WorkerJoined, WorkerLost
from quorate.protocol.scheme import Scheme, SchemeOptions, Setup
from quorate.protocol.times import Outcomes, Realisations, Work

_BLOCKS_PER_TASK = 2
_MOST_KNOWN = 2**15  # tasks whose blocks are held in memory
_DIM = 2  # even, so that complex codes send as many floats as others


def simulated(options: SchemeOptions, realisations: Realisations) -> Outcomes:
    """When each realisation of a run finishes, and the vectors that were sent for it."""
    work = realisations.work
    setup = Setup(work.n_workers, _DIM, work.n_draws, work.task, work.seed)
    workers = _Workers(options.start(setup), work)
    found = []
    for realisation in range(len(realisations.deaths)):
        coordinator = Coordinator(options.start(setup), work.n_draws)
        time, n_floats = _finish(coordinator, workers, _Clock(realisations, realisation))
        found.append((time, n_floats / _DIM))
    times, n_vectors = np.array(found).T
    return Outcomes(times, n_vectors)


def _finish(
    coordinator: Coordinator[Scheme], workers: "_Workers", clock: "_Clock"
) -> tuple[float, int]:
    """When a run finishes, and the numbers that workers have sent by then."""
    order, n_floats = count(), 0
    heap: list[tuple[float, int, Event]] = [
        (clock.start, next(order), WorkerJoined(worker)) for worker in clock.workers
    ]
    while heap:
        now, _, event = heappop(heap)
        if isinstance(event, Block):
            n_floats += event.n_floats
        for command in coordinator.handle(event):
            if isinstance(command, Task):
                for time, later in clock.events(workers.blocks(command), now):
                    heappush(heap, (time, next(order), later))
            elif isinstance(command, Stop):
                return now if command.finished else np.inf, n_floats
    return np.inf, n_floats


class _Workers:
    """The blocks of tasks, made once for all realisations."""

    def __init__(self, scheme: Scheme, work: Work) -> None:
        n, dim = work.n_workers, _DIM
        normal = GaussianSubposteriors(np.zeros((n, dim)), np.tile(np.eye(dim), (n, 1, 1)))
        self._cluster = Cluster(work.latency, normal, Streams(work.seed))
        self._worker_side = scheme.worker_side
        self._block_size = max(1, work.task // _BLOCKS_PER_TASK)
        self._drawn: dict[tuple[object, ...], Drawn] = {}
        self._known: dict[tuple[object, ...], list[Block]] = {}

    def blocks(self, task: Task) -> list[Block]:
        """The blocks of `task`, in order."""
        key = task[:5]
        if key not in self._known:
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            end = task.first_draw + task.n_draws
            firsts = range(task.first_draw, end, self._block_size)
            self._known[key] = [
                self._block(task, first, min(first + self._block_size, end)) for first in firsts
            ]
        return self._known[key]

    def _block(self, task: Task, first: int, end: int) -> Block:
        key = task.shards, task.chain
        if key not in self._drawn:
            lanes = [(shard, task.chain) for shard in task.shards]
            self._drawn[key] = Drawn(lanes, self._worker_side, self._cluster)
        processed = self._drawn[key].up_to(end).part(slice(None), first, end)
        return Block(task, first, *self._worker_side.encode(task.worker, processed))


class _Clock:
    """When blocks arrive in one realisation, and when workers die."""

    def __init__(self, realisations: Realisations, which: int) -> None:
        self._realisations = realisations
        self._which = which
        self.start = realisations.work.start
        self.workers = range(realisations.work.n_workers)
        self._deaths: list[float] = realisations.deaths[which].tolist()
        self._n_times = [0] * len(self.workers)  # used up by each worker
        self._warm: set[tuple[object, ...]] = set()
        self._know(2 * ceil(realisations.work.n_draws / realisations.work.block))

    def events(self, blocks: list[Block], now: float) -> list[tuple[float, Event]]:
        """When each block of a task that is given now arrives; or when its worker is lost."""
        task = blocks[0].task
        death, found = self._deaths[task.worker], list[tuple[float, Event]]()
        for block, seconds in zip(blocks, self._seconds(task, blocks), strict=True):
            if now + seconds > death:
                return [*found, (max(now, death), WorkerLost(task.worker))]
            found.append((now + seconds, block))
        return found

    def _seconds(self, task: Task, blocks: list[Block]) -> list[float]:
        """Seconds from the beginning of a task to each of its blocks.

        `Work.block` draws of single shards share one time; a task begins with a new one.
        """
        work, worker, n_shards = self._realisations.work, task.worker, len(task.shards)
        per_time = min(max(1, work.block // n_shards), task.n_draws)
        first = self._n_times[worker]
        last = self._n_times[worker] = first + ceil(task.n_draws / per_time)
        if last >= len(self._times[worker]):
            self._know(2 * last)
        times, sums = self._times[worker], self._sums[worker]
        warm_up, chain = 0.0, (worker, task.shards, task.chain)
        if work.warm_up and chain not in self._warm:
            self._warm.add(chain)
            warm_up = work.warm_up * times[first]
        reached = []
        for block in blocks:
            n_draws = block.first_draw + len(block.payload) - task.first_draw
            n_whole, n_more = divmod(n_draws, per_time)
            spent = per_time * (sums[first + n_whole] - sums[first])
            reached.append(n_shards * (warm_up + spent + n_more * times[first + n_whole]))
        return reached

    def _know(self, n: int) -> None:
        """Look up the first `n` times of draws of each worker, and their sums."""
        times = self._realisations.up_to(n)[self._which]
        self._times: list[list[float]] = times.tolist()
        sums = np.cumsum(times, axis=1)
        self._sums: list[list[float]] = [[0.0, *of_worker] for of_worker in sums.tolist()]
