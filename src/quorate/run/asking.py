"""Tasks on single shards, before or after a run: workers are asked until all is answered."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from quorate._extras import require_installed
from quorate._types import Progress
from quorate.engines.drive import drive
from quorate.engines.options import EngineOptions
from quorate.engines.workers.worker import Job
from quorate.errors import QuorateError, WorkerFailedError, named_shards
from quorate.protocol.after import Answers, Question, ShardSchedule
from quorate.protocol.allocation import Allocation
from quorate.protocol.coordinator import WakingCoordinator
from quorate.protocol.messages import Command
from quorate.protocol.patience import Limits
from quorate.protocol.supervisor import Supervisor


def ask_workers(
    engine: EngineOptions,
    job: Job,
    allocation: Allocation,
    question: Question,
    answers: Answers,
    logs: Path,
    progress: Progress | None = None,
) -> None:
    """Ask until `answers` has taken the answers to all pieces of the question.

    It survives what a run survives: workers that are slow, die or lie.
    """
    require_installed(engine.needs)
    schedule = ShardSchedule(allocation, question, answers)
    coordinator = WakingCoordinator(schedule, schedule.n_pieces)
    supervisor = Supervisor(coordinator, limits=Limits(restarts=engine.restarts))
    with (
        _writable(logs) as there,
        engine.start(job, allocation, there, {}, 0.0) as started,
    ):
        for _ in drive(supervisor, started, _forget, _never):
            if progress is not None:
                progress(schedule.n_complete, schedule.n_pieces)
    if schedule.n_complete < schedule.n_pieces:
        raise _incomplete(supervisor)


@contextmanager
def _writable(logs: Path) -> Iterator[Path]:
    """The folder for logs; where nobody may write, one that is removed in the end."""
    try:
        logs.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=logs):
            is_ours = all(os.access(path, os.W_OK) for path in logs.iterdir())
    except OSError:
        is_ours = False
    if is_ours:
        yield logs
        return
    with TemporaryDirectory(prefix="quorate-logs-") as elsewhere:
        yield Path(elsewhere)


def _incomplete(supervisor: Supervisor) -> QuorateError:
    """Why not all that was asked for is there."""
    failure, coordinator = supervisor.failure, supervisor.coordinator
    if failure is not None:
        return WorkerFailedError(*failure)
    lost = coordinator.scheme.allocation.shards_without_holder(coordinator.lost)
    return QuorateError(
        f"All workers that hold {named_shards(lost)} were lost. Call it again when the machines "
        "are back, or with another `engine` or more `workers`."
    )


def _forget(now: float, commands: list[Command]) -> None:
    """Keep nothing: the journal holds only the run itself."""


def _never(now: float) -> bool:
    """Whether to stop early: only Ctrl-C does, which raises."""
    return False
