"""How progress is shown: a table that stays in place on a terminal, a cell in a notebook, lines."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from quorate.protocol.messages import Note, Status
from quorate.results.html import element, joined
from quorate.run.progress import Listener, Phase, Progress, silence

_LINES_EVERY, _TABLE_EVERY = 5.0, 0.25  # seconds
_SHARE, _RAREST_LINES = 0.25, 60.0  # of the time so far, and seconds
_MANY = 100_000  # draws
_UNITS = {
    Phase.CUTTING: "rows",
    Phase.READING: "shards",
    Phase.STARTING: "workers",
    Phase.WARMING_UP: "workers",
    Phase.SURVEYING: "shards",
}


@contextmanager
def shown(progress: bool | Listener) -> Iterator[Listener]:
    """A listener for the end of `sample`'s option: a function, or what suits the surroundings."""
    if callable(progress):
        yield progress
    elif not progress:
        yield silence
    elif _in_notebook():
        yield NotebookCell()
    elif sys.stderr.isatty():
        with LiveTable() as listen:
            yield listen
    else:
        yield plain_lines()


class Every:
    """Passes progress on: whenever the phase changes, else at most once in so many seconds.

    With a `share`, also at most once in that share of the time so far, or in a minute.
    """

    def __init__(self, seconds: float, show: Listener, share: float = 0.0) -> None:
        self._seconds, self._share = seconds, share
        self._show = show
        self._next = 0.0
        self._phase: Phase | None = None

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now >= self._next or progress.phase is not self._phase:
            rarer = min(self._share * progress.seconds, _RAREST_LINES)
            self._next, self._phase = now + max(self._seconds, rarer), progress.phase
            self._show(progress)


def plain_lines(file: TextIO | None = None) -> Listener:
    """Report progress as lines: one every few seconds, and one for every event of a worker.

    Lines become rarer as a run lasts, so that its log stays short.
    The phases after the last draw have a line each if there are many draws: then they take long.
    """

    def write(line: str) -> None:
        print(line, file=file or sys.stderr, flush=True)

    def show(progress: Progress) -> None:
        if progress.draws >= _MANY or not progress.phase.is_after_the_last_draw:
            write(one_line(progress))

    some = Every(_LINES_EVERY, show, _SHARE)
    return _with_notes(some, lambda *note: write(note_line(*note)))


def json_lines(file: TextIO | None = None) -> Listener:
    """Report progress as JSON lines."""

    def write(fields: dict[str, Any]) -> None:
        print(json.dumps(fields), file=file or sys.stderr, flush=True)

    def tell(seconds: float, note: Note) -> None:
        write({"seconds": round(seconds, 3), **note._asdict()})

    return _with_notes(Every(_LINES_EVERY / 5, lambda progress: write(progress.as_json())), tell)


def _with_notes(show: Listener, tell: Callable[[float, Note], None]) -> Listener:
    """Tell each note once, before the progress that has it is shown."""
    n_told = 0

    def listen(progress: Progress) -> None:
        nonlocal n_told
        for seconds, note in progress.notes[n_told:]:
            tell(seconds, note)
        n_told = max(n_told, len(progress.notes))
        show(progress)

    return listen


# -------------------------------------------------------------------- words


def one_line(progress: Progress) -> str:
    """Time, phase, how far it is, and what is known of the draws, in one line."""
    known = [_of_phase(progress), *known_of_draws(progress)]
    return f"{progress.seconds:8.1f} s  {', '.join(known)}"


def _of_phase(progress: Progress) -> str:
    words = [str(progress.phase)]
    if progress.phase is Phase.FITTING:
        words.append(f"pass {progress.passes + 1}")
    elif progress.phase is Phase.DRAWING:
        words.append(f"{progress.draws:,} of {progress.target:,} draws")
    elif unit := _UNITS.get(progress.phase):
        of = "" if progress.total is None else f" of {progress.total:,}"
        words.append(f"{progress.done:,}{of} {unit}")
    elif progress.phase.is_after_the_last_draw:
        words.append(f"{progress.draws:,} draws")
    if progress.seconds_left is not None:
        words.append(f"about {progress.seconds_left:.0f} s left")
    return ", ".join(words)


def known_of_draws(progress: Progress) -> list[str]:
    """The smallest ESS, the largest R-hat, and divergences, as far as they are known."""
    health = progress.health
    known = [] if health.ess is None else [f"smallest ESS {health.ess:,.0f}"]
    if health.r_hat is not None:
        known.append(f"largest R-hat {health.r_hat:.2f}")
    if health.divergences:
        known.append(f"{health.divergences:,} divergences")
    return known


def note_line(seconds: float, note: Note) -> str:
    """When something happened, and what, with the first line of its details."""
    first = note.details.strip().splitlines()[:1]
    told = f"worker {note.worker} {note.what}" + (f": {first[0]}" if first else "")
    return f"{seconds:8.1f} s  {told}"


# -------------------------------------------------------------------- terminal


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
        self._live.update(picture(progress))


def picture(progress: Progress) -> Any:
    """What a terminal shows: workers, a bar, the phase, who is slow, and the latest events."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    done, total = progress.done, progress.total
    bar = ProgressBar(total, done, width=50, pulse=total is None)
    slow = [Text(progress.health.slow, style="yellow")] if progress.health.slow else []
    notes = [Text(note_line(*note), style="dim") for note in progress.notes[-4:]]
    is_cutting = progress.phase in (Phase.CUTTING, Phase.READING)
    workers = [] if is_cutting else [_worker_table(progress)]
    return Group(*workers, Padding(bar), Text(one_line(progress)), *slow, *notes)


def _worker_table(progress: Progress) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    sent = "points sent" if progress.passes else "draws sent"
    for column in ("worker", "shards", "status", "blocks", sent):
        table.add_column(column, justify="left" if column == "status" else "right")
    for number, worker in enumerate(progress.workers):
        held = ", ".join(map(str, worker.shards[:6])) + (", …" * (len(worker.shards) > 6))
        cells = (str(number), held, worker.status, str(worker.blocks), f"{worker.draws:,}")
        table.add_row(*cells, style=_STYLES.get(worker.status, ""))
    return table


_STYLES: dict[str, str] = {Status.WAITING: "yellow", Status.RETIRED: "red", Status.STARTING: "dim"}


# -------------------------------------------------------------------- notebook


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this, which shows HTML."""
    shell = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")


class NotebookCell:
    """A bar and a few lines in the output of a cell, which are updated in place."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._listen = Every(_TABLE_EVERY, self._show)

    def __call__(self, progress: Progress) -> None:
        self._listen(progress)

    def _show(self, progress: Progress) -> None:
        from IPython import display

        page = display.HTML(cell_html(progress))  # type: ignore[no-untyped-call]
        if self._handle is None:
            self._handle = display.display(page, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(page)


def cell_html(progress: Progress) -> str:
    """Progress as a small piece of HTML."""
    share = {} if not progress.total else {"value": f"{progress.done / progress.total:.3f}"}
    bar = {"value": "1"} if progress.phase.is_after_the_last_draw else share
    lines = [one_line(progress).strip(), progress.health.slow]
    lines += [note_line(*note).strip() for note in progress.notes[-4:]]
    words = [element("div", line) for line in lines if line]
    return element("div", element("progress", max="1", style="width:30em", **bar), joined(words))
