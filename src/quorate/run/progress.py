"""Progress of a run: a table that stays in place on a terminal, lines elsewhere."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TextIO

from quorate.protocol.messages import Note

_LINES_EVERY, _TABLE_EVERY = 5.0, 0.25  # seconds
_MANY = 100_000  # draws


class Stage(StrEnum):
    """What is done after the last draw."""

    GATHERING = "gathering"
    SUMMARISING = "summarising"
    SAVING = "saving"
    CHECKING = "checking"


@dataclass(frozen=True)
class WorkerProgress:
    """Progress of one worker: its status, its shards, and the blocks and draws it has sent.

    `pid` is the id of its process, if that is on this machine.
    """

    status: str
    shards: tuple[int, ...]
    blocks: int
    draws: int
    pid: int | None = None


@dataclass(frozen=True)
class Progress:
    """Progress of a run.

    Parameters
    ----------
    seconds
        Since it began.
    draws, target
        Global draws that are complete, and those that were asked for.
    speed
        Global draws a second since the first one of this sitting.
    workers
        Progress of each worker.
    notes
        What happened to workers, and when.
    phase, passes
        What an exact run does, such as "fitting", and its passes so far; an empty string and 0 for
        a merge. After the last draw also "gathering", "summarising", "saving" or "checking".
    """

    seconds: float
    draws: int
    target: int
    speed: float
    workers: tuple[WorkerProgress, ...]
    notes: tuple[tuple[float, Note], ...]
    phase: str = ""
    passes: int = 0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the last draw, at the speed so far."""
        return (self.target - self.draws) / self.speed if self.speed else None

    def as_json(self) -> dict[str, Any]:
        """The progress as JSON values."""
        exact = {"phase": self.phase, "passes": self.passes} if self.phase else {}
        return {
            "seconds": round(self.seconds, 3),
            **exact,
            "draws": self.draws,
            "target": self.target,
            "seconds_left": self.seconds_left,
            "workers": [vars(worker) for worker in self.workers],
        }


Listener = Callable[[Progress], None]


def silence(progress: Progress) -> None:
    """Show nothing."""


class Stages:
    """Tells a listener what is done after the last draw; `last` is the progress until then."""

    def __init__(self) -> None:
        self.listen: Listener = silence
        self.last: Progress | None = None

    def tell(self, stage: Stage) -> None:
        """Say what begins now."""
        if self.last is not None:
            self.listen(replace(self.last, phase=stage))


class Every:
    """Passes progress on, at most once in so many seconds."""

    def __init__(self, seconds: float, show: Listener) -> None:
        self._seconds = seconds
        self._show = show
        self._next = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        is_over = progress.draws >= progress.target or isinstance(progress.phase, Stage)
        if now >= self._next or is_over:
            self._next = now + self._seconds
            self._show(progress)


def plain_lines(file: TextIO | None = None) -> Listener:
    """Report progress as lines: one every few seconds, and one for every event of a worker.

    The stages after the last draw have a line each if there are many draws: then they take long.
    """
    n_told = 0

    def show(progress: Progress) -> None:
        if progress.draws >= _MANY or not isinstance(progress.phase, Stage):
            print(one_line(progress), file=file or sys.stderr, flush=True)

    lines = Every(_LINES_EVERY, show)

    def listen(progress: Progress) -> None:
        nonlocal n_told
        for seconds, note in progress.notes[n_told:]:
            print(f"{seconds:8.1f} s  {told(note)}", file=file or sys.stderr)
        n_told = len(progress.notes)
        lines(progress)

    return listen


def json_lines(file: TextIO | None = None) -> Listener:
    """Report progress as JSON lines."""
    n_told = 0

    def write(fields: dict[str, Any]) -> None:
        print(json.dumps(fields), file=file or sys.stderr, flush=True)

    lines = Every(_LINES_EVERY / 5, lambda progress: write(progress.as_json()))

    def listen(progress: Progress) -> None:
        nonlocal n_told
        for seconds, note in progress.notes[n_told:]:
            write({"seconds": round(seconds, 3), **note._asdict()})
        n_told = len(progress.notes)
        lines(progress)

    return listen


def one_line(progress: Progress) -> str:
    """Draws so far and time left, in one line; of an exact run also what it does."""
    line = f"{progress.seconds:8.1f} s  "
    if isinstance(progress.phase, Stage):
        return f"{line}{progress.phase} {progress.draws:,} draws"
    if progress.phase:
        passes = "1 pass" if progress.passes == 1 else f"{progress.passes:,} passes"
        line += f"{progress.phase}, {passes}, "
    line += f"{progress.draws:,} of {progress.target:,} draws"
    left = progress.seconds_left
    return line if left is None else f"{line}, about {left:.0f} s left"


def told(note: Note) -> str:
    """A note in words, with the first line of its details."""
    first = note.details.strip().splitlines()[:1]
    return f"worker {note.worker} {note.what}" + (f": {first[0]}" if first else "")


class LiveTable:
    """A table of all workers that stays in place during the run. Use it in a `with`."""

    def __init__(self, console: Any = None) -> None:
        from rich.console import Console
        from rich.live import Live

        console = console or Console(stderr=True)
        self._live = Live(console=console, transient=True, refresh_per_second=4)
        self._listen = Every(_TABLE_EVERY, self._show)

    def __enter__(self) -> Listener:
        self._live.start()
        return self._listen

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _show(self, progress: Progress) -> None:
        from rich.console import Group
        from rich.padding import Padding
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        sent = "points sent" if progress.passes else "draws sent"
        for column in ("worker", "shards", "status", "blocks", sent):
            table.add_column(column, justify="left" if column == "status" else "right")
        for number, worker in enumerate(progress.workers):
            held = ", ".join(map(str, worker.shards[:6])) + (", …" * (len(worker.shards) > 6))
            style = _STYLES.get(worker.status, "")
            table.add_row(
                str(number), held, worker.status, str(worker.blocks), f"{worker.draws:,}",
                style=style,
            )  # fmt: skip
        bar = Padding(ProgressBar(total=progress.target, completed=progress.draws, width=50))
        notes = [Text(f"{s:8.1f} s  {told(note)}", style="dim") for s, note in progress.notes[-4:]]
        self._live.update(Group(table, bar, Text(one_line(progress)), *notes))


_STYLES = {"waiting": "yellow", "retired": "red", "starting": "dim"}
