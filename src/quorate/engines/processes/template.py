"""Starts worker processes: forks of a template that has imported everything, or new interpreters.

An interpreter takes the better part of a second to import what workers need. The template does that
once in a run and then forks a worker for each request, in milliseconds; see `template_server`. A
template that was killed is replaced by a new one.
Requests carry the files of the new worker over a Unix socket. Each has a socket of its own for the
answers: first the id of the worker, with a descriptor that stands for the process, and its exit
code when it has ended.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from quorate.engines.processes.subreaper import children
from quorate.engines.processes.template_server import WORD, Files, received
from quorate.engines.workers.service import environment

_END_WITH_PARENT = """
import ctypes
try:  # Linux kills us when our parent dies: a stopped process would not see its input end
    ctypes.CDLL(None).prctl(1, 9)
except (OSError, AttributeError):
    pass
"""
_TEMPLATE = """
from quorate.engines.processes.template_server import serve
serve({control})  # returns in every worker
"""
_WORKER = """
from quorate.engines.processes.worker_process import main
main()
"""
_PATIENCE = 5.0  # seconds for a process that was killed to end


class Child(Protocol):
    """A worker process."""

    @property
    def pid(self) -> int: ...

    def kill(self) -> None:
        """End the process at once, unless it has ended, with all processes of its group."""

    def wait(self) -> int:
        """Exit code of the process, once it has ended; negative for a signal."""


def new_interpreter(files: Files, program: str = "", *more: int) -> "subprocess.Popen[bytes]":
    """Start a worker as an interpreter of its own, with `program` before it serves."""
    return subprocess.Popen(  # noqa: S603 - our own interpreter, our own words
        [sys.executable, "-c", _END_WITH_PARENT + program + _WORKER],
        stdin=files.stdin,
        stdout=files.stdout,
        stderr=files.stderr,
        env={**os.environ, **environment()},
        pass_fds=more,
        start_new_session=True,
    )


class Interpreter:
    """A worker that is an interpreter of its own."""

    def __init__(self, files: Files) -> None:
        self._process = new_interpreter(files)
        self.pid = self._process.pid

    def kill(self) -> None:
        """End the process at once, unless it has ended, with all processes of its group."""
        if self._process.returncode is None:  # so its number is still its own
            _kill_group(self.pid)

    def wait(self) -> int:
        """Exit code of the process, once it has ended; negative for a signal."""
        return self._process.wait()


def template_for(log: Path) -> "Template | None":
    """A new template, or None where processes cannot be forked safely."""
    if sys.platform != "linux":
        return None
    try:
        return Template(log)
    except OSError:
        return None


class Template:
    """A process that forks workers.

    Parameters
    ----------
    log
        File for what it has to say if it cannot start.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._has_forked = False  # this one, or one that it replaces
        self._has_refused = False
        self._start()

    def _start(self) -> None:
        self._control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with control, self._log.open("ab") as stderr:
            files = Files(subprocess.DEVNULL, subprocess.DEVNULL, stderr.fileno())
            program = _TEMPLATE.format(control=control.fileno())
            self._guard = new_interpreter(files, program, control.fileno())

    @property
    def pid(self) -> int:
        """Id of its process; of its guard, as long as there is only the guard."""
        with suppress(OSError):
            return next(iter(children(self._guard.pid)), self._guard.pid)
        return self._guard.pid

    def fork(self, files: Files) -> "Forked | None":
        """Fork a worker, as soon as all imports are done; None if the template is gone."""
        status, its_status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with its_status:
                socket.send_fds(self._control, [b"fork"], [*files, its_status.fileno()])
            word, descriptors = received(status, 1)
            if descriptors:
                self._has_forked = True
                return Forked(int(word), descriptors[0], status)
        except OSError:  # nobody reads, or too many descriptors are under way
            pass
        status.close()
        self._guard.poll()  # leave no zombie
        return None

    def is_replaced(self) -> bool:
        """Start a new one if this one was killed; whether that was done.

        One that has refused to fork, since that would not be safe here, would do so again.
        """
        if self._has_refused:
            return False
        look = select.poll()
        look.register(self._control, 0)  # tells when nobody is at the other end
        if not look.poll(0):
            return False
        with suppress(subprocess.TimeoutExpired):
            self._has_refused = self._guard.wait(_PATIENCE) > 0  # it was no signal
        if self._has_refused:
            return False
        self.close()
        self._start()
        return True

    def kill(self) -> None:
        """End the template at once, and with it all its workers."""
        self._guard.kill()

    def close(self) -> None:
        """End it, after its workers and all that they have started."""
        self._control.close()
        if self._has_forked and self._guard.poll() is None:
            self._guard.send_signal(signal.SIGCONT)  # one of the two may be stopped
            with suppress(subprocess.TimeoutExpired):
                self._guard.wait(_PATIENCE)
        self._guard.kill()
        with suppress(subprocess.TimeoutExpired):
            self._guard.wait(_PATIENCE)


class Forked:
    """A worker that a template has forked."""

    def __init__(self, pid: int, descriptor: int, status: socket.socket) -> None:
        self.pid = pid
        self._descriptor: int | None = descriptor  # stands for this process, not for its number
        self._status = status
        self._lock = threading.Lock()

    def kill(self) -> None:
        """End the process at once, unless it has ended, with all processes of its group."""
        with self._lock, suppress(ProcessLookupError):
            if self._descriptor is not None:
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
                _kill_group(self.pid)

    def wait(self) -> int:
        """Exit code of the process, once it has ended; negative for a signal.

        A worker ends with its template: by signal 9, which is also what it gets from `kill`.
        """
        with self._status:
            self._status.settimeout(_PATIENCE)
            try:
                word = self._status.recv(WORD)
            except OSError:  # the template hangs, or it ended with answers unread
                word = b""
        if not word:
            _kill_group(self.pid)  # which the template does otherwise
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor = None
        return int(word or -signal.SIGKILL)


def _kill_group(leader: int) -> None:
    """End a group of processes: a worker, and those that its user code has started."""
    with suppress(OSError):
        os.killpg(leader, signal.SIGKILL)
