"""Who writes the journal of a run, and how it is asked to end."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from quorate.journal import file as journal_file

_PROCESSES = Path("/proc")


def can_know_writers() -> bool:
    """Whether processes can be looked into here, as on Linux."""
    return (_PROCESSES / "self" / "fd").is_dir()


def writer(folder: Path) -> int | None:
    """The process that says it writes the journal, and has its lock open; None if there is none.

    The lock itself is not tried: that might be in the way of who is about to take it.
    """
    lock = folder / journal_file.LOCK_NAME
    with suppress(OSError, ValueError):
        pid = int(lock.read_bytes()[:20])
        for descriptor in (_PROCESSES / str(pid) / "fd").iterdir():
            with suppress(OSError):  # it has just been closed
                if descriptor.samefile(lock):
                    return pid
    return None


class Interrupter:
    """Does to the process that writes a journal what Ctrl-C does; once, for a second is harsh."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asked: int | None = None

    def interrupt(self) -> bool:
        """Ask it to end; whether there is anybody to ask."""
        pid = writer(self._folder)
        if pid is None:
            return False
        if pid != self._asked:
            try:
                self._signal(pid)
            except OSError:
                return False
            self._asked = pid
        return True

    def _signal(self, pid: int) -> None:
        process = os.pidfd_open(pid)  # from here on the number is nobody else's
        try:
            if writer(self._folder) != pid:
                raise ProcessLookupError
            signal.pidfd_send_signal(process, signal.SIGINT)
        finally:
            os.close(process)
