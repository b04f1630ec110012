"""Workers as processes of this machine, with one pipe each way.

Each process has a thread that reads from it and one that writes to it, so that a process that stops
in the middle of a frame does not block the others. Processes are started in a session of their own:
Ctrl-C reaches only the coordinator, and they end when their input does.
"""

import fcntl
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from quorate.engines.faults import Handicap
from quorate.engines.frames import Frame, read_frame, write_frame
from quorate.engines.service import (
    WarningsHeard,
    event_of,
    setup_frame,
    task_frame,
)
from quorate.engines.template import Child, Files, Template, new_interpreter, template_for
from quorate.engines.worker import Job
from quorate.protocol.messages import Event, Work, WorkerLost

_GRACE = 2.0  # seconds that workers have to end by themselves
_HANGS = 30.0  # seconds without an answer after which a template is of no use
_UNREAD = 1024  # frames that may wait; then workers do
_AT_ONCE = 256  # events of one poll
_PIPE = 1 << 18  # bytes on the way from a process: several blocks, so that it need not wait


class ProcessEngine:
    """Processes that workers live in.

    Parameters
    ----------
    job
        What workers draw from, the same for all.
    n_workers
        K. There may be more of them than cores.
    logs
        Folder for what workers print, one file for each process.
    n_processes
        With fewer than workers, they share them. With more, the others stand by as spares.
    handicaps
        Delays put in on purpose, by worker.
    began_at
        Seconds that earlier sittings of the run took.
    """

    def __init__(
        self,
        job: Job,
        n_workers: int,
        logs: Path,
        n_processes: int | None = None,
        handicaps: Mapping[int, Handicap] | None = None,
        began_at: float = 0.0,
    ) -> None:
        self._start_time = time.monotonic() - began_at
        self._n_places = min(n_processes or n_workers, n_workers)
        self._hosted = [range(place, n_workers, self._n_places) for place in range(self._n_places)]
        self._hosts: list[_Process | None] = [None] * self._n_places
        self._setup = setup_frame(job, handicaps or {})
        self._incoming: queue.Queue[tuple[_Process, Frame | None]] = queue.Queue(_UNREAD)
        self._to_tell: list[Event] = []
        self._all: list[_Process] = []
        self._template: Template | None = None
        self._starts = threading.Lock()  # one at a time: each takes a few open files
        self._warnings = WarningsHeard()
        self._logs = logs
        logs.mkdir(parents=True, exist_ok=True)
        n_spares = max((n_processes or 0) - n_workers, 0)
        self._spares = [self._spawn() for _ in range(n_spares)]

    def __enter__(self) -> "ProcessEngine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._start_time

    def start(self, worker: int, attempt: int) -> None:
        """Give `worker` a process: its own, a shared one, or a spare."""
        place = worker % self._n_places
        host = self._hosts[place]
        if host is None:
            host = self._spares.pop() if attempt and self._spares else self._spawn()
            self._hosts[place] = host
        host.send(Frame("host", {"worker": worker, "attempt": attempt}))

    def send(self, task: Work) -> None:
        """Give a task to its worker; a worker that is gone, or about to be, does not get it."""
        host = self._hosts[task.worker % self._n_places]
        if host is not None:
            host.send(task_frame(task))

    def poll(self, timeout: float) -> list[Event]:
        """Events so far; none if nothing happens within `timeout` seconds."""
        events, self._to_tell = self._to_tell, []
        try:
            events += self._events(*self._incoming.get(timeout=0 if events else timeout))
            while len(events) < _AT_ONCE:
                events += self._events(*self._incoming.get_nowait())
        except queue.Empty:
            pass
        return events

    def kill(self, worker: int) -> None:
        """End the process of `worker` at once, with all workers that share it."""
        place = worker % self._n_places
        host, self._hosts[place] = self._hosts[place], None
        if host is not None:
            host.kill()
            why = f"shared a process with worker {worker}"
            self._to_tell += [WorkerLost(k, why) for k in self._hosted[place] if k != worker]

    def pid(self, worker: int) -> int | None:
        """Id of the process of `worker`, if it has one."""
        host = self._hosts[worker % self._n_places]
        return None if host is None else host.pid

    def close(self) -> None:
        """End all processes: let them exit by themselves, then kill the rest."""
        for host in self._all:
            host.end_input()
        deadline = time.monotonic() + _GRACE
        while any(host.is_alive for host in self._all):
            self.poll(timeout=0.01)  # a worker may be waiting for us to read
            if time.monotonic() > deadline:
                self._end_now()
        for host in self._all:
            host.close()
        if self._template is not None:
            self._template.close()

    def _end_now(self) -> None:
        for host in self._all:
            host.kill()
        if self._template is not None:  # some may wait for it to start them
            self._template.kill()

    def _spawn(self) -> "_Process":
        log = self._logs / f"process-{len(self._all)}.log"
        if not self._all:
            self._template = template_for(log)
        host = _Process(log, self._incoming, self._template, self._starts)
        self._all.append(host)
        host.send(self._setup)
        return host

    def _events(self, host: "_Process", frame: Frame | None) -> list[Event]:
        if host not in self._hosts:  # a spare, or replaced by another
            if frame is None and host in self._spares:
                self._spares.remove(host)
            return []
        place = self._hosts.index(host)
        if frame is None:
            self._hosts[place] = None
            return [WorkerLost(worker, host.epitaph()) for worker in self._hosted[place]]
        if frame.kind == "warning":
            self._warnings.tell(**frame.fields)
            return []
        return [event_of(frame, self._hosted[place][0])]


class _Process:
    """One process, with the threads that read from it and write to it.

    The thread that reads starts the process, for which it may have to wait for the template.
    """

    def __init__(
        self,
        log: Path,
        incoming: "queue.Queue[tuple[_Process, Frame | None]]",
        template: Template | None,
        starts: threading.Lock,
    ) -> None:
        self._log = log
        self._incoming = incoming
        self._template = template
        self._starts = starts
        self._asked = time.monotonic()
        self._child: Child | None = None
        self._is_killed = False
        self._lock = threading.Lock()  # of the two above
        self._fault: str | None = None
        self._code = -9
        self._outgoing: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._reader = threading.Thread(target=self._live, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int | None:
        """Id of the process, once it is there."""
        return None if self._child is None else self._child.pid

    def send(self, frame: Frame) -> None:
        """Write a frame when there is room for it."""
        self._outgoing.put(frame)

    def end_input(self) -> None:
        """Close the input of the process once all frames are written."""
        self._outgoing.put(None)

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended, or more frames may arrive."""
        return self._reader.is_alive()

    def kill(self) -> None:
        """End it at once, or as soon as it is there."""
        with self._lock:
            self._is_killed = True
            if self._child is not None:
                self._child.kill()
            elif self._template is not None and time.monotonic() - self._asked > _HANGS:
                self._template.kill()

    def epitaph(self) -> str:
        """How it ended."""
        if self._fault is not None:
            return self._fault
        code = self._code
        if code in (-9, 137):
            return (
                "was killed (signal 9). If you did not kill it, the machine may be out of memory: "
                "use fewer workers or smaller shards"
            )
        return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def close(self) -> None:
        """Wait for the threads of a process that has ended."""
        self._reader.join()
        if self._writer is not None:
            self._writer.join()

    def _live(self) -> None:
        """Start the process, read from it until it ends, and tell how it did."""
        try:
            with self._starts:
                commands, replies = self._start()
        except OSError as error:
            self._fault = f"could not be started: {error}"
        else:
            self._writer = threading.Thread(target=self._write, args=(commands,), daemon=True)
            self._writer.start()
            with replies:
                self._read(replies)
            self.end_input()
        self._incoming.put((self, None))

    def _start(self) -> tuple[BinaryIO, BinaryIO]:
        """Start the process, and return our ends of its pipes."""
        with ExitStack() as ours, ExitStack() as its:
            stdin, commands = _pipe(its, ours)
            replies, stdout = _pipe(ours, its)
            log = its.enter_context(self._log.open("ab"))
            self._bear(Files(stdin.fileno(), stdout.fileno(), log.fileno()))
            if sys.platform == "linux":
                with suppress(OSError):  # so many may be more than the system grants a user
                    fcntl.fcntl(replies, fcntl.F_SETPIPE_SZ, _PIPE)
            ours.pop_all()
        return commands, replies

    def _bear(self, files: Files) -> None:
        """Fork the process, or start an interpreter, unless it is killed before."""
        child: Child | None = None
        if self._template is not None and not self._is_killed:
            child = self._template.fork(files)
        with self._lock:
            if child is None and not self._is_killed:
                child = new_interpreter(files)
            self._child = child
            if child is not None and self._is_killed:
                child.kill()

    def _read(self, replies: BinaryIO) -> None:
        """Pass frames on until the process has ended."""
        try:
            while (frame := read_frame(replies)) is not None:
                self._incoming.put((self, frame))
        except ValueError:
            self._fault = "sent what is no frame"
        if self._child is not None:
            self._child.kill()  # its frames make no sense, or its output has ended
            self._code = self._child.wait()

    def _write(self, pipe: BinaryIO) -> None:
        """Write frames until the process is gone or its input ends."""
        with suppress(BrokenPipeError):
            while (frame := self._outgoing.get()) is not None:
                write_frame(pipe, frame)
        with suppress(BrokenPipeError):
            pipe.close()


def _pipe(reads: ExitStack, writes: ExitStack) -> tuple[BinaryIO, BinaryIO]:
    """A pipe, each end of which is closed with a stack."""
    read, write = os.pipe()
    return (
        reads.enter_context(os.fdopen(read, "rb", _PIPE)),
        writes.enter_context(os.fdopen(write, "wb", _PIPE)),
    )
