"""Workers as new processes of this machine, with one pipe each way.

Each process has a thread that reads from it and one that writes to it, so that a process that stops
in the middle of a frame does not block the others. Processes are started in a session of their own:
Ctrl-C reaches only the coordinator, and they end when their input does.
"""

import fcntl
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from quorate.engines.faults import Handicap
from quorate.engines.frames import Frame, read_frame, write_frame
from quorate.engines.service import (
    WarningsHeard,
    environment,
    event_of,
    setup_frame,
    task_frame,
)
from quorate.engines.worker import Job
from quorate.protocol.messages import Event, Work, WorkerLost

_PROGRAM = """
import ctypes
try:  # Linux kills us when our parent dies: a stopped process would not see its input end
    ctypes.CDLL(None).prctl(1, 9)
except (OSError, AttributeError):
    pass
from quorate.engines.service import main
main()
"""
_GRACE = 2.0  # seconds that workers have to end by themselves
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
            host.process.kill()
            why = f"shared a process with worker {worker}"
            self._to_tell += [WorkerLost(k, why) for k in self._hosted[place] if k != worker]

    def pid(self, worker: int) -> int | None:
        """Id of the process of `worker`, if it has one."""
        host = self._hosts[worker % self._n_places]
        return None if host is None else host.process.pid

    def close(self) -> None:
        """End all processes: let them exit by themselves, then kill the rest."""
        for host in self._all:
            host.end_input()
        deadline = time.monotonic() + _GRACE
        while any(host.process.poll() is None for host in self._all):
            self.poll(timeout=0.01)  # a worker may be waiting for us to read
            if time.monotonic() > deadline:
                for host in self._all:
                    host.process.kill()
        while any(host.is_reading for host in self._all):
            self.poll(timeout=0.01)
        for host in self._all:
            host.close()

    def _spawn(self) -> "_Process":
        host = _Process(self._logs / f"process-{len(self._all)}.log", self._incoming)
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
    """One process, with the threads that read from it and write to it."""

    def __init__(self, log: Path, incoming: "queue.Queue[tuple[_Process, Frame | None]]") -> None:
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own words
                [sys.executable, "-c", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **environment()},
                start_new_session=True,
                bufsize=_PIPE,
            )
        if sys.platform == "linux":
            with suppress(OSError):  # so many may be more than the system grants a user
                fcntl.fcntl(cast(BinaryIO, self.process.stdout), fcntl.F_SETPIPE_SZ, _PIPE)
        self._incoming = incoming
        self._is_garbled = False
        self._outgoing: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._reader.start()
        self._writer.start()

    def send(self, frame: Frame) -> None:
        """Write a frame when there is room for it."""
        self._outgoing.put(frame)

    def end_input(self) -> None:
        """Close the input of the process once all frames are written."""
        self._outgoing.put(None)

    @property
    def is_reading(self) -> bool:
        """Whether more frames may arrive."""
        return self._reader.is_alive()

    def epitaph(self) -> str:
        """How it ended."""
        if self._is_garbled:
            return "sent what is no frame"
        code = self.process.wait()
        if code in (-9, 137):
            return (
                "was killed (signal 9). If you did not kill it, the machine may be out of memory: "
                "use fewer workers or smaller shards"
            )
        return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def close(self) -> None:
        """Release threads and pipes of a process that has ended."""
        self._outgoing.put(None)
        self._reader.join()
        self._writer.join()
        cast(BinaryIO, self.process.stdout).close()
        self.process.wait()

    def _read(self) -> None:
        output = cast(BinaryIO, self.process.stdout)
        try:
            while (frame := read_frame(output)) is not None:
                self._incoming.put((self, frame))
        except ValueError:
            self._is_garbled = True
        self.process.kill()  # its frames make no sense, or its output has ended
        self._incoming.put((self, None))

    def _write(self) -> None:
        """Write frames until the process is gone or its input ends."""
        pipe = cast(BinaryIO, self.process.stdin)
        with suppress(BrokenPipeError):
            while (frame := self._outgoing.get()) is not None:
                write_frame(pipe, frame)
        with suppress(BrokenPipeError):
            pipe.close()
