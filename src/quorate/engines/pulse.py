"""What a process is doing and since when, for the signs of life that it sends.

User code runs in named steps. Whoever looks from another thread sees the step under way, and how
long finished steps of every kind have taken at most.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from quorate._types import Array
from quorate.models.subposterior import Target
from quorate.protocol.messages import Doing

_SLICE = 1.0  # seconds of a delay put in on purpose that count as one step


class Pulse:
    """The steps of one process."""

    def __init__(self) -> None:
        self._now = "", time.monotonic()  # the step under way, and when it was last entered
        self._longest: dict[str, float] = {}

    @contextmanager
    def doing(self, step: str) -> Iterator[None]:
        """Do one step. It may interrupt another."""
        outer, _ = self._now
        began = time.monotonic()
        self._now = step, began
        try:
            yield
        finally:
            ended = time.monotonic()
            self._longest[step] = max(ended - began, self._longest.get(step, 0.0))
            self._now = outer, ended

    def wait(self, seconds: float) -> None:
        """Sleep, in place of work that takes so long: slow work is many steps, not one."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            with self.doing("delay"):
                time.sleep(min(left, _SLICE))

    def look(self) -> Doing:
        """What the process is doing now. Any thread may ask."""
        step, since = self._now
        return Doing(step, time.monotonic() - since, dict(self._longest))


@dataclass(frozen=True)
class WatchedTarget(Target):
    """A subposterior of which every evaluation is a step of the process."""

    pulse: Pulse

    def log_density(self, x: Array) -> float:
        with self.pulse.doing("log_density"):
            return super().log_density(x)

    def log_density_and_gradient(self, x: Array) -> tuple[float, Array]:
        with self.pulse.doing("log_density_and_gradient"):
            return super().log_density_and_gradient(x)
