"""Where the command line writes, and how it shows that it is at work."""

import threading

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

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
        self.bar.stop()
