"""Workers as processes of this machine, with one pipe each way.

Processes are started in a session of their own: Ctrl-C reaches only the coordinator, and they end
when their input does.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from quorate.engines.devices import CPU
from quorate.engines.faults import Handicap
from quorate.engines.frames import Frame
from quorate.engines.processes.host_process import HostProcess
from quorate.engines.processes.incoming import Incoming
from quorate.engines.processes.logs import Logs
from quorate.engines.processes.template import Template, template_for
from quorate.engines.workers.service import (
    WarningsHeard,
    device_frame,
    events_of,
    setup_frame,
    task_frame,
)
from quorate.engines.workers.worker import Job
from quorate.protocol.messages import Beat, Doing, Event, Work, WorkerLost

_GRACE = 2.0  # seconds that workers have to end by themselves
_KILLED = 3.0  # seconds that they have once they are killed; nobody waits for longer
_SECONDS_BETWEEN_LOOKS = 0.5  # at signs of life


class ProcessEngine:
    """Processes that workers live in.

    Parameters
    ----------
    job
        What workers draw from, the same for all.
    n_workers
        K. There may be more of them than cores.
    logs
        Folder for what workers print, one file for each process, of limited size.
    n_processes
        With fewer than workers, they share them. With more, the others stand by as spares.
    handicaps
        Delays put in on purpose, by worker.
    began_at
        Seconds that earlier sittings of the run took.
    devices
        The device of each process, spares included; cores if there are none.
    """

    def __init__(
        self,
        job: Job,
        n_workers: int,
        logs: Path,
        n_processes: int | None = None,
        handicaps: Mapping[int, Handicap] | None = None,
        began_at: float = 0.0,
        devices: Sequence[str] = (),
    ) -> None:
        self._start_time = time.monotonic() - began_at
        self._n_places = min(n_processes or n_workers, n_workers)
        self._hosted = [range(place, n_workers, self._n_places) for place in range(self._n_places)]
        self._hosts: list[HostProcess | None] = [None] * self._n_places
        self._slowed = {k for k, given in (handicaps or {}).items() if given != Handicap()}
        self._setup = setup_frame(job, handicaps or {})
        self._devices = devices or [CPU] * max(n_workers, n_processes or 0)
        self._incoming = Incoming()
        self._to_tell: list[Event] = []
        self._all: list[HostProcess] = []
        self._template: Template | None = None
        self._starts = threading.Lock()  # one at a time: each takes a few open files
        self._warnings = WarningsHeard()
        self._next_look = 0.0
        self._logs = Logs(logs)
        n_processes = max(n_processes or 0, n_workers)
        self._spares = [self._spawn(place) for place in range(n_workers, n_processes)]

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
            host = self._spares.pop() if attempt and self._spares else self._spawn(place)
            self._hosts[place] = host
        host.send(Frame("host", {"worker": worker, "attempt": attempt}))

    def send(self, task: Work) -> None:
        """Give a task to its worker; a worker that is gone, or about to be, does not get it."""
        host = self._hosts[task.worker % self._n_places]
        if host is not None:
            host.send(task_frame(task))

    def poll(self, timeout: float) -> list[Event]:
        """Events so far; none if nothing happens within `timeout` seconds."""
        events, self._to_tell = [*self._to_tell, *self._signs()], []
        for host, frame in self._incoming.frames(0 if events else timeout):
            events += self._events(host, frame)
        return events

    def kill(self, worker: int) -> None:
        """End the process of `worker` at once, with all workers that share it."""
        place = worker % self._n_places
        host, self._hosts[place] = self._hosts[place], None
        if host is not None:
            host.kill()
            why = f"shared a process with worker {worker}"
            others = [k for k in self._hosted[place] if k != worker]
            self._to_tell += [WorkerLost(k, why, with_another=True) for k in others]

    def pid(self, worker: int) -> int | None:
        """Id of the process of `worker`, if it has one."""
        host = self._hosts[worker % self._n_places]
        return None if host is None else host.pid

    def close(self) -> None:
        """End all processes: let them exit by themselves, then kill the rest.

        It takes a few seconds at most, whatever user code has left behind.
        """
        for host in self._all:
            host.end_input()
        self._wait_until(time.monotonic() + _GRACE)
        left = self._living()
        for host in left:
            host.kill()
        if self._template is not None and any(host.pid is None for host in left):
            self._template.kill()  # they wait for it to start them
        deadline = time.monotonic() + _KILLED
        self._wait_until(deadline)
        for host in self._all:
            host.close(deadline)
        if self._template is not None:
            self._template.close()
        self._incoming.close()
        self._logs.trim()

    def _living(self) -> list[HostProcess]:
        return [host for host in self._all if host.is_alive]

    def _wait_until(self, deadline: float) -> None:
        """Wait for all processes to end."""
        while self._living() and time.monotonic() < deadline:
            self.poll(timeout=0.01)  # a worker may be waiting for us to read

    def _signs(self) -> Iterator[Event]:
        """Signs of life of all processes, a few times a second; a time to look at logs, too."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _SECONDS_BETWEEN_LOOKS
        self._logs.trim()
        for host, workers in zip(self._hosts, self._hosted, strict=True):
            sign = host is not None and host.sign()
            is_stopped = host is not None and not sign and host.is_stopped
            if sign or is_stopped:
                doing = sign if isinstance(sign, Doing) else None
                yield from (Beat(worker, doing, is_stopped) for worker in workers)

    def _spawn(self, place: int) -> HostProcess:
        log = self._logs.new()
        if not self._all:
            self._template = template_for(log)
        host = HostProcess(log, self._incoming, self._template, self._starts)
        self._all.append(host)
        host.send(device_frame(self._devices[place]))
        host.send(self._setup)
        return host

    def _events(self, host: HostProcess, frame: Frame | None) -> list[Event]:
        if host not in self._hosts:  # a spare, or replaced by another
            if frame is None and host in self._spares:
                self._spares.remove(host)
            return []
        place = self._hosts.index(host)
        if frame is None:
            self._hosts[place] = None
            return [_lost(worker, host) for worker in self._hosted[place]]
        if frame.kind == "warning":
            self._warnings.tell(**frame.fields)
            return []
        return events_of(frame, self._hosted[place], self._node(place))

    def _node(self, place: int) -> str:
        """Name of a process that workers share; none if one of them is slow on purpose."""
        hosted = self._hosted[place]
        is_shared = len(hosted) > 1 and self._slowed.isdisjoint(hosted)
        return f"process {place}" if is_shared else ""


def _lost(worker: int, host: HostProcess) -> WorkerLost:
    """How a worker was lost with its process."""
    guilty = host.failed
    if guilty in (None, worker):
        return WorkerLost(worker, host.epitaph())
    return WorkerLost(worker, f"shared a process with worker {guilty}", with_another=True)
