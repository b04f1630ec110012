"""The processes that workers of one machine live in, place by place.

A place has its workers, and at most one process at a time. The coordinator has such places on its
own machine, and an actor of Ray may have some on its node.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from quorate.engines.frames import Frame
from quorate.engines.processes.host_process import HostProcess
from quorate.engines.processes.incoming import Incoming
from quorate.engines.processes.template import Template, template_for
from quorate.protocol.messages import Doing, WorkerLost

FOR_ALL = -1  # in place of a worker: a task of a process for all workers of its machine
_GRACE = 2.0  # seconds that workers have to end by themselves
_KILLED = 3.0  # seconds that they have once they are killed; nobody waits for longer
Arrived = tuple[HostProcess, Frame | None]


class Sign(NamedTuple):
    """A sign of life of the process at a place; or the word that it is stopped."""

    place: int
    doing: Doing | None
    is_stopped: bool


class Hosts:
    """Starts processes, writes to them, hears from them, and ends them.

    Parameters
    ----------
    hosted
        The workers of each place.
    first_frames
        The frames that a new process gets first, by the number of its place.
    new_log
        Makes the file for what user code prints in one more process.
    n_spares
        Processes that stand by for those that are lost. Their numbers come after those of places.
    """

    def __init__(
        self,
        hosted: Sequence[Sequence[int]],
        first_frames: Callable[[int], Sequence[Frame]],
        new_log: Callable[[], Path],
        n_spares: int = 0,
    ) -> None:
        self.hosted = hosted
        self._place_of = {k: place for place, workers in enumerate(hosted) for k in workers}
        self._hosts: list[HostProcess | None] = [None] * len(hosted)
        self._started: list[dict[int, None]] = [{} for _ in hosted]  # workers, in their processes
        self._first_frames, self._new_log = first_frames, new_log
        self._incoming = Incoming()
        self._all: list[HostProcess] = []
        self._template: Template | None = None
        self._starts = threading.Lock()  # one at a time: each takes a few open files
        self._spares = [self._spawn(len(hosted) + number) for number in range(n_spares)]

    @property
    def places(self) -> list[int]:
        """Places that have a process."""
        return [place for place, host in enumerate(self._hosts) if host is not None]

    def place_of(self, worker: int) -> int:
        """The place of a worker."""
        return self._place_of[worker]

    def pid(self, worker: int) -> int | None:
        """Id of the process of `worker`, if it has one."""
        host = self._hosts[self._place_of[worker]]
        return None if host is None else host.pid

    def first_of(self, place: int) -> int:
        """The first worker that was started in the process at a place."""
        return next(iter(self._started[place]), self.hosted[place][0])

    def start(self, worker: int, attempt: int) -> None:
        """Give `worker` a process: its own, a shared one, or a spare."""
        place = self._place_of[worker]
        host = self._hosts[place]
        if host is None:
            host = self._spares.pop() if attempt and self._spares else self._spawn(place)
            self._hosts[place] = host
            self._started[place].clear()
        self._started[place][worker] = None
        host.send(Frame("host", {"worker": worker, "attempt": attempt}))

    def send(self, place: int, frame: Frame) -> None:
        """Write a frame to a process; one that is gone, or about to be, does not get it."""
        host = self._hosts[place]
        if host is not None:
            host.send(frame)

    def kill(self, worker: int) -> list[WorkerLost]:
        """End the process of `worker` at once; returns the others that are lost with it."""
        place = self._place_of[worker]
        host, self._hosts[place] = self._hosts[place], None
        if host is None:
            return []
        host.kill()
        why = f"shared a process with worker {worker}"
        others = [k for k in self.hosted[place] if k != worker]
        return [WorkerLost(k, why, with_another=True) for k in others]

    def arrived(self, timeout: float) -> list[Arrived]:
        """What comes within `timeout` seconds, for `told`. Changes nothing."""
        return list(self._incoming.frames(timeout))

    def told(self, arrived: list[Arrived]) -> Iterator[tuple[int, Frame | WorkerLost]]:
        """What arrived from each place: frames, and the loss of its workers."""
        for host, frame in arrived:
            if host in self._hosts:
                place = self._hosts.index(host)
                yield from ((place, said) for said in self._said(place, host, frame))
            elif frame is None and host in self._spares:
                self._spares.remove(host)

    def signs(self) -> Iterator[Sign]:
        """Signs of life since the last call."""
        for place, host in enumerate(self._hosts):
            sign = host is not None and host.sign()
            is_stopped = host is not None and not sign and host.is_stopped
            if sign or is_stopped:
                yield Sign(place, sign if isinstance(sign, Doing) else None, is_stopped)

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

    def _living(self) -> list[HostProcess]:
        return [host for host in self._all if host.is_alive]

    def _wait_until(self, deadline: float) -> None:
        """Wait for all processes to end."""
        while self._living() and time.monotonic() < deadline:
            self.arrived(timeout=0.01)  # a worker may be waiting for us to read

    def _spawn(self, place: int) -> HostProcess:
        log = self._new_log()
        if not self._all:
            self._template = template_for(log)
        host = HostProcess(log, self._incoming, self._template, self._starts)
        self._all.append(host)
        for frame in self._first_frames(place):
            host.send(frame)
        return host

    def _said(
        self, place: int, host: HostProcess, frame: Frame | None
    ) -> Sequence[Frame | WorkerLost]:
        if frame is not None:
            return [frame]
        self._hosts[place] = None
        guilty = self.first_of(place) if host.failed == FOR_ALL else host.failed
        return [_lost(worker, host, guilty) for worker in self.hosted[place]]


def _lost(worker: int, host: HostProcess, guilty: int | None) -> WorkerLost:
    """How a worker was lost with its process."""
    if guilty in (None, worker):
        return WorkerLost(worker, host.epitaph())
    return WorkerLost(worker, f"shared a process with worker {guilty}", with_another=True)
