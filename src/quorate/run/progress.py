"""Progress of a run: which phase it is in, how far that is, and what is known of its draws."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from quorate.protocol.messages import Note


class Phase(StrEnum):
    """What a run does, from the first row to the last file."""

    CUTTING = "cutting rows"
    READING = "reading rows in place"
    STARTING = "starting workers"
    COMPILING = "compiling"
    WARMING_UP = "warming up"
    SURVEYING = "surveying shards"
    FITTING = "fitting"
    WEIGHING = "weighing"
    DRAWING = "drawing"
    DONE = "done"
    GATHERING = "gathering"
    SUMMARISING = "summarising"
    SAVING = "saving"
    CHECKING = "checking"

    @property
    def is_after_the_last_draw(self) -> bool:
        """Whether all draws are there."""
        return self in (self.DONE, self.GATHERING, self.SUMMARISING, self.SAVING, self.CHECKING)


@dataclass(frozen=True)
class WorkerProgress:
    """Progress of one worker: its status, its shards, and the blocks and draws it has sent.

    `pid` is the id of its process, if that is on this machine.
    """

    status: str  # a `Status`; "not started" while rows are cut
    shards: tuple[int, ...]
    blocks: int
    draws: int
    pid: int | None = None


@dataclass(frozen=True)
class Health:
    """What is known of the draws so far.

    Parameters
    ----------
    ess, r_hat
        The smallest effective number of draws and the largest R-hat; None as long as there are too
        few draws.
    divergences
        Of the samplers of shards.
    slow
        A sentence about the slowest worker; empty if no worker is slow.
    """

    ess: float | None = None
    r_hat: float | None = None
    divergences: int = 0
    slow: str = ""


@dataclass(frozen=True)
class Progress:
    """Progress of a run.

    Parameters
    ----------
    seconds
        Since it began.
    draws, target
        Global draws that are complete, and those that were asked for.
    phase
        What it does.
    done, total
        How far the phase is: rows, workers, shards, draws, or steps of chains. `total` is None
        where nobody can tell.
    seconds_left
        Of the phase, at its speed so far; None if that is not known yet.
    passes
        Passes over the posterior, of an exact run.
    workers
        Progress of each worker.
    notes
        What happened to workers, and when.
    health
        What is known of the draws.
    """

    seconds: float
    draws: int
    target: int
    phase: Phase
    done: int = 0
    total: int | None = None
    seconds_left: float | None = None
    passes: int = 0
    workers: tuple[WorkerProgress, ...] = ()
    notes: tuple[tuple[float, Note], ...] = ()
    health: Health = Health()

    def as_json(self) -> dict[str, Any]:
        """The progress as JSON values."""
        return {
            "seconds": round(self.seconds, 3),
            "phase": self.phase,
            "done": self.done,
            "total": self.total,
            "seconds_left": self.seconds_left,
            "passes": self.passes,
            "draws": self.draws,
            "target": self.target,
            **asdict(self.health),
            "workers": [vars(worker) for worker in self.workers],
        }


Listener = Callable[[Progress], None]


def silence(progress: Progress) -> None:
    """Show nothing."""


class Pace:
    """How long a phase will still take, at its speed so far."""

    def __init__(self) -> None:
        self._phase: Phase | None = None
        self._began, self._first = 0.0, 0

    def seconds_left(self, now: float, phase: Phase, done: int, total: int | None) -> float | None:
        """None as long as nothing was done, or if nobody knows how much there is to do."""
        if phase is not self._phase:
            self._phase, self._began, self._first = phase, now, done
        made = done - self._first
        return None if total is None or made <= 0 else (total - done) * (now - self._began) / made


def cutting(
    n_workers: int, target: int, listen: Listener, *, in_place: bool
) -> Callable[[int, int], None]:
    """Tells a listener how many rows are cut, or how many shards are read in place."""
    phase = Phase.READING if in_place else Phase.CUTTING
    start, pace = time.monotonic(), Pace()
    workers = (WorkerProgress("not started", (), 0, 0),) * n_workers

    def tell(done: int, total: int) -> None:
        now = time.monotonic() - start
        left = pace.seconds_left(now, phase, done, total)
        listen(Progress(now, 0, target, phase, done, total, left, workers=workers))

    return tell


class Stages:
    """Tells a listener what is done after the last draw; `last` is the progress until then."""

    def __init__(self) -> None:
        self.listen: Listener = silence
        self.last: Progress | None = None

    def tell(self, phase: Phase) -> None:
        """Say what begins now."""
        if self.last is not None:
            self.listen(replace(self.last, phase=phase, done=0, total=None, seconds_left=None))
