"""What becomes of workers that die, hang or lie.

Stands before the coordinator where workers are real, and is as pure: it is told events and the
time, and says commands. A slow worker is no fault, redundancy is there for it. One that is gone
is started again, after a pause that doubles, and goes on where its last block ended; one that has
been silent for many times what blocks take in this run is replaced; one whose code raises, or that
sends what cannot be draws, gets a few more chances. Then it is retired.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from numpy.typing import NDArray

from quorate.errors import is_our_own, named_shards
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.messages import (
    Block,
    Command,
    DeadlinePassed,
    Event,
    Keep,
    Kill,
    Note,
    Start,
    Task,
    Tick,
    WorkerFailed,
    WorkerJoined,
    WorkerLost,
)

_RECENT = 200  # gaps between blocks to judge by
Chain = tuple[int, tuple[int, ...], int]  # worker, shards, chain


@dataclass(frozen=True)
class Limits:
    """How much is put up with.

    Parameters
    ----------
    restarts
        Losses in a row, without a block in between, after which a worker is retired.
    failures
        Errors and bad blocks within `progress` draws after which it is.
    first_delay, longest_delay
        Seconds before a worker is started again: doubled from loss to loss.
    first_block, block
        Seconds of silence that are never too long, at the start and between blocks.
    multiple
        Silence beyond so many times the median of this run's workers is too long.
    own_multiple
        But not if it is below so many times what that worker needed once.
    """

    restarts: int = 5
    failures: int = 3
    progress: int = 100
    first_delay: float = 0.25
    longest_delay: float = 30.0
    first_block: float = 60.0
    block: float = 2.0
    multiple: float = 30.0
    own_multiple: float = 5.0


@dataclass
class _Worker:
    """What is known of one worker."""

    status: str = "starting"  # then working; waiting for a restart; retired
    attempt: int = 0
    since: float = 0.0  # its start, or when it was last heard of or given work
    n_tasks: int = 0
    n_draws: int = 0
    losses: int = 0
    failures: int = 0
    failed_at: int = 0  # draws it had sent by then
    longest: float = 0.0
    restart_at: float = 0.0
    told: set[Chain] = field(default_factory=set)  # chains that this attempt can go on with


class Supervisor:
    """Looks after the workers of one run.

    Attributes
    ----------
    failure
        The last error of a worker's code, if there was any.
    states
        Where each chain stands, by worker, shards and chain: all that is needed to go on.
    """

    def __init__(self, coordinator: Coordinator, dim: int, limits: Limits | None = None) -> None:
        self.coordinator = coordinator
        self._dim = dim
        self.failure: WorkerFailed | None = None
        self.states: dict[Chain, dict[str, NDArray[np.generic]]] = {}
        self._limits = limits or Limits()
        n_workers = coordinator.scheme.allocation.n_workers
        self._workers = [_Worker() for _ in range(n_workers)]
        self._reached: dict[Chain, int] = {}
        self._latest: dict[tuple[int, ...], dict[str, NDArray[np.generic]]] = {}  # by shards
        self._first_gaps: list[float] = []
        self._gaps: deque[float] = deque(maxlen=_RECENT)
        self._last_tick = 0.0

    @property
    def lost(self) -> frozenset[int]:
        """Workers that are gone now, for good or for a while."""
        gone = ("waiting", "retired")
        return frozenset(k for k, worker in enumerate(self._workers) if worker.status in gone)

    def status(self, worker: int) -> str:
        """Of a worker: starting, working, waiting or retired."""
        return self._workers[worker].status

    def begin(self, now: float) -> list[Command]:
        """What is to be done first."""
        for worker in self._workers:
            worker.since = now
        self._last_tick = now
        return [Start(k, 0) for k in range(len(self._workers))]

    def replay(self, block: Block) -> list[Command]:
        """Take in a block of an earlier sitting. Its tasks are nobody's, see `take_all_back`."""
        self._note(block)
        return [Keep(block), *self.coordinator.handle(block)]

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take one event in; say what is to be done."""
        if isinstance(event, Block):
            return self._received(event, now)
        if isinstance(event, WorkerJoined):
            return self._ready(self.coordinator.handle(event), now)
        if isinstance(event, WorkerLost):
            return self._lost(event, now)
        if isinstance(event, WorkerFailed):
            return self._failed(event, now)
        if isinstance(event, Tick):
            return self._tick(now)
        return self.coordinator.handle(DeadlinePassed())

    # ------------------------------------------------------------ blocks

    def _received(self, block: Block, now: float) -> list[Command]:
        known = self._workers[block.task.worker]
        if known.status in ("waiting", "retired"):
            return []  # a last word of one that was ended
        wrong = self._what_is_wrong(block)
        if wrong:
            return self._fault(block.task.worker, "refused", wrong, now)
        self._heard(known, now)
        known.n_draws += len(block.payload)
        task = block.task
        if block.first_draw + len(block.payload) == task.first_draw + task.n_draws:
            known.n_tasks -= 1
        self._note(block)
        commands = self._ready(self.coordinator.handle(block), now)
        return [Keep(block), *self._quarantine(now), *commands]

    def _what_is_wrong(self, block: Block) -> str:
        """Why a block cannot be taken; nothing if it can."""
        task, payload = block.task, block.payload
        end = task.first_draw + task.n_draws
        expected = self._reached.get(_chain(task), 0)
        if block.first_draw != expected or not 0 < len(payload) <= end - block.first_draw:
            return f"draws from {block.first_draw} came where {expected} was next"
        side = self.coordinator.scheme.worker_side
        shapes = side.payload_shapes(len(task.shards), self._dim)
        if payload.shape[1:] not in shapes:
            return f"draws have shape {payload.shape[1:]}, where it should be {list(shapes)[-1]}"
        arrays = [payload, *block.extras.values()]
        if not all(np.all(np.isfinite(array)) for array in arrays):
            return f"draws of {named_shards(task.shards)} are not finite"
        return ""

    def _note(self, block: Block) -> None:
        chain = _chain(block.task)
        self._reached[chain] = block.first_draw + len(block.payload)
        known = self.states.setdefault(chain, {})
        known.update(block.state)
        self._latest[block.task.shards] = known

    def _quarantine(self, now: float) -> list[Command]:
        """End workers that the scheme has found to send what is wrong."""
        found = self.coordinator.scheme.quarantined.items()
        commands: list[Command] = []
        for k, why in found:
            if self._workers[k].status != "retired":
                commands += [Note(k, "quarantined", why), Kill(k), *self._retire(k, now)]
        return commands

    def _heard(self, worker: _Worker, now: float) -> None:
        gap = now - worker.since
        if worker.status == "starting":
            self._first_gaps.append(gap)
        else:
            self._gaps.append(gap)
            worker.longest = max(worker.longest, gap)
        worker.status, worker.since, worker.losses = "working", now, 0

    def _ready(self, commands: list[Command], now: float) -> list[Command]:
        """Give tasks the states that their workers do not know."""
        return [self._with_start(c, now) if isinstance(c, Task) else c for c in commands]

    def _with_start(self, task: Task, now: float) -> Task:
        worker, chain = self._workers[task.worker], _chain(task)
        if not worker.n_tasks and worker.status == "working":
            worker.since = now
        worker.n_tasks += 1
        if chain in worker.told:
            return task
        worker.told.add(chain)
        start = self.states.get(chain, task.start)
        if start is None and not task.first_draw and self.coordinator.scheme.shares_starts:
            start = self._latest.get(task.shards)
        return task._replace(start=start)

    # ------------------------------------------------------------ faults

    def _lost(self, event: WorkerLost, now: float) -> list[Command]:
        if self._workers[event.worker].status in ("waiting", "retired"):
            return []
        return self._fault(event.worker, "lost", event.why, now)

    def _failed(self, event: WorkerFailed, now: float) -> list[Command]:
        self.failure = event
        where = "" if event.shard is None else f" on shard {event.shard}"
        details = f"{event.kind}{where}: {event.message}\n{event.traceback}"
        if is_our_own(event.kind):  # the model or its rows were refused: they will be again
            note = Note(event.worker, "failed", details)
            return [note, *self.coordinator.handle(DeadlinePassed())]
        return self._fault(event.worker, "failed", details, now)

    def _fault(self, k: int, what: str, details: str, now: float) -> list[Command]:
        worker, limits = self._workers[k], self._limits
        if what in ("failed", "refused"):
            forgiven = worker.n_draws - worker.failed_at > limits.progress
            worker.failures = 1 if forgiven else worker.failures + 1
            worker.failed_at = worker.n_draws
        worker.losses += 1
        worker.told.clear()
        worker.n_tasks = 0
        commands: list[Command] = [Note(k, what, details), Kill(k)]
        if worker.losses > limits.restarts or worker.failures >= limits.failures:
            commands.append(Note(k, "retired", f"{what} too often"))
            return [*commands, *self._retire(k, now)]
        delay = min(limits.first_delay * 2.0 ** (worker.losses - 1), limits.longest_delay)
        worker.status, worker.restart_at = "waiting", now + delay
        return [*commands, *self._ready(self.coordinator.take_back(k), now)]

    def _retire(self, k: int, now: float) -> list[Command]:
        self._workers[k].status = "retired"
        return self._ready(self.coordinator.handle(WorkerLost(k)), now)

    # ------------------------------------------------------------ time

    def _tick(self, now: float) -> list[Command]:
        commands: list[Command] = []
        self._forgive(now)
        for k, worker in enumerate(self._workers):
            if worker.status == "waiting" and now >= worker.restart_at:
                worker.status, worker.since = "starting", now
                worker.attempt += 1
                commands += [Note(k, "restarted", ""), Start(k, worker.attempt)]
            elif self._is_silent(worker, now):
                details = f"no word for {now - worker.since:.1f} s"
                commands += self._fault(k, "silent", details, now)
        return commands

    def _forgive(self, now: float) -> None:
        """Where we slept ourselves, workers may have as well."""
        slept = now - self._last_tick - self._limits.block / 2
        self._last_tick = now
        if slept > 0:
            for worker in self._workers:
                worker.since += slept

    def _is_silent(self, worker: _Worker, now: float) -> bool:
        limits, silence = self._limits, now - worker.since
        if worker.status == "starting":
            known = self._first_gaps
            return bool(known) and silence > max(
                limits.first_block, limits.multiple * median(known)
            )
        if worker.status != "working" or not worker.n_tasks or silence < limits.block:
            return False
        usual = median(self._gaps) if self._gaps else 0.0
        return silence > max(limits.multiple * usual, limits.own_multiple * worker.longest)


def _chain(task: Task) -> Chain:
    return task.worker, task.shards, task.chain
