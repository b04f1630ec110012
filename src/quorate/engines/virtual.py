"""Runs in virtual time: an event heap in place of clocks and processes.

The coordinator, the scheme and what workers compute are the real ones; only the time that
computing takes is drawn from a latency model. A run is deterministic under its seed.
"""

import sys
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate, count

import numpy as np

from quorate._types import CodedArray
from quorate.coordinator import Coordinator
from quorate.engines.timeline import Timeline
from quorate.errors import require
from quorate.latency import LatencyModel
from quorate.messages import (
    Arrays,
    Block,
    DeadlinePassed,
    Event,
    Release,
    Task,
    WorkerJoined,
    WorkerLost,
)
from quorate.scheme import Processed, Scheme
from quorate.streams import Lane, Streams
from quorate.subposterior import GaussianSubposteriors

_LEAST = 16  # draws and times made at first; then as many again as there are
_LAST = sys.maxsize  # a block that comes at the deadline is in time
Entry = tuple[float, int, Event]  # of the heap: the number decides between events of one time


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
    """

    latency: LatencyModel
    subposteriors: GaussianSubposteriors
    streams: Streams
    per_draw: bool = False


def run(coordinator: Coordinator, cluster: Cluster, until: float = np.inf) -> Timeline:
    """Run `coordinator` on virtual workers until it stops, or until time `until`."""
    require(
        coordinator.n_draws is not None or np.isfinite(until),
        "until",
        until,
        "a run without a number of draws needs a time to end at",
    )
    n_workers = coordinator.scheme.allocation.n_workers
    workers = VirtualWorkers(coordinator.scheme, cluster)
    clock = VirtualClock(cluster, n_workers)
    timeline = Timeline()
    handle = coordinator.handle
    heap: list[Entry] = [(0.0, worker, WorkerJoined(worker)) for worker in range(n_workers)]
    heappush(heap, (until, _LAST, DeadlinePassed()))
    while True:
        now, _, event = heappop(heap)
        if isinstance(event, Block):
            timeline.block_times.append(now)
            timeline.block_workers.append(event.task.worker)
        for command in handle(event):
            if isinstance(command, Task):
                for entry in clock.schedule(command, workers.blocks(command), now):
                    heappush(heap, entry)
            elif isinstance(command, Release):
                timeline.released(now, command.n_global)
            else:
                timeline.finished = command.finished
                return timeline


class VirtualClock:
    """When blocks are there, and when workers die.

    Computing times are made for all workers at once, and again as needed.
    """

    def __init__(self, cluster: Cluster, n_workers: int) -> None:
        self._cluster = cluster
        self._order = count(n_workers)
        self._free_at = [0.0] * n_workers
        self._next_unit = [0] * n_workers
        self._times: list[list[float]] = [[] for _ in range(n_workers)]
        self._deaths: list[float] = cluster.latency.death_times(cluster.streams, n_workers).tolist()

    def schedule(self, task: Task, blocks: list[Block], now: float) -> Iterable[Entry]:
        """When each block of `task`, assigned now, will be there; or its worker dead."""
        worker = task.worker
        ends = list(accumulate(self._durations(task), initial=max(now, self._free_at[worker])))[1:]
        self._free_at[worker] = ends[-1]
        events: list[Event] = [*blocks]
        death = self._deaths[worker]
        if ends[-1] > death:
            n_done = bisect_right(ends, death)
            ends[n_done:] = [max(now, death)]
            events[n_done:] = [WorkerLost(worker)]
        return zip(ends, self._order, events, strict=False)

    def _durations(self, task: Task) -> list[float]:
        n_shards = len(task.shards)
        n_units = n_shards if self._cluster.per_draw else 1
        first = self._next_unit[task.worker]
        end = self._next_unit[task.worker] = first + n_units * task.n_draws
        if end > len(self._times[task.worker]):
            self._extend(end)
        times = self._times[task.worker][first:end]
        if n_units == 1:
            return [n_shards * time for time in times]
        return [sum(times[i : i + n_units]) for i in range(0, len(times), n_units)]

    def _extend(self, n_wanted: int) -> None:
        n_workers, n_known = len(self._times), len(self._times[0])
        n_more = max(n_wanted - n_known, n_known, _LEAST)
        more = self._cluster.latency.times(self._cluster.streams, n_workers, n_known, n_more)
        for known, new in zip(self._times, more.tolist(), strict=True):
            known += new


class VirtualWorkers:
    """Performs tasks as workers would, for many draws at a time.

    Workers on the same chain of a shard would all compute the same, so that is done once.
    """

    def __init__(self, scheme: Scheme, cluster: Cluster) -> None:
        self._worker_side = scheme.worker_side
        self._cluster = cluster
        held = enumerate(scheme.allocation.held)
        lanes = {(shard, scheme.chain_of(worker)) for worker, shards in held for shard in shards}
        self._lanes: list[Lane] = sorted(lanes, key=lambda lane: lane[::-1])
        self._row_of = {lane: row for row, lane in enumerate(self._lanes)}
        self._known_rows: dict[tuple[tuple[int, ...], int], slice | list[int]] = {}
        self._processed: Processed | None = None
        self._n_known = 0
        self._state = scheme.worker_side.start([None] * len(lanes))

    def blocks(self, task: Task) -> list[Block]:
        """The blocks of `task`, one for each draw, as in the paper."""
        end = task.first_draw + task.n_draws
        if end > self._n_known:
            self._extend(end)
        payload, extras = self._encoded(task, task.first_draw, end)
        if not extras:
            draws = enumerate(payload[:, None], task.first_draw)
            return [Block(task, draw, one) for draw, one in draws]
        each = range(task.first_draw, end)
        return [Block(task, draw, *self._encoded(task, draw, draw + 1)) for draw in each]

    def _encoded(self, task: Task, first: int, end: int) -> tuple[CodedArray, Arrays]:
        assert self._processed is not None
        processed = self._processed.part(self._rows(task), first, end)
        return self._worker_side.encode(task.worker, processed)

    def _rows(self, task: Task) -> slice | list[int]:
        """Where the shards of a task lie: a slice if together, which is not copied."""
        key = task.shards, task.chain
        if key not in self._known_rows:
            rows = [self._row_of[shard, task.chain] for shard in task.shards]
            together = rows == list(range(rows[0], rows[0] + len(rows)))
            self._known_rows[key] = slice(rows[0], rows[-1] + 1) if together else rows
        return self._known_rows[key]

    def _extend(self, n_wanted: int) -> None:
        n_more = max(n_wanted - self._n_known, self._n_known, _LEAST)
        subposteriors, streams = self._cluster.subposteriors, self._cluster.streams
        draws = subposteriors.draws(streams, self._lanes, self._n_known, n_more)
        processed, self._state = self._worker_side.process(draws, self._state)
        known = self._processed
        self._processed = known.followed_by(processed) if known is not None else processed
        self._n_known += n_more
