"""Starts worker processes: forks of a template that has imported everything, or new interpreters.

An interpreter takes the better part of a second to import what workers need. The template does that
once in a run and then forks a worker for each request, in milliseconds. It never runs user code and
never starts a thread, and does not import JAX, so forks of it are safe. Requests carry the files of
the new worker over a Unix socket. Each has a socket of its own for the answers: first the id of
the worker, with a descriptor that stands for the process, and its exit code when it has ended.
"""

import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from quorate.engines.service import environment

_END_WITH_PARENT = """
import ctypes
def end_with_parent():
    try:  # Linux kills us when our parent dies: a stopped process would not see its input end
        ctypes.CDLL(None).prctl(1, 9)
    except (OSError, AttributeError):
        pass
end_with_parent()
"""
_TEMPLATE = """
from quorate.engines.template import serve
serve({control}, end_with_parent)  # returns in every worker
"""
_WORKER = """
from quorate.engines.service import main
main()
"""
_LATER = ("cloudpickle", "scipy.optimize")  # which quorate imports where it needs them
_PATIENCE = 5.0  # seconds for the exit code of a process that was killed
_WORD = 32  # bytes, more than a pid or an exit code takes


class Files(NamedTuple):
    """Descriptors that a worker has as standard input, output and error."""

    stdin: int
    stdout: int
    stderr: int


class Child(Protocol):
    """A worker process."""

    @property
    def pid(self) -> int: ...

    def kill(self) -> None:
        """End it at once, if it has not ended."""

    def wait(self) -> int:
        """Its exit code, once it has ended; negative for a signal."""


# ---------------------------------------------------------------- at the coordinator


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
        self._control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with control, log.open("ab") as stderr:
            files = Files(subprocess.DEVNULL, subprocess.DEVNULL, stderr.fileno())
            program = _TEMPLATE.format(control=control.fileno())
            self._process = new_interpreter(files, program, control.fileno())

    @property
    def pid(self) -> int:
        """Id of its process."""
        return self._process.pid

    def fork(self, files: Files) -> "Forked | None":
        """Fork a worker, as soon as all imports are done; None if the template is gone."""
        status, its_status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with its_status:
                socket.send_fds(self._control, [b"fork"], [*files, its_status.fileno()])
            word, descriptors = _received(status, 1)
            if descriptors:
                return Forked(int(word), descriptors[0], status)
        except OSError:  # nobody reads, or too many descriptors are under way
            pass
        status.close()
        self._process.poll()  # leave no zombie
        return None

    def kill(self) -> None:
        """End it at once, and with it all its workers."""
        self._process.kill()

    def close(self) -> None:
        """End it, after its workers."""
        self._control.close()
        self._process.kill()
        self._process.wait()


class Forked:
    """A worker that a template has forked."""

    def __init__(self, pid: int, descriptor: int, status: socket.socket) -> None:
        self.pid = pid
        self._descriptor: int | None = descriptor  # stands for this process, not for its number
        self._status = status
        self._lock = threading.Lock()

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        with self._lock, suppress(ProcessLookupError):
            if self._descriptor is not None:
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code, once it has ended; negative for a signal.

        A worker ends with its template: by signal 9, which is also what it gets from `kill`.
        """
        with self._status:
            self._status.settimeout(_PATIENCE)
            try:
                word = self._status.recv(_WORD)
            except OSError:  # the template hangs, or it ended with answers unread
                word = b""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor = None
        return int(word or -signal.SIGKILL)


# ---------------------------------------------------------------- in the template


def serve(control: int, end_with_parent: Callable[[], None]) -> None:
    """Fork a worker for each request. Returns in the workers; the template ends in here.

    Parameters
    ----------
    control
        Socket that requests come from; its end is the end of the coordinator.
    end_with_parent
        Called in each worker before anything else.
    """
    for module in _LATER:
        import_module(module)
    _require_safe()
    gc.freeze()  # pages that the collector would write to stay shared
    server = _Server(socket.socket(fileno=control))
    while not server.is_worker:
        server.turn(end_with_parent)


def _require_safe() -> None:
    """Exit if a fork might not work; the coordinator then starts interpreters."""
    os.close(os.pidfd_open(os.getpid()))  # an error on kernels before 5.3
    n_threads = len(list(Path("/proc/self/task").iterdir()))
    if n_threads > 1 or "jax" in sys.modules:
        sys.exit(f"{n_threads} threads, or JAX, came with the imports: workers are not forked.")


class _Server:
    """The workers of a template, and the socket that asks for more."""

    def __init__(self, control: socket.socket) -> None:
        self.is_worker = False
        self._pid = os.getpid()
        self._control = control
        self._workers: dict[int, tuple[int, socket.socket]] = {}  # pid, status by descriptor
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    def turn(self, end_with_parent: Callable[[], None]) -> None:
        """Wait for something to happen, and do what it asks for."""
        for descriptor, _ in self._poll.poll():
            if descriptor != self._control.fileno():
                self._reap(descriptor)
                continue
            word, received = _received(self._control, 4)
            if not word:
                os._exit(0)
            if len(received) == 4:
                self._fork(Files(*received[:3]), received[3], end_with_parent)
            else:  # there was no room for them
                _close(received)
            if self.is_worker:
                return

    def _fork(self, files: Files, status: int, end_with_parent: Callable[[], None]) -> None:
        told = socket.socket(fileno=status)
        try:
            pid = os.fork()
        except OSError:  # too many processes: the coordinator will say so
            told.close()
            _close(files)
            return
        if pid == 0:
            end_with_parent()
            told.close()
            self._become_worker(files)
            return
        _close(files)
        descriptor = os.pidfd_open(pid)
        self._workers[descriptor] = pid, told
        self._poll.register(descriptor, select.POLLIN)
        with suppress(OSError):  # nobody may want to know any more
            socket.send_fds(told, [str(pid).encode()], [descriptor])

    def _reap(self, descriptor: int) -> None:
        pid, told = self._workers.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with told, suppress(OSError):
            told.send(str(code).encode())

    def _become_worker(self, files: Files) -> None:
        """Leave everything of the template behind but its imports."""
        if os.getppid() != self._pid:  # it ended before we would have noticed
            os._exit(1)
        self.is_worker = True
        os.setsid()
        self._control.close()
        for descriptor, (_, told) in self._workers.items():
            os.close(descriptor)
            told.close()
        for standard, given in enumerate(files):
            os.dup2(given, standard)
        _close(files)
        np.random.seed()  # noqa: NPY002 - user code may use it, and workers must not draw alike


def _received(source: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """A message, empty at the end, and the descriptors that came with it."""
    word, descriptors, _, _ = socket.recv_fds(source, _WORD, most, socket.MSG_CMSG_CLOEXEC)
    return word, descriptors


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
