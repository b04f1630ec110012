"""Where the command line writes, how it shows that it is at work, and how it warns."""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from quorate.errors import QuorateWarning

out = Console()
err = Console(stderr=True)
_PATIENCE = 2.0  # seconds before a progress bar shows


class Patience:
    """A progress bar that shows itself only when one has waited for a while."""

    def __init__(self, label: str, seconds: float = _PATIENCE) -> None:
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=err,
            transient=True,
        )
        self._task = self.bar.add_task(label, total=None)
        self.timer = threading.Timer(seconds, self.bar.start)
        self.timer.daemon = True

    def __enter__(self) -> "Patience":
        self.timer.start()
        return self

    def report(self, done: int, total: int) -> None:
        """Say how far things are."""
        self.bar.update(self._task, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        self.timer.cancel()
        self.timer.join()
        if self.bar.live.is_started:  # else it would print an empty line
            self.bar.stop()


@contextmanager
def warnings_in_words() -> Iterator[None]:
    """Show warnings without a path and a line of source: each once, and all again at the end."""
    told: dict[str, None] = {}

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, QuorateWarning):
            others(message, category, *where, **more)
        elif str(message) not in told:
            told[str(message)] = None
            _warn(str(message))

    with warnings.catch_warnings():
        others = warnings.showwarning
        warnings.simplefilter("always", QuorateWarning)
        warnings.showwarning = show
        yield
    if told:
        err.print("\nTo remember:")
        for message in told:
            _warn(message)


def _warn(message: str) -> None:
    err.print(f"Warning: {message}", soft_wrap=True, markup=False, highlight=False)
