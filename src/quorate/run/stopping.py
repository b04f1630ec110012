"""When a run is to end before its last draw, and why it was."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SECONDS_BETWEEN_LOOKS = 1.0  # at the effective number of draws, which costs some work

DONE, ENOUGH = "done", "enough effective draws"  # all that was asked for
TIME_IS_UP, INTERRUPTED, WORKERS_LOST = "time is up", "interrupted", "workers lost"


class Stopping:
    """Says when to stop.

    Parameters
    ----------
    max_time
        Seconds.
    target_ess
        Effective draws that are enough.
    """

    def __init__(self, max_time: float | None, target_ess: float | None) -> None:
        self._max_time = max_time
        self._target_ess = target_ess
        self._next_look = _SECONDS_BETWEEN_LOOKS
        self.reason: str | None = None

    def began_at(self, seconds: float) -> None:
        """Earlier sittings took so long already: the time given is for this one."""
        self._next_look += seconds
        if self._max_time is not None:
            self._max_time += seconds

    def asked(self, now: float, ess: Callable[[], float]) -> bool:
        """Whether it is time; `ess` says how many effective draws there are."""
        if self._max_time is not None and now > self._max_time:
            self.reason = TIME_IS_UP
        elif self._target_ess is not None and now > self._next_look:
            self._next_look = now + _SECONDS_BETWEEN_LOOKS
            if ess() >= self._target_ess:
                self.reason = ENOUGH
        return self.reason is not None

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Ctrl-C, or SIGTERM, ends the run with what there is; a second one at once."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread hears signals
            return
        before = {number: signal.signal(number, self._hear) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, frame: object) -> None:
        if self.reason == INTERRUPTED:
            raise KeyboardInterrupt
        self.reason = INTERRUPTED
