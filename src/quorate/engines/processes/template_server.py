"""The template: a process that forks workers, and ends what is left of them.

It never runs user code and never starts a thread, and does not import JAX, so forks of it are safe.

Processes that user code starts end with their worker. The kernel gives those that have lost their
parent to the template, which is their subreaper, and the template ends them, also those that have a
session of their own. When the coordinator is gone, the template ends everything below it.

The template has a guard, its parent, which does the same when the template itself was killed. When
the guard was killed, the template ends. So nothing is left of a run whose coordinator and template
were killed.
"""

import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from quorate.engines.processes.subreaper import (
    become_subreaper,
    children,
    end_all_below,
    signal_at_end_of_parent,
)

WORD = 32  # bytes, more than a pid or an exit code takes
# Imported before the first fork.
_LATER = ("cloudpickle", "scipy.optimize", "quorate.engines.processes.worker_process")


class Files(NamedTuple):
    """Descriptors that a worker has as standard input, output and error."""

    stdin: int
    stdout: int
    stderr: int


def serve(control: int) -> None:
    """Fork a worker for each request. Returns in the workers; the template ends in here.

    Parameters
    ----------
    control
        Socket that requests come from; its end is the end of the coordinator.
    """
    for module in _LATER:
        import_module(module)
    _require_safe()
    gc.freeze()  # pages that the collector would write to stay shared
    guard = _fork_below_guard(control)
    server = _Server(socket.socket(fileno=control), guard)
    while not server.is_worker:
        server.turn()


def received(source: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """A message, empty at the end, and the descriptors that came with it."""
    word, descriptors, _, _ = socket.recv_fds(source, WORD, most, socket.MSG_CMSG_CLOEXEC)
    return word, descriptors


def _require_safe() -> None:
    """Exit if a fork might not work; the coordinator then starts interpreters."""
    os.close(os.pidfd_open(os.getpid()))  # an error on kernels before 5.3
    children()  # an error on kernels that do not tell
    n_threads = len(list(Path("/proc/self/task").iterdir()))
    if n_threads > 1 or "jax" in sys.modules:
        sys.exit(f"{n_threads} threads, or JAX, came with the imports: workers are not forked.")


def _fork_below_guard(control: int) -> int:
    """Fork the template, in which this returns the id of its guard; the guard ends in here."""
    guard, coordinator = os.getpid(), os.getppid()
    become_subreaper()
    template = os.fork()
    if template:
        os.close(control)
        _guard(template, coordinator)
    os.setsid()
    return guard


def _guard(template: int, coordinator: int) -> NoReturn:
    """Wait for the end of template or coordinator, and end everything below us."""

    def look(*_: object) -> None:
        if os.getppid() != coordinator:
            _end_all()
        with suppress(ProcessLookupError):  # it may be stopped
            os.kill(template, signal.SIGCONT)

    signal.signal(signal.SIGCONT, look)
    signal_at_end_of_parent(signal.SIGCONT)
    look()  # the coordinator may have ended before
    os.waitpid(template, 0)
    _end_all()


def _end_all() -> NoReturn:
    """End everything below us, and then ourselves."""
    end_all_below()
    os._exit(0)


class _Server:
    """The workers of a template, and the socket that asks for more."""

    def __init__(self, control: socket.socket, parent: int) -> None:
        self.is_worker = False
        self._pid, self._parent = os.getpid(), parent
        self._control = control
        self._workers: dict[int, tuple[int, socket.socket]] = {}  # pid, status by descriptor
        self._strays: dict[int, int] = {}  # pids by descriptor
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        become_subreaper()
        # SIGCONT also wakes a template that is stopped, so that it can end what is below it
        signal.signal(signal.SIGCONT, self._look_for_parent)
        signal_at_end_of_parent(signal.SIGCONT)
        self._look_for_parent()  # it may have ended before

    def turn(self) -> None:
        """Wait for something to happen, and do what it asks for."""
        for descriptor, _ in self._poll.poll():
            if descriptor in self._strays:
                self._reap_stray(descriptor)
            elif descriptor in self._workers:
                self._reap(descriptor)
            else:
                self._answer()
            if self.is_worker:
                return

    def _answer(self) -> None:
        word, descriptors = received(self._control, 4)
        if not word:
            _end_all()
        if len(descriptors) == 4:
            self._fork(Files(*descriptors[:3]), descriptors[3])
        else:  # there was no room for them
            _close(descriptors)

    def _fork(self, files: Files, status: int) -> None:
        told = socket.socket(fileno=status)
        try:
            pid = os.fork()
        except OSError:  # too many processes: the coordinator will say so
            told.close()
            _close(files)
            return
        if pid == 0:
            told.close()
            self._become_worker(files)
            return
        _close(files)
        descriptor = self._watch(pid)
        self._workers[descriptor] = pid, told
        with suppress(OSError):  # nobody may want to know any more
            socket.send_fds(told, [str(pid).encode()], [descriptor])

    def _become_worker(self, files: Files) -> None:
        """Leave everything of the template behind but its imports."""
        signal_at_end_of_parent(signal.SIGKILL)
        if os.getppid() != self._pid:  # it ended before we would have noticed
            os._exit(1)
        self.is_worker = True
        signal.signal(signal.SIGCONT, signal.SIG_DFL)
        become_subreaper()  # what user code starts stays ours as long as we live
        os.setsid()
        self._control.close()
        for descriptor, (_, told) in self._workers.items():
            os.close(descriptor)
            told.close()
        _close(self._strays)
        for standard, given in enumerate(files):
            os.dup2(given, standard)
        _close(files)
        np.random.seed()  # noqa: NPY002 - user code may use it, and workers must not draw alike

    # ------------------------------------------------------------ ends

    def _watch(self, pid: int) -> int:
        """A descriptor that tells when a child has ended."""
        descriptor = os.pidfd_open(pid)
        self._poll.register(descriptor, select.POLLIN)
        return descriptor

    def _unwatch(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        os.close(descriptor)

    def _reap(self, descriptor: int) -> None:
        """Tell how a worker has ended, and end the processes that it has left."""
        pid, told = self._workers.pop(descriptor)
        self._unwatch(descriptor)
        with suppress(OSError):  # before its number can be another's
            os.killpg(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._end_strays()
        with told, suppress(OSError):
            told.send(str(code).encode())

    def _reap_stray(self, descriptor: int) -> None:
        pid = self._strays.pop(descriptor)
        self._unwatch(descriptor)
        os.waitpid(pid, 0)
        self._end_strays()  # its own children are ours now

    def _end_strays(self) -> None:
        """End children that are no workers. User code started them, and their worker is gone."""
        workers = {pid for pid, _ in self._workers.values()}
        for pid in set(children()) - workers - set(self._strays.values()):
            os.kill(pid, signal.SIGKILL)
            self._strays[self._watch(pid)] = pid

    def _look_for_parent(self, *_: object) -> None:
        if os.getppid() != self._parent:
            _end_all()


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
