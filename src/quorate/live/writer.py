"""The process that writes the journal of a run, and how to ask it to end."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from quorate.journal import lock as journal_lock

_PROCESSES = Path("/proc")


def can_know_writers() -> bool:
    """Whether this system shows which files a process has open, as Linux does."""
    return (_PROCESSES / "self" / "fd").is_dir()


def writer(folder: Path) -> int | None:
    """The process that writes the journal and has its lock open; None if nobody writes it.

    The lock is not tried: that could stop a process that is about to take it.
    """
    lock = folder / journal_lock.NAME
    with suppress(OSError, ValueError):
        pid = journal_lock.holder(lock.read_bytes())
        for descriptor in (_PROCESSES / str(pid) / "fd").iterdir():
            with suppress(OSError):  # it has just been closed
                if descriptor.samefile(lock):
                    return pid
    return None


class Interrupter:
    """Sends Ctrl-C to the process that writes a journal; only once, as a second kills the run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asked: int | None = None

    def interrupt(self) -> bool:
        """Ask the process to end; returns whether there is one."""
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
        process = os.pidfd_open(pid)  # the number cannot be reused from here on
        try:
            if writer(self._folder) != pid:
                raise ProcessLookupError
            signal.pidfd_send_signal(process, signal.SIGINT)
        finally:
            os.close(process)
