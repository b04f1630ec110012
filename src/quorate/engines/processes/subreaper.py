"""Ends processes that have lost their parent: on Linux a subreaper gets those below it."""

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path

_SIGNAL_AT_END_OF_PARENT, _SUBREAPER = 1, 36  # names of Linux: PR_SET_PDEATHSIG, …


def become_subreaper() -> None:
    """Get every process below us that loses its parent, also one in a session of its own."""
    _control_process(_SUBREAPER, 1)


def signal_at_end_of_parent(number: int) -> None:
    """Have the kernel send us a signal when our parent ends."""
    _control_process(_SIGNAL_AT_END_OF_PARENT, number)


def children(parent: int | None = None) -> list[int]:
    """Children of a process, ours by default, which nobody has waited for yet."""
    parent = parent or os.getpid()
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def end_all_below() -> None:
    """End every process below us, which must be a subreaper, and wait until none is left."""
    with suppress(ChildProcessError):  # none is left
        while True:
            for pid in children():
                os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def _control_process(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value)
