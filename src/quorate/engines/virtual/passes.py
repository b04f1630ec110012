"""Exact runs and local parameters in virtual time: real answers, and times of a latency model.

The coordinator, the scheme and the evaluations are the real ones. A worker takes one computing time
for each shard of a task; where workers share a node, it is that of the worker that holds the shard,
and their tasks wait for each other. So an exact run in virtual time has the draws of a real one.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any, Protocol

import numpy as np

from quorate._types import Array
from quorate.engines.latency import LatencyModel
from quorate.engines.virtual.nodes import ComputingTimes
from quorate.numerics.streams import Streams
from quorate.protocol.coordinator import WakingCoordinator
from quorate.protocol.messages import (
    Answer,
    Command,
    Question,
    Release,
    Stop,
    WorkerJoined,
    WorkerLost,
)
from quorate.protocol.timeline import Timeline

_Entry = tuple[float, int, Question | WorkerJoined | WorkerLost | None]


class Answering(Protocol):
    """What answers tasks: a `quorate.engines.workers.worker.Worker`, or something in its place."""

    def answers(self, task: Question) -> Iterator[Answer]:
        """The answers to a task."""


class VirtualPasses:
    """One exact run in virtual time, or the local tasks after a run.

    Parameters
    ----------
    worker
        Answers all tasks, as any worker would.
    latency
        Times of one unit of work on one shard.
    nodes
        Node of each worker: those of one node answer together, and are lost together. By default
        each answers for itself.
    units
        How many units of work a task is for each of its shards. By default a task is one, whatever
        its number of points.
    """

    def __init__(
        self,
        coordinator: WakingCoordinator[Any],
        worker: Answering,
        latency: LatencyModel,
        streams: Streams,
        nodes: Sequence[str] = (),
        units: Callable[[Question], float] = lambda task: 1.0,
    ) -> None:
        allocation = coordinator.scheme.allocation
        self._coordinator, self._worker = coordinator, worker
        self._nodes = nodes or [""] * allocation.n_workers
        self._units = units
        self._free_at: dict[str | int, float] = {}
        self._times = ComputingTimes(latency, streams, allocation, nodes)
        self._deaths = _deaths(latency.death_times(streams, allocation.n_workers), nodes)
        self._numbers = count()
        self._heap: list[_Entry] = []
        self._next_wake = np.inf
        self.timeline = Timeline()
        self.n_floats = 0  # that workers have sent

    def run(self, until: float = np.inf) -> Timeline:
        """Run until the coordinator stops, or until time `until`."""
        for worker, node in enumerate(self._nodes):
            self._push(0.0, WorkerJoined(worker, node))
        while self._heap:
            now, _, event = heappop(self._heap)
            if now > until:
                break
            commands = self._handle(event, now)
            if commands and isinstance(commands[-1], Stop):
                self._take(commands, now)
                self.timeline.finished = commands[-1].finished
                break
            self._take(commands, now)
            self._plan_to_wake(now)
        return self.timeline

    def _push(self, time: float, event: Question | WorkerJoined | WorkerLost | None) -> None:
        heappush(self._heap, (time, next(self._numbers), event))

    def _handle(
        self, event: Question | WorkerJoined | WorkerLost | None, now: float
    ) -> list[Command]:
        if event is None and now != self._next_wake:
            return []  # it was planned before an earlier one
        if event is None:
            self._next_wake = np.inf
            return self._coordinator.wake(now)
        if not isinstance(event, Question):
            return self._coordinator.handle(event, now)
        answer: Answer = next(self._worker.answers(event))
        self.timeline.block_times.append(now)
        self.timeline.block_workers.append(event.worker)
        self.timeline.block_shards.append(event.shards)
        self.n_floats += answer.n_floats
        return self._coordinator.handle(answer, now)

    def _take(self, commands: list[Command], now: float) -> None:
        for command in commands:
            if isinstance(command, Question):
                self._schedule(command, now)
            elif isinstance(command, Release):
                self.timeline.released(now, command.n_global)

    def _schedule(self, task: Question, now: float) -> None:
        worker = task.worker
        home = self._nodes[worker] or worker
        begin = max(now, self._free_at.get(home, 0.0))
        end = begin + self._units(task) * self._times.of(worker, task.shards)
        self._free_at[home] = end
        death = self._deaths[worker]
        if end <= death:
            self._push(end, task)
        else:
            self._push(max(now, death), WorkerLost(worker))

    def _plan_to_wake(self, now: float) -> None:
        """Come back when something will be late, if anybody is idle."""
        wake = self._coordinator.next_wake(now)
        if wake < self._next_wake:
            self._next_wake = wake
            self._push(self._next_wake, None)


def _deaths(times: Array, nodes: Sequence[str]) -> list[float]:
    """When each worker is gone: with the first of its node."""
    found: list[float] = times.tolist()
    if not nodes:
        return found
    first: dict[str, float] = {}
    for node, time in zip(nodes, found, strict=True):
        first[node] = min(time, first.get(node, np.inf))
    return [first[node] for node in nodes]
