"""The coordinator: the pure state machine between a scheme and an engine.

It takes events and returns commands. It never blocks and never looks at a clock, so the same
coordinator runs in virtual time, on processes and on a cluster. Where workers are real, the
`supervisor` stands before it and decides about workers that die, hang or lie.
"""

from collections.abc import Collection
from itertools import chain
from math import inf
from typing import Generic, Protocol, TypeVar

from quorate.errors import require
from quorate.protocol.messages import (
    Answer,
    Command,
    Event,
    Release,
    Stop,
    Work,
    WorkerJoined,
    WorkerLost,
)
from quorate.protocol.scheme import Schedule


class TimedSchedule(Schedule, Protocol):
    """A schedule that asks again for what is late."""

    now: float  # as the coordinator was told it

    def joined(self, worker: int, node: str, process: str = "") -> None:
        """Take in that a worker is there, on a node; an empty name is a node of its own.

        Workers of one `process` take turns. An empty name stands for the only one of the node.
        """

    def to_wake(self, now: float) -> Collection[int]:
        """Workers for whom there may be work now that there was not before."""

    def next_late(self, now: float) -> float:
        """When something that was asked for will be late."""


S = TypeVar("S", bound=Schedule)
T = TypeVar("T", bound=TimedSchedule)


class Coordinator(Generic[S]):
    """Drives one run of a scheme.

    Parameters
    ----------
    scheme
        Not yet used by another run.
    n_draws
        Number of global draws to stop at; None to run until the deadline.
    queue_depth
        Tasks that a worker has at a time. More than one hides the latency of messages.
    may_exclude
        Whether to continue without shards that no living worker holds.
    """

    def __init__(
        self,
        scheme: S,
        n_draws: int | None = None,
        queue_depth: int = 1,
        may_exclude: bool = False,
    ) -> None:
        require(n_draws is None or n_draws >= 1, f"draws must be at least 1, not {n_draws}.")
        self.scheme = scheme
        self.n_draws = n_draws
        self.n_global = 0
        self.lost: set[int] = set()
        self._queue_depth = queue_depth
        self._may_exclude = may_exclude
        self._left_out: set[int] = set()  # shards
        self._idle: set[int] = set()  # workers with nothing to do for now

    def handle(self, event: Event, now: float = 0.0) -> list[Command]:
        """Take one event in, at time `now`; return what is to be done. Never blocks."""
        if isinstance(event, Answer):
            return self._received(event)
        if isinstance(event, WorkerJoined):
            return self._joined(event.worker)
        if isinstance(event, WorkerLost):
            return self._lost(event.worker)
        return [Stop(finished=self.n_draws is None)]

    def next_wake(self, now: float) -> float:
        """When to call `wake`, at the latest."""
        return inf

    def wake(self, now: float) -> list[Command]:
        """Nothing: with time alone no new work comes up."""
        return []

    def take_back(self, worker: int) -> list[Command]:
        """Forget what a worker was doing. Idle workers may take it over."""
        self.scheme.take_back(worker)
        self._idle.discard(worker)
        waiting, self._idle = self._idle, set()
        return [task for idle in sorted(waiting) for task in self._tasks(idle, 1)]

    def take_all_back(self) -> None:
        """Forget what all workers were doing, after a replay: they will join again."""
        for worker in range(self.scheme.allocation.n_workers):
            self.scheme.take_back(worker)
        self._idle.clear()

    def _received(self, answer: Answer) -> list[Command]:
        n_global = self.scheme.receive(answer)
        commands = self._released(n_global) if n_global > self.n_global else []
        if answer.ends_task and not self.is_done:
            commands += self._tasks(answer.task.worker, 1)
        return commands

    def _released(self, n_global: int) -> list[Command]:
        self.n_global = n_global
        if self.n_draws is not None and n_global >= self.n_draws:
            return [Release(self.n_draws), Stop(finished=True)]
        return [Release(n_global)]

    @property
    def is_done(self) -> bool:
        """Whether all global draws that were asked for are complete."""
        return self.n_draws is not None and self.n_global >= self.n_draws

    def _joined(self, worker: int) -> list[Command]:
        self.lost.discard(worker)
        return list(self._tasks(worker, self._queue_depth))

    def _tasks(self, worker: int, n_tasks: int) -> list[Work]:
        tasks = []
        for _ in range(n_tasks):
            task = self.scheme.next_task(worker, self.n_draws)
            if task is None:
                self._idle.add(worker)
                break
            tasks.append(task)
        return tasks

    def _lost(self, worker: int) -> list[Command]:
        """Stop if the draws are out of reach; an open-ended run takes what it can get."""
        self.lost.add(worker)
        more = self.take_back(worker)
        alive = set(range(self.scheme.allocation.n_workers)) - self.lost
        if self.n_draws is None:
            return more
        missing = self.scheme.out_of_reach(self.n_draws, alive)
        if not missing:
            return more
        if self._may_exclude and alive:
            n_global = self.scheme.leave_out({*self._left_out, *missing})
            if not self.scheme.out_of_reach(self.n_draws, alive):
                self._left_out.update(missing)
                return [*more, *(self._released(n_global) if n_global > self.n_global else [])]
        return [Stop(finished=False)]


class WakingCoordinator(Coordinator[T]):
    """A coordinator that gives work to idle workers as soon as there is some.

    An answer may bring up new questions, and with time what was asked for is late.
    """

    def handle(self, event: Event, now: float = 0.0) -> list[Command]:
        self.scheme.now = now
        if isinstance(event, WorkerJoined):
            self.scheme.joined(event.worker, event.node, event.process)
        commands = super().handle(event)
        if commands and isinstance(commands[-1], Stop):
            return commands
        return [*commands, *self._tasks_for_idle()]

    def next_wake(self, now: float) -> float:
        """When to wake idle workers, if there are any: something will be late by then."""
        return self.scheme.next_late(now) if self._idle else inf

    def wake(self, now: float) -> list[Command]:
        """Tasks for workers that were idle."""
        self.scheme.now = now
        return list(self._tasks_for_idle())

    def take_back(self, worker: int) -> list[Command]:
        self.scheme.take_back(worker)
        self._idle.discard(worker)
        return list(self._tasks_for_idle())

    def _tasks_for_idle(self) -> list[Work]:
        waiting = self._idle.intersection(self.scheme.to_wake(self.scheme.now))
        self._idle -= waiting
        return list(chain.from_iterable(self._tasks(worker, 1) for worker in sorted(waiting)))
