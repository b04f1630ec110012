"""Runs in virtual time: an event heap in place of clocks and processes.

The coordinator, the scheme and what workers compute are the real ones; only the time that
computing takes is drawn from a latency model. A run is deterministic under its seed.
"""

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush, heapreplace
from itertools import accumulate, chain, count, islice, repeat
from typing import Protocol, cast

import numpy as np

from quorate._types import Array, CodedArray
from quorate.engines.latency import LatencyModel
from quorate.errors import require
from quorate.numerics.streams import Lane, Streams
from quorate.protocol.allocation import Allocation
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.messages import (
    NOTHING,
    Arrays,
    Block,
    DeadlinePassed,
    Event,
    Release,
    Stop,
    Task,
    WorkerJoined,
    WorkerLost,
)
from quorate.protocol.scheme import Processed, Scheme, WorkerSide
from quorate.protocol.timeline import Timeline

_LEAST = 16  # draws and times made at first; then as many again as there are
_LAST = sys.maxsize  # a block that comes at the deadline is in time
# Of the heap: time, number, worker, event. The number decides between events of one time.
Entry = tuple[float, int, int, Event]
_block = partial(tuple.__new__, Block)  # as `Block._make`, at half the cost


class Subposteriors(Protocol):
    """What virtual workers draw from, such as `quorate.models.gaussian.GaussianSubposteriors`."""

    def draws(self, streams: Streams, lanes: Sequence[Lane], first: int, n: int) -> Array:
        """Draws `first` to `first + n - 1` of each (shard, chain), shape (len(lanes), n, d)."""


@dataclass(frozen=True)
class Cluster:
    """Virtual workers: how fast they are, what they draw from, and with which randomness.

    Parameters
    ----------
    latency
        Time of one unit of work.
    per_draw
        False: a batch of r draws takes r times one computing time, as in §II. True: every draw
        takes a time of its own.
    copy_cost
        Time that it takes a worker to get a shard that it does not hold.
    draw_cost
        Factor on the time of each draw, from the draws that workers send, (..., d): for times that
        depend on what is drawn. None for times that do not. Not for coded draws.
    """

    latency: LatencyModel
    subposteriors: Subposteriors
    streams: Streams
    per_draw: bool = False
    copy_cost: float = 0.0
    draw_cost: Callable[[Array], Array] | None = None

    def __post_init__(self) -> None:
        require(self.copy_cost >= 0, f"copy_cost must be 0 or more, not {self.copy_cost}.")


def run(
    coordinator: Coordinator[Scheme],
    cluster: Cluster,
    until: float = np.inf,
    *,
    keep_blocks: bool = False,
) -> Timeline:
    """Run `coordinator` on virtual workers until it stops, or until time `until`.

    With `keep_blocks` the timeline holds all blocks received, to be replayed or counted.
    """
    require(
        coordinator.n_draws is not None or np.isfinite(until),
        "A run without a number of draws needs a time to end at. Give `until`.",
    )
    n_workers = coordinator.scheme.allocation.n_workers
    workers = VirtualWorkers(coordinator.scheme, cluster)
    clock = VirtualClock(cluster, coordinator.scheme.allocation)
    timeline = Timeline()
    handle, keep = coordinator.handle, timeline.blocks.append
    arrived_at, arrived_from = timeline.block_times.append, timeline.block_workers.append
    arrived_of = timeline.block_shards.append
    heap: list[Entry] = [(0.0, worker, worker, WorkerJoined(worker)) for worker in range(n_workers)]
    heappush(heap, (until, _LAST, n_workers, DeadlinePassed()))
    is_queued = [True] * (n_workers + 1)
    later: list[Iterator[Entry]] = [iter(()) for _ in is_queued]  # of each worker, beyond the heap
    while True:
        now, _, worker, event = heap[0]
        following = next(later[worker], None)
        if following is not None:
            heapreplace(heap, following)
        else:
            heappop(heap)
            is_queued[worker] = False
        if isinstance(event, Block):
            arrived_at(now)
            arrived_from(worker)
            arrived_of(event.task.shards)
            if keep_blocks:
                keep(event)
        for command in handle(event):
            if isinstance(command, Task):
                entries = clock.schedule(command, workers.blocks(command), now)
                worker = command.worker
                if is_queued[worker]:
                    later[worker] = chain(later[worker], entries)
                else:
                    heappush(heap, next(entries))
                    later[worker], is_queued[worker] = entries, True
            elif isinstance(command, Release):
                timeline.released(now, command.n_global)
            elif isinstance(command, Stop):
                timeline.finished = command.finished
                return timeline


class VirtualClock:
    """When blocks are there, and when workers die.

    Computing times are made for all workers at once, and again as needed.
    """

    def __init__(self, cluster: Cluster, allocation: Allocation) -> None:
        n_workers = allocation.n_workers
        self._cluster = cluster
        self._held = allocation.held
        self._copied: dict[int, tuple[int, ...]] = {}  # what is in the spare slot of a worker
        self._n_scheduled = n_workers
        self._free_at = [0.0] * n_workers
        self._next_unit = [0] * n_workers
        self._times: list[list[float]] = [[] for _ in range(n_workers)]
        self._deaths: list[float] = cluster.latency.death_times(cluster.streams, n_workers).tolist()

    def schedule(self, task: Task, blocks: Iterator[Block], now: float) -> Iterator[Entry]:
        """When each block of `task`, assigned now, will be there; or its worker dead."""
        worker, events = task.worker, cast(Iterator[Event], blocks)
        start = max(now, self._free_at[worker])
        if self._cluster.copy_cost:
            start += self._copy_time(task)
        if self._cluster.draw_cost is None:
            durations = self._durations(task)
        else:
            made = list(blocks)
            events, durations = iter(made), self._costed(task, made)
        ends = list(accumulate(durations, initial=start))
        del ends[0]
        self._free_at[worker] = ends[-1]
        death = self._deaths[worker]
        if ends[-1] > death:
            n_done = bisect_right(ends, death)
            ends[n_done:] = [max(now, death)]
            events = chain(islice(events, n_done), [WorkerLost(worker)])
        first = self._n_scheduled
        self._n_scheduled = first + len(ends)
        return zip(ends, count(first), repeat(worker), events, strict=False)

    def _copy_time(self, task: Task) -> float:
        is_there = set(task.shards) <= set(self._held[task.worker])
        if is_there or self._copied.get(task.worker) == task.shards:
            return 0.0
        self._copied[task.worker] = task.shards
        return self._cluster.copy_cost

    def _durations(self, task: Task) -> list[float]:
        """Time of each batch of draws."""
        n_shards = len(task.shards)
        if not self._cluster.per_draw:
            times = self._units(task.worker, task.n_draws)
            return times if n_shards == 1 else [n_shards * time for time in times]
        times = self._units(task.worker, n_shards * task.n_draws)
        return [sum(times[i : i + n_shards]) for i in range(0, len(times), n_shards)]

    def _costed(self, task: Task, blocks: Sequence[Block]) -> list[float]:
        """Time of each batch where it depends on what is drawn."""
        assert self._cluster.draw_cost is not None
        n_shards = len(task.shards)
        n_units = n_shards if self._cluster.per_draw else 1
        costs = self._cluster.draw_cost(np.concatenate([block.payload for block in blocks]))
        times = np.reshape(self._units(task.worker, n_units * task.n_draws), (-1, n_units))
        each: list[float] = (times * costs.reshape(-1, n_shards)).sum(axis=1).tolist()
        return each

    def _units(self, worker: int, n: int) -> list[float]:
        """Times of the next `n` units of work of a worker."""
        first = self._next_unit[worker]
        end = self._next_unit[worker] = first + n
        if end > len(self._times[worker]):
            self._extend(end)
        return self._times[worker][first:end]

    def _extend(self, n_wanted: int) -> None:
        n_workers, n_known = len(self._times), len(self._times[0])
        n_more = max(n_wanted - n_known, n_known, _LEAST)
        more = self._cluster.latency.times(self._cluster.streams, n_workers, n_known, n_more)
        for known, new in zip(self._times, more.tolist(), strict=True):
            known += new


class VirtualWorkers:
    """Performs tasks as workers would, for many draws at a time.

    Workers on the same chain of a shard would all compute the same, so that is done once. The
    chains of all shards that workers hold are drawn together, others when they are asked for.
    """

    def __init__(self, scheme: Scheme, cluster: Cluster) -> None:
        self._worker_side = scheme.worker_side
        self._cluster = cluster
        held = [(worker, shard) for worker, s in enumerate(scheme.allocation.held) for shard in s]
        by_chain = sorted({(scheme.chain_of(worker, shard), shard) for worker, shard in held})
        lanes = [(shard, chain) for chain, shard in by_chain]
        self._held = Drawn(lanes, self._worker_side, cluster)
        self._known: dict[tuple[tuple[int, ...], int], tuple[Drawn, slice | list[int]]] = {}

    def blocks(self, task: Task) -> Iterator[Block]:
        """The blocks of `task`, one for each draw, as in the paper."""
        first, end = task.first_draw, task.first_draw + task.n_draws
        payload, extras = self._encoded(task, first, end)
        if not extras:
            nothing = repeat(NOTHING)
            return map(_block, zip(repeat(task), count(first), payload[:, None], nothing, nothing))
        each = range(first, end)
        return (Block(task, draw, *self._encoded(task, draw, draw + 1)) for draw in each)

    def _encoded(self, task: Task, first: int, end: int) -> tuple[CodedArray, Arrays]:
        key = task.shards, task.chain
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._find([(shard, task.chain) for shard in task.shards])
        drawn, rows = known
        return self._worker_side.encode(task.worker, drawn.up_to(end).part(rows, first, end))

    def _find(self, lanes: list[Lane]) -> tuple["Drawn", slice | list[int]]:
        """Where lanes lie: a slice if together, which is not copied."""
        rows = [self._held.row_of[lane] for lane in lanes if lane in self._held.row_of]
        if len(rows) < len(lanes):
            return Drawn(lanes, self._worker_side, self._cluster), slice(None)
        together = rows == list(range(rows[0], rows[0] + len(rows)))
        return self._held, slice(rows[0], rows[-1] + 1) if together else rows


class Drawn:
    """Draws of some lanes, as workers process them, made when they are asked for."""

    def __init__(self, lanes: list[Lane], worker_side: WorkerSide, cluster: Cluster) -> None:
        self.row_of = {lane: row for row, lane in enumerate(lanes)}
        self._lanes = lanes
        self._worker_side = worker_side
        self._cluster = cluster
        self._processed: Processed | None = None
        self._n_known = 0
        self._state = worker_side.start([None] * len(lanes))

    def up_to(self, n_wanted: int) -> Processed:
        """Draws 0 to at least `n_wanted` - 1 of every lane."""
        if n_wanted > self._n_known:
            self._extend(n_wanted)
        assert self._processed is not None
        return self._processed

    def _extend(self, n_wanted: int) -> None:
        n_more = max(n_wanted - self._n_known, self._n_known, _LEAST)
        subposteriors, streams = self._cluster.subposteriors, self._cluster.streams
        draws = subposteriors.draws(streams, self._lanes, self._n_known, n_more)
        processed, self._state = self._worker_side.process(draws, self._state)
        known = self._processed
        self._processed = known.followed_by(processed) if known is not None else processed
        self._n_known += n_more
