"""Workers as processes of this machine, with one pipe each way.

Processes are started in a session of their own: Ctrl-C reaches only the coordinator, and they end
when their input does.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from quorate.engines.devices import CPU
from quorate.engines.faults import Handicap
from quorate.engines.frames import Frame
from quorate.engines.processes.hosts import Hosts
from quorate.engines.processes.logs import Logs
from quorate.engines.workers.service import (
    WarningsHeard,
    device_frame,
    events_of,
    setup_frame,
    task_frame,
)
from quorate.engines.workers.worker import Job
from quorate.protocol.messages import Beat, Event, Work, WorkerLost

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
        n_places = min(n_processes or n_workers, n_workers)
        self._slowed = {k for k, given in (handicaps or {}).items() if given != Handicap()}
        self._setup = setup_frame(job, handicaps or {})
        self._devices = devices or [CPU] * max(n_workers, n_processes or 0)
        self._to_tell: list[Event] = []
        self._warnings = WarningsHeard()
        self._next_look = 0.0
        self._logs = Logs(logs)
        self._hosts = Hosts(
            [range(place, n_workers, n_places) for place in range(n_places)],
            self._first_frames,
            self._logs.new,
            n_spares=max(n_processes or 0, n_workers) - n_workers,
        )

    def __enter__(self) -> "ProcessEngine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._start_time

    def start(self, worker: int, attempt: int) -> None:
        """Give `worker` a process: its own, a shared one, or a spare."""
        self._hosts.start(worker, attempt)

    def send(self, task: Work) -> None:
        """Give a task to its worker; a worker that is gone, or about to be, does not get it."""
        self._hosts.send(self._hosts.place_of(task.worker), task_frame(task))

    def poll(self, timeout: float) -> list[Event]:
        """Events so far; none if nothing happens within `timeout` seconds."""
        events, self._to_tell = [*self._to_tell, *self._signs()], []
        for place, said in self._hosts.told(self._hosts.arrived(0 if events else timeout)):
            events += [said] if isinstance(said, WorkerLost) else self._events(place, said)
        return events

    def kill(self, worker: int) -> None:
        """End the process of `worker` at once, with all workers that share it."""
        self._to_tell += self._hosts.kill(worker)

    def pid(self, worker: int) -> int | None:
        """Id of the process of `worker`, if it has one."""
        return self._hosts.pid(worker)

    def close(self) -> None:
        """End all processes, within a few seconds."""
        self._hosts.close()
        self._logs.trim()

    def _first_frames(self, place: int) -> list[Frame]:
        return [device_frame(self._devices[place]), self._setup]

    def _signs(self) -> Iterator[Event]:
        """Signs of life of all processes, a few times a second; a time to look at logs, too."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _SECONDS_BETWEEN_LOOKS
        self._logs.trim()
        for sign in self._hosts.signs():
            workers = self._hosts.hosted[sign.place]
            yield from (Beat(worker, sign.doing, sign.is_stopped) for worker in workers)

    def _events(self, place: int, frame: Frame) -> list[Event]:
        if frame.kind == "warning":
            self._warnings.tell(**frame.fields)
            return []
        return events_of(frame, self._hosts.hosted[place], self._node(place))

    def _node(self, place: int) -> str:
        """Name of a process that workers share; none if one of them is slow on purpose."""
        hosted = self._hosts.hosted[place]
        is_shared = len(hosted) > 1 and self._slowed.isdisjoint(hosted)
        return f"process {place}" if is_shared else ""
