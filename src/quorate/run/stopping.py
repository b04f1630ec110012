"""When a run ends before its last draw, and why."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from quorate.errors import require

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LEAST_WAIT = 0.1  # seconds between two looks at the effective number of draws
_LOOKING = 0.1  # share of the time that may be spent on these looks

DONE, ENOUGH = "done", "enough effective draws"  # all that was asked for
TIME_IS_UP, INTERRUPTED, WORKERS_LOST = "time is up", "interrupted", "workers lost"
DISK_LOST = "the disk failed"  # or is full, or the run's folder was removed


@dataclass(frozen=True)
class Until:
    """When to stop before the last draw.

    Parameters
    ----------
    time
        Stop after this many seconds.
    ess
        Stop when every parameter has this many effective draws.
    """

    time: float | None = None
    ess: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("time", self.time), ("ess", self.ess)):
            require(value is None or value > 0, f"until: {name} must be above 0, not {value}.")


class Stopping:
    """Decides when a sitting stops, by its limits and by signals."""

    def __init__(self, until: Until) -> None:
        self._max_time = until.time
        self._target_ess = until.ess
        self._next_look = _LEAST_WAIT
        self.reason: str | None = None
        self._at_once = False

    def began_at(self, seconds: float) -> None:
        """Start counting after `seconds`, which earlier sittings took."""
        self._next_look += seconds
        if self._max_time is not None:
            self._max_time += seconds

    def asked(self, now: float, ess: Callable[[], float]) -> bool:
        """Whether to stop now; `ess` computes the least effective number of draws."""
        if self._max_time is not None and now > self._max_time:
            self.reason = TIME_IS_UP
        elif self._target_ess is not None and now > self._next_look:
            start = time.perf_counter()
            if ess() >= self._target_ess:
                self.reason = ENOUGH
            took = time.perf_counter() - start
            self._next_look = now + max(_LEAST_WAIT, took / _LOOKING)
        return self.reason is not None

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Let Ctrl-C or SIGTERM end the run with the draws so far; a second one ends it at once."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread hears signals
            return
        before = {number: signal.signal(number, self._hear) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """While there is nothing left to draw: let the first signal raise `KeyboardInterrupt`.

        All draws are in the journal then, and the run can be resumed.
        """
        before, self._at_once = self._at_once, True
        try:
            yield
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                "Interrupted after the last draw. All draws are in the journal: resume the run to "
                "get its result."
            ) from None
        finally:
            self._at_once = before

    def _hear(self, number: int, frame: object) -> None:
        if self.reason == INTERRUPTED or self._at_once:
            raise KeyboardInterrupt
        self.reason = INTERRUPTED
