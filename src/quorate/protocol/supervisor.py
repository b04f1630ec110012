"""The supervisor: decides about workers that die, hang or lie.

It stands before the coordinator where workers are real, and is as pure: it takes events and the
time, and returns commands. A slow worker is no fault: redundancy covers it. A worker that is gone
is restarted, after a pause that doubles, and continues where its last block ended. A worker whose
process gives no sign of life, or whose code is stuck, is replaced; `patience` says when. A worker
whose code raises, or that sends what cannot be draws, gets a few more chances. Then it is retired.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.errors import is_refusal, named_shards
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.messages import (
    Answer,
    Beat,
    Block,
    Command,
    DeadlinePassed,
    Event,
    Happening,
    Keep,
    Kill,
    Note,
    Start,
    Status,
    Task,
    Tick,
    Work,
    WorkerFailed,
    WorkerJoined,
    WorkerLost,
    WorkerMoved,
)
from quorate.protocol.patience import Limits, Patience
from quorate.protocol.scheme import WorkerSide

_SECONDS_BETWEEN_LOOKS = 0.02  # at all workers
_SLEEP = 1.0  # seconds between two ticks beyond which the coordinator itself slept
Chain = tuple[int, tuple[int, ...], int]  # worker, shards, chain


@dataclass
class _Worker:
    """What is known of one worker."""

    status: Status = Status.STARTING
    attempt: int = 0
    n_tasks: int = 0
    n_draws: int = 0  # and points
    losses: int = 0
    failures: int = 0
    failed_at: int = 0  # draws it had sent by then
    restart_at: float = 0.0
    told: set[Chain] = field(default_factory=set)  # chains that this attempt has the state of

    @property
    def is_gone(self) -> bool:
        """Whether the worker was lost and has sent nothing since."""
        return self.status.is_down or self.losses > 0

    @property
    def is_judged(self) -> bool:
        """Whether the worker should be at work."""
        return self.status == Status.STARTING or (
            self.status == Status.WORKING and self.n_tasks > 0
        )


class Supervisor:
    """Looks after the workers of one run.

    Attributes
    ----------
    states
        State of each chain, by worker, shards and chain: all that is needed to continue.

    Parameters
    ----------
    side, dim
        What workers do with draws, and d: they say what a block looks like. None where workers
        only evaluate.
    shares_starts
        Whether a chain may start where another chain of its shards is.
    """

    def __init__(
        self,
        coordinator: Coordinator[Any],
        side: WorkerSide | None = None,
        dim: int = 0,
        *,
        shares_starts: bool = False,
        limits: Limits,
    ) -> None:
        self.coordinator = coordinator
        self._side = side
        self._dim = dim
        self._shares_starts = shares_starts
        self._failures: dict[int, WorkerFailed] = {}  # that workers have not recovered from
        self.states: dict[Chain, dict[str, NDArray[np.generic]]] = {}
        self._limits = limits
        n_workers = coordinator.scheme.allocation.n_workers
        self._workers = [_Worker() for _ in range(n_workers)]
        self._reached: dict[Chain, int] = {}
        self._latest: dict[tuple[int, ...], dict[str, NDArray[np.generic]]] = {}  # by shards
        self._patience = Patience(self._limits, n_workers)
        self._last_tick = self._next_look = 0.0

    @property
    def gone(self) -> frozenset[int]:
        """Workers that were lost and have sent nothing since, restarted or not."""
        return frozenset(k for k, worker in enumerate(self._workers) if worker.is_gone)

    @property
    def failure(self) -> WorkerFailed | None:
        """The last error of user code that its worker has not recovered from."""
        return next(reversed(self._failures.values()), None)

    def status(self, worker: int) -> Status:
        """Status of a worker."""
        return self._workers[worker].status

    @property
    def has_begun(self) -> bool:
        """Whether a worker has been given something to do."""
        return any(worker.n_tasks or worker.status == Status.WORKING for worker in self._workers)

    def begin(self, now: float) -> list[Command]:
        """First commands of a run."""
        for k in range(len(self._workers)):
            self._patience.started(k, now)
        self._last_tick = now
        return [Start(k, 0) for k in range(len(self._workers))]

    def replay(self, block: Block) -> list[Command]:
        """Take in a block of an earlier sitting. Nobody works on its task; see `take_all_back`."""
        self._note(block)
        return [Keep(block), *self.coordinator.handle(block)]

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take one event in; return what is to be done."""
        if isinstance(event, Answer):
            return self._received(event, now)
        if isinstance(event, WorkerJoined):
            return self._ready(self.coordinator.handle(event, now), now)
        if isinstance(event, WorkerLost):
            return self._lost(event, now)
        if isinstance(event, WorkerMoved):
            return self._moved(event, now)
        if isinstance(event, WorkerFailed):
            return self._failed(event, now)
        if isinstance(event, Beat):
            self._patience.beat(event, now)
            return []
        if isinstance(event, Tick):
            return self._tick(now)
        return self.coordinator.handle(DeadlinePassed())

    # ------------------------------------------------------------ blocks

    def _received(self, answer: Answer, now: float) -> list[Command]:
        if self._workers[answer.task.worker].status.is_down:
            return []  # a last word of a worker that was ended
        wrong = self._what_is_wrong(answer)
        if wrong:
            return self._fault(answer.task.worker, Happening.REFUSED, wrong, now)
        self._heard(answer, now)
        if not isinstance(answer, Block):
            return [Keep(answer), *self._ready(self.coordinator.handle(answer, now), now)]
        self._note(answer)
        commands = self._ready(self.coordinator.handle(answer, now), now)
        return [Keep(answer), *self._quarantine(now), *commands]

    def _what_is_wrong(self, answer: Answer) -> str:
        """Why an answer cannot be accepted; an empty string if it can."""
        if not isinstance(answer, Block):
            return str(self.coordinator.scheme.fault_in(answer))
        shards = named_shards(answer.task.shards)
        return self._out_of_turn(answer) or _not_finite(
            f"draws of {shards}", answer.payload, *answer.extras.values()
        )

    def _out_of_turn(self, block: Block) -> str:
        """Why a block is not the next one of its chain; an empty string if it is."""
        task, payload = block.task, block.payload
        end = task.first_draw + task.n_draws
        expected = self._reached.get(_chain(task), 0)
        if block.first_draw != expected or not 0 < len(payload) <= end - block.first_draw:
            return f"draws from {block.first_draw} came where {expected} was next"
        assert self._side is not None
        shapes = self._side.payload_shapes(len(task.shards), self._dim)
        if payload.shape[1:] not in shapes:
            return f"draws have shape {payload.shape[1:]}, where it should be {list(shapes)[-1]}"
        return ""

    def _note(self, block: Block) -> None:
        chain = _chain(block.task)
        self._reached[chain] = block.first_draw + len(block.payload)
        known = self.states.setdefault(chain, {})
        known.update(block.state)
        self._latest[block.task.shards] = known

    def _quarantine(self, now: float) -> list[Command]:
        """End workers that the scheme found to send wrong answers."""
        found = self.coordinator.scheme.quarantined.items()
        commands: list[Command] = []
        for k, why in found:
            if self._workers[k].status != Status.RETIRED:
                commands += [Note(k, Happening.QUARANTINED, why), Kill(k), *self._retire(k, now)]
        return commands

    def _heard(self, answer: Answer, now: float) -> None:
        """Note that a worker is at work, and how much it has done."""
        k = answer.task.worker
        worker = self._workers[k]
        worker.status, worker.losses = Status.WORKING, 0
        worker.n_draws += answer.size
        worker.n_tasks -= answer.ends_task
        self._patience.heard(k, now)
        self._failures.pop(k, None)

    def _ready(self, commands: list[Command], now: float) -> list[Command]:
        """Count tasks, and give them the states that their workers do not know."""
        for command in commands:
            if isinstance(command, Work):
                self._workers[command.worker].n_tasks += 1
        return [self._with_start(c) if isinstance(c, Task) else c for c in commands]

    def _with_start(self, task: Task) -> Task:
        worker, chain = self._workers[task.worker], _chain(task)
        if chain in worker.told:
            return task
        worker.told.add(chain)
        start = self.states.get(chain)
        if start is None and not task.first_draw and self._shares_starts:
            start = self._latest.get(task.shards)
        return task._replace(start=start)

    # ------------------------------------------------------------ faults

    def _lost(self, event: WorkerLost, now: float) -> list[Command]:
        if self._workers[event.worker].status.is_down:
            return []
        blamed = not event.with_another
        return self._fault(event.worker, Happening.LOST, event.why, now, blamed=blamed)

    def _moved(self, event: WorkerMoved, now: float) -> list[Command]:
        """Start a worker anew at once. It is not to blame, and no restart of its own is used up."""
        k = event.worker
        if self._workers[k].status.is_down:
            return []  # it will be started elsewhere, or never
        note = Note(k, Happening.MOVED, event.why)
        taken_back = self._take_back(k, now)
        return [note, Kill(k), *taken_back, self._start(k, now)]

    def _failed(self, event: WorkerFailed, now: float) -> list[Command]:
        if self._workers[event.worker].status.is_down:
            return []
        self._failures.pop(event.worker, None)  # the new one is the last
        self._failures[event.worker] = event
        where = "" if event.shard is None else f" on shard {event.shard}"
        details = f"{event.kind}{where}: {event.message}\n{event.traceback}"
        if is_refusal(event.kind):  # it would be refused again
            note = Note(event.worker, Happening.FAILED, details)
            return [note, *self.coordinator.handle(DeadlinePassed())]
        return self._fault(event.worker, Happening.FAILED, details, now)

    def _fault(
        self, k: int, what: Happening, details: str, now: float, *, blamed: bool = True
    ) -> list[Command]:
        worker, limits = self._workers[k], self._limits
        if what in (Happening.FAILED, Happening.REFUSED):
            forgiven = worker.n_draws - worker.failed_at > limits.progress
            worker.failures = 1 if forgiven else worker.failures + 1
            worker.failed_at = worker.n_draws
        worker.losses += blamed
        commands: list[Command] = [Note(k, what, details), Kill(k)]
        if worker.losses > limits.restarts or worker.failures >= limits.failures:
            commands.append(Note(k, Happening.RETIRED, f"{what} too often"))
            worker.n_tasks = 0
            return [*commands, *self._retire(k, now)]
        delay = min(limits.first_delay * 2.0 ** (worker.losses - 1), limits.longest_delay)
        worker.status, worker.restart_at = Status.WAITING, now + delay
        return [*commands, *self._take_back(k, now)]

    def _take_back(self, k: int, now: float) -> list[Command]:
        """Forget what a worker was doing; idle workers may take it over."""
        worker = self._workers[k]
        worker.told.clear()
        worker.n_tasks = 0
        return self._ready(self.coordinator.take_back(k), now)

    def _retire(self, k: int, now: float) -> list[Command]:
        self._workers[k].status = Status.RETIRED
        return self._ready(self.coordinator.handle(WorkerLost(k), now), now)

    # ------------------------------------------------------------ time

    def is_due(self, now: float) -> bool:
        """Whether there may be something to do at a tick."""
        return now >= min(self._next_look, self.coordinator.next_wake(now))

    def _tick(self, now: float) -> list[Command]:
        commands: list[Command] = []
        slept = now - self._last_tick - _SLEEP
        self._last_tick = now
        if slept > 0:
            self._patience.forgive(slept)
        if now >= self._next_look:
            self._next_look = now + _SECONDS_BETWEEN_LOOKS
            commands += self._looked(now)
        return [*commands, *self._ready(self.coordinator.wake(now), now)]

    def _looked(self, now: float) -> list[Command]:
        """Restart workers whose pause is over, and replace those that seem dead or stuck."""
        commands: list[Command] = []
        for k, worker in enumerate(self._workers):
            if worker.status == Status.WAITING and now >= worker.restart_at:
                commands += [Note(k, Happening.RESTARTED, ""), self._start(k, now)]
            elif self._is_judged(k) and (why := self._patience.complaint(k, now)):
                commands += self._fault(k, Happening.SILENT, why, now)
        return commands

    def _is_judged(self, k: int) -> bool:
        """Whether a worker should be at work, for itself or for others."""
        worker = self._workers[k]
        return worker.is_judged or (worker.status == Status.WORKING and self._patience.is_needed(k))

    def _start(self, k: int, now: float) -> Start:
        worker = self._workers[k]
        worker.status = Status.STARTING
        worker.attempt += 1
        self._patience.started(k, now)
        return Start(k, worker.attempt)


def _chain(task: Task) -> Chain:
    return task.worker, task.shards, task.chain


def _not_finite(what: str, *arrays: NDArray[Any]) -> str:
    return "" if all(np.all(np.isfinite(array)) for array in arrays) else f"{what} are not finite"
