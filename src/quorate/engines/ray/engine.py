"""Workers as actors of a Ray cluster, one actor each, on all its machines.

The coordinator pulls: an actor that has work has two calls to answer, each with one block, and gets
another call when an answer is read. Signs of life are calls that an actor answers in a thread of
their own. Ray never restarts actors; the supervisor does.
"""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quorate._warnings import warn
from quorate.data.placed import PlacedShards
from quorate.data.write import ShardSet
from quorate.engines.devices import CPU
from quorate.engines.faults import Handicap
from quorate.engines.frames import Frame, frames_in, packed_frame
from quorate.engines.placement import Held
from quorate.engines.ray.cluster import Cluster, epitaph
from quorate.engines.ray.homes import Homes, no_site, on
from quorate.engines.ray.host import Host
from quorate.engines.workers.service import (
    WarningsHeard,
    device_frame,
    doing_of,
    environment,
    events_of,
    setup_frame,
    task_frame,
)
from quorate.engines.workers.worker import Job
from quorate.errors import BadInputError, DeviceWarning
from quorate.protocol.messages import (
    Answer,
    Beat,
    Block,
    Event,
    Task,
    Work,
    WorkerJoined,
    WorkerLost,
    WorkerMoved,
)

_CALLS = 2  # that an actor has to answer at a time
_SECONDS_BETWEEN_BEATS = 1.0
_SECONDS_BETWEEN_LOOKS = 0.5  # at the nodes
_FORGETTING = 2.0  # seconds that actors have to remove their copies of rows
_BEATS = "beats"  # the threads of an actor that answer for signs of life


@dataclass
class _Actor:
    """One actor, and the messages under way to it and back."""

    worker: int
    node: str
    handle: Any
    calls: deque[Any] = field(default_factory=deque)  # answers to come, in order
    outgoing: list[bytes] = field(default_factory=list)  # tasks to go with the next call
    n_gpus: float = 0.0
    n_owed: int = 0  # draws and points asked for and not yet received
    lacks_shards: bool = False
    delivered: set[int] = field(default_factory=set)
    beat: Any = None  # the answer to come
    asked: float = 0.0  # when it was asked for that
    next_beat: float = 0.0
    has_joined: bool = False
    has_answered: bool = False

    @property
    def is_at_ease(self) -> bool:
        """Whether little is lost if it ends: it has no work, or has sent some of its results."""
        return self.has_joined and (self.has_answered or not self.n_owed)

    def waited(self, now: float) -> float:
        """Seconds that it has owed a sign of life."""
        return 0.0 if self.beat is None else now - self.asked


class RayEngine:
    """Actors that workers live in.

    Parameters
    ----------
    job
        What workers draw from, the same for all.
    held
        The shards of every worker: holders of one shard live on different nodes if they can.
    address
        Address of a running cluster; None to start one on this machine, see `ray_cluster`.
    handicaps
        Delays put in on purpose, by worker.
    began_at
        Seconds that earlier sittings of the run took.
    gpus_per_worker
        GPUs that a worker owns, as long as its node has any left.
    """

    def __init__(
        self,
        job: Job,
        held: Held,
        address: str | None = None,
        handicaps: Mapping[int, Handicap] | None = None,
        began_at: float = 0.0,
        gpus_per_worker: float = 0.0,
    ) -> None:
        self._share = gpus_per_worker
        self._gpus: dict[str, float] = {}  # of each node, that were free before we used it
        self._shards = job.placed or ShardSet.open(job.shard_folder)
        self._packed_setup = packed_frame(setup_frame(job, handicaps or {}))
        self._cluster = Cluster(address)
        self._ray = self._cluster.ray
        self._rows: dict[int, Any] = {}  # shards in the object store
        self._put_anew()
        self._actors: dict[int, _Actor] = {}
        self._homes = Homes(self._cluster, held, job.sites(held))
        self._to_tell: list[Event] = []
        self._next_look = 0.0
        self._warnings = WarningsHeard()
        self._start_time = time.monotonic() - began_at
        self._require_sites()

    def __enter__(self) -> "RayEngine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def placed(self) -> dict[int, str]:
        """The node of every worker."""
        return self._homes.placed

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._start_time

    def start(self, worker: int, attempt: int) -> None:
        """Start an actor for `worker`, on the node that keeps holders of a shard apart."""
        self.kill(worker)
        node = self._homes.choose(worker)
        if node is None:
            self._to_tell.append(WorkerLost(worker, no_site(self._homes.sites[worker])))
            return
        n_gpus = self._gpus_for(node)
        actor = _Actor(worker, node, self._new_host(node, n_gpus), n_gpus=n_gpus)
        self._actors[worker] = actor
        device = packed_frame(device_frame("gpu" if n_gpus else CPU))
        frame = packed_frame(Frame("host", {"worker": worker, "attempt": attempt}))
        actor.calls.append(actor.handle.turn.remote(device, self._setup, frame))

    def send(self, task: Work) -> None:
        """Give a task to its worker; a worker that is gone, or about to be, does not get it."""
        actor = self._actors.get(task.worker)
        if actor is not None:
            if actor.lacks_shards:
                self._deliver(actor, task.shards)
            actor.outgoing.append(packed_frame(task_frame(task)))
            actor.n_owed += task.n_draws if isinstance(task, Task) else 1
            self._call(actor)

    def poll(self, timeout: float) -> list[Event]:
        """Events so far; none if nothing happens within `timeout` seconds."""
        told = [*self._to_tell, *self._beats(), *self._looked()]
        self._to_tell = []
        first = {actor.calls[0]: actor for actor in self._actors.values() if actor.calls}
        if not first:
            time.sleep(0 if told else timeout)
            return told
        answers = list(first)
        answered, _ = self._ray.wait(answers, timeout=0 if told else timeout)
        if answered and len(answers) > 1:
            answered, _ = self._ray.wait(answers, num_returns=len(answers), timeout=0)
        return [*told, *(event for answer in answered for event in self._heard(first[answer]))]

    def kill(self, worker: int) -> None:
        """End the actor of `worker` at once, if it has one."""
        if worker in self._actors:
            node = self._actors[worker].node
            self._homes.ask_if_silent(node, self._lives(), self._waited())
            self._ray.kill(self._actors.pop(worker).handle)

    def pid(self, worker: int) -> int | None:
        """None: actors may be on any machine."""
        return None

    def close(self) -> None:
        """End all actors, and the cluster if it is ours."""
        self._forget()
        for actor in self._actors.values():
            self._ray.kill(actor.handle)
        self._actors.clear()
        self._homes.close()
        self._rows.clear()
        self._cluster.close()

    def _require_sites(self) -> None:
        """Raise if a site is not in the cluster. One that is lost later may come back."""
        for site in self._homes.sites.values():
            if self._cluster.node_of(site) is None:
                self.close()
                raise BadInputError(f"Rows cannot be read: {no_site(site)}.")

    def _forget(self) -> None:
        """Have actors remove what they copied of rows in place, but for the run that follows."""
        if isinstance(self._shards, PlacedShards) and self._shards.fingerprints and self._actors:
            calls = [
                actor.handle.forget.options(concurrency_group=_BEATS).remote()
                for actor in self._actors.values()
            ]
            self._ray.wait(calls, num_returns=len(calls), timeout=_FORGETTING)

    def _gpus_for(self, node: str) -> float:
        """GPUs of a new worker on a node: its share, or none if others have them all."""
        if not self._share:
            return 0.0
        if node not in self._gpus:
            self._gpus[node] = self._cluster.free_gpus(node)
        given = [actor.n_gpus for actor in self._actors.values() if actor.node == node]
        left = self._gpus[node] - sum(given)
        if left >= self._share:
            return self._share
        warn(
            f"Node {self._homes.host(node)} of the Ray cluster has too few GPUs for its workers. "
            "Those that get none compute on cores.",
            DeviceWarning,
        )
        return 0.0

    def _new_host(self, node: str, n_gpus: float) -> Any:
        """An actor that reserves no core: there may be more workers than cores.

        It reserves one byte of memory, because Ray ignores the node for actors without resources.
        """
        resources = {"num_cpus": 0, "num_gpus": n_gpus, "memory": 1, "max_restarts": 0}
        actor_class = self._ray.remote(**resources, concurrency_groups={_BEATS: 1})(Host)
        options = {
            "runtime_env": {"env_vars": environment()},
            **on(node, soft=not self._homes.sites),
        }
        return actor_class.options(**options).remote(self._shards.fingerprint)

    def _lives(self) -> dict[int, str]:
        return {worker: actor.node for worker, actor in self._actors.items()}

    def _waited(self) -> dict[int, float]:
        now = time.monotonic()
        return {worker: actor.waited(now) for worker, actor in self._actors.items()}

    def _looked(self) -> list[Event]:
        """Workers that are lost with their nodes, or that move, if it is time to look."""
        if time.monotonic() < self._next_look:
            return []
        self._next_look = time.monotonic() + _SECONDS_BETWEEN_LOOKS
        lost = self._homes.lost(self._lives(), self._waited())
        for leaving in lost:
            self.kill(leaving.worker)
        if lost:
            self._put_anew()
        at_ease = {worker for worker, actor in self._actors.items() if actor.is_at_ease}
        moves = self._homes.moves(self._lives(), at_ease)
        return [
            *(WorkerLost(*leaving, with_another=True) for leaving in lost),
            *(WorkerMoved(*leaving) for leaving in moves),
        ]

    def _beats(self) -> list[Event]:
        """Signs of life that have arrived; asks for the next ones when it is time."""
        waiting = {actor.beat: actor for actor in self._actors.values() if actor.beat is not None}
        there: list[Any] = []
        if waiting:
            there, _ = self._ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
        for actor in [waiting[beat] for beat in there]:
            actor.beat, actor.next_beat = None, time.monotonic() + _SECONDS_BETWEEN_BEATS
        for actor in self._actors.values():
            if actor.beat is None and time.monotonic() >= actor.next_beat:
                ask = actor.handle.beat.options(concurrency_group=_BEATS)
                actor.beat, actor.asked = ask.remote(), time.monotonic()
        return [event for beat in there for event in self._sign(beat, waiting[beat].worker)]

    def _sign(self, answer: Any, worker: int) -> list[Event]:
        try:
            said = self._ray.get(answer)
        except self._ray.exceptions.RayError:  # the calls for work will tell
            return []
        return [Beat(worker, doing_of(frame)) for frame in frames_in(said)]

    def _call(self, actor: _Actor) -> None:
        while actor.n_owed and len(actor.calls) < _CALLS:
            outgoing, actor.outgoing = actor.outgoing, []
            actor.calls.append(actor.handle.turn.remote(*outgoing))

    def _put_anew(self) -> None:
        """Put what actors need into the object store of this node, from where they get it.

        Nodes keep copies and get them from each other. If a node with a copy is gone, Ray waits
        half a minute for it. So the copies are made again after a node may have been lost.
        """
        self._setup = self._ray.put(self._packed_setup)
        self._rows.clear()

    def _deliver(self, actor: _Actor, shards: tuple[int, ...]) -> None:
        for number in shards:
            if number not in actor.delivered:
                assert not isinstance(self._shards, PlacedShards)
                if number not in self._rows:
                    self._rows[number] = self._ray.put(dict(self._shards.shard(number)))
                actor.handle.deliver.remote(number, self._rows[number])
                actor.delivered.add(number)

    def _heard(self, actor: _Actor) -> list[Event]:
        try:
            answer = self._ray.get(actor.calls.popleft())
        except self._ray.exceptions.RayError as error:
            self._homes.suspect(actor.node)
            self.kill(actor.worker)
            self._put_anew()
            why = f"on node {self._homes.host(actor.node)}: {epitaph(error)}"
            return [WorkerLost(actor.worker, why)]
        events = [event for frame in frames_in(answer) for event in self._events(actor, frame)]
        self._call(actor)
        return events

    def _events(self, actor: _Actor, frame: Frame) -> list[Event]:
        if frame.kind == "lacking":
            actor.lacks_shards = True
            return []
        if frame.kind == "warning":
            self._warnings.tell(**frame.fields)
            return []
        events = events_of(frame, [actor.worker])
        for event in events:
            if isinstance(event, Block):
                actor.n_owed -= len(event.payload)
            elif isinstance(event, Answer):
                actor.n_owed -= 1
            actor.has_joined |= isinstance(event, WorkerJoined)
            actor.has_answered |= isinstance(event, Answer)
        return events
