"""What a process is doing and since when, for the signs of life that it sends.

User code runs in named steps. Another thread can look at any time. It sees the step under way, and
the longest time that a finished step of each kind has taken.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from quorate._types import Array
from quorate.models.subposterior import Target
from quorate.protocol.messages import Doing

Begun = tuple[str, str, float]  # the step that was interrupted, the new one, and when
_SLICE = 1.0  # seconds of a delay put in on purpose that count as one step


class Pulse:
    """The steps of one process."""

    def __init__(self) -> None:
        self._now = "", time.monotonic()  # the step under way, and when it was last entered
        self._longest: dict[str, float] = {}

    @contextmanager
    def doing(self, step: str) -> Iterator[None]:
        """Do one step. It may interrupt another."""
        begun = self.begin(step)
        try:
            yield
        finally:
            self.end(begun)

    def begin(self, step: str) -> Begun:
        """Begin a step; pass the result to `end`. For steps of microseconds."""
        begun = self._now[0], step, time.monotonic()
        self._now = begun[1:]
        return begun

    def end(self, begun: Begun) -> None:
        """End a step, and return to the one that it interrupted."""
        outer, step, began = begun
        now = time.monotonic()
        if now - began > self._longest.get(step, -1.0):
            self._longest[step] = now - began
        self._now = outer, now

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
        begun = self.pulse.begin("log_density")
        try:
            return super().log_density(x)
        finally:
            self.pulse.end(begun)

    def log_density_and_gradient(self, x: Array) -> tuple[float, Array]:
        begun = self.pulse.begin("log_density_and_gradient")
        try:
            return super().log_density_and_gradient(x)
        finally:
            self.pulse.end(begun)
