"""Workers in actors of a Ray cluster, on all its machines: one in each actor, or several.

The coordinator pulls: an actor that has work has two calls to answer, each with one block of every
worker that has work, and gets another call when an answer is read. Signs of life are calls that an
actor answers in a thread of their own. Ray never restarts actors; the supervisor does.
An actor may be a relay to processes of its node. Then it returns what they have said.
"""

import time
from collections.abc import Mapping
from typing import Any

from quorate._warnings import warn
from quorate.data.placed import PlacedShards
from quorate.data.write import ShardSet
from quorate.engines.devices import CPU
from quorate.engines.faults import Handicap
from quorate.engines.frames import Frame, frames_in, packed_frame
from quorate.engines.placement import Held
from quorate.engines.ray.actors import Actor, Gpus, dealt, held_together
from quorate.engines.ray.cluster import Cluster, epitaph
from quorate.engines.ray.homes import Homes, no_site
from quorate.engines.ray.starts import BEATS, Starts
from quorate.engines.workers.service import (
    WarningsHeard,
    device_frame,
    events_of,
    setup_frame,
    task_frame,
)
from quorate.engines.workers.worker import Job
from quorate.errors import BadInputError, DeviceWarning
from quorate.protocol.messages import Event, Work, WorkerLost, WorkerMoved

_SECONDS_BETWEEN_BEATS = 1.0
_SECONDS_BETWEEN_LOOKS = 0.5  # at the nodes
_FORGETTING = 2.0  # seconds that actors have to remove their copies of rows
_FAILING = 1.0  # seconds for calls of actors that were killed to fail
_OVERDUE = 5.0  # seconds after which an actor that owes a sign of life cannot end a process


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
    n_actors
        With fewer than workers, they share them.
    is_per_node
        Whether there is one for each node, which uses all its cores.
    n_processes
        Processes that an actor of a node has for its workers, by default as many as the node has
        cores. With 1, it evaluates its shards itself, in as many threads.
    """

    def __init__(
        self,
        job: Job,
        held: Held,
        address: str | None = None,
        handicaps: Mapping[int, Handicap] | None = None,
        began_at: float = 0.0,
        gpus_per_worker: float = 0.0,
        n_actors: int | None = None,
        *,
        is_per_node: bool = False,
        n_processes: int | None = None,
    ) -> None:
        self._is_per_node, self._n_processes = is_per_node, n_processes
        self._slowed = {k for k, given in (handicaps or {}).items() if given != Handicap()}
        self._shards = job.placed or ShardSet.open(job.shard_folder)
        self._packed_setup = packed_frame(setup_frame(job, handicaps or {}))
        self._cluster = Cluster(address)
        self._ray = self._cluster.ray
        self._rows: dict[int, Any] = {}  # shards in the object store
        self._put_anew()
        self._actors: dict[int, Actor] = {}
        self._gpus = Gpus(self._cluster, gpus_per_worker)
        sites = job.sites(held)
        n_actors = len(self._cluster.nodes()) if is_per_node else n_actors or len(held)
        self._hosted = dealt(len(held), n_actors, sites)
        self._place_of = {k: place for place, hosted in enumerate(self._hosted) for k in hosted}
        at = {self._place_of[worker]: site for worker, site in sites.items()}
        together = held_together(held, self._hosted)
        self._homes = Homes(self._cluster, together, at, is_even=is_per_node)
        self._starts = Starts(self._ray, self._shards, is_soft=not at)
        self._to_tell: list[WorkerLost] = []
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
        placed = self._homes.placed
        return {k: placed[place] for k, place in self._place_of.items() if place in placed}

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._start_time

    def start(self, worker: int, attempt: int) -> None:
        """Start `worker` in its actor; a new one lives where holders of a shard are kept apart."""
        self.kill(worker)
        self._to_tell = [lost for lost in self._to_tell if lost.worker != worker]
        place = self._place_of[worker]
        if place not in self._actors:
            node = self._homes.choose(place)
            if node is None:
                self._to_tell.append(WorkerLost(worker, no_site(self._homes.sites[place])))
                return
            self._actors[place] = self._new_actor(place, node)
        self._actors[place].host(worker, attempt)

    def send(self, task: Work) -> None:
        """Give a task to its worker; a worker that is gone, or about to be, does not get it."""
        actor = self._actor_of(task.worker)
        if actor is not None:
            if actor.lacks_shards:
                self._deliver(actor, task.shards)
            actor.take(task, packed_frame(task_frame(task)))

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
        """End the process of `worker` at once, if it has one, with all workers that share it.

        If it is not an actor, its relay tells of the others. A relay that is silent is ended.
        """
        actor = self._actor_of(worker)
        if actor is None:
            return
        if actor.is_relay and actor.waited(time.monotonic()) < _OVERDUE:
            actor.end(worker)
        else:
            self._end(actor)
            why = f"shared an actor with worker {worker}"
            others = [k for k in actor.workers if k != worker]
            self._to_tell += [WorkerLost(k, why, with_another=True) for k in others]

    def pid(self, worker: int) -> int | None:
        """None: actors may be on any machine."""
        return None

    def close(self) -> None:
        """End all actors, and the cluster if it is ours."""
        self._forget()
        answers = [answer for actor in self._actors.values() for answer in actor.answers_to_come]
        for actor in self._actors.values():
            self._ray.kill(actor.handle)
        self._actors.clear()
        if answers:  # Ray once crashed when it ended while it was failing the calls of an actor
            self._ray.wait(answers, num_returns=len(answers), timeout=_FAILING, fetch_local=False)
        self._homes.close()
        self._rows.clear()
        self._cluster.close()

    def _actor_of(self, worker: int) -> Actor | None:
        """The actor that a worker was started in, if it is still there."""
        actor = self._actors.get(self._place_of[worker])
        return actor if actor is not None and worker in actor.workers else None

    def _end(self, actor: Actor) -> None:
        self._homes.ask_if_silent(actor.node, self._lives(), self._waited())
        self._ray.kill(self._actors.pop(actor.place).handle)

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
                actor.handle.forget.options(concurrency_group=BEATS).remote()
                for actor in self._actors.values()
            ]
            self._ray.wait(calls, num_returns=len(calls), timeout=_FORGETTING)

    def _new_actor(self, place: int, node: str) -> Actor:
        """A new actor on a node. The first call to it sends its device and the job."""
        n_gpus = self._gpus.of(node, len(self._hosted[place]), self._actors.values())
        if n_gpus is None:
            n_gpus = 0.0
            warn(
                f"Node {self._homes.host(node)} of the Ray cluster has too few GPUs for its "
                "workers. Those that get none compute on cores.",
                DeviceWarning,
            )
        n_cores = self._homes.cores(node) if self._is_per_node else 1
        hosted = self._hosted[place]
        n_processes = 1 if n_gpus else min(self._n_processes or n_cores, len(hosted))
        is_relay = n_processes > 1
        if is_relay:
            in_each = [hosted[process::n_processes] for process in range(n_processes)]
            handle = self._starts.relay(node, in_each, is_team=bool(self._team(place)))
        else:
            handle = self._starts.host(node, n_gpus)
        device = device_frame("gpu" if n_gpus else CPU, 1 if is_relay else n_cores)
        actor = Actor(place, node, handle, n_gpus, is_relay)
        actor.outgoing += [packed_frame(device), self._setup]
        return actor

    def _lives(self) -> dict[int, str]:
        return {place: actor.node for place, actor in self._actors.items()}

    def _waited(self) -> dict[int, float]:
        now = time.monotonic()
        return {place: actor.waited(now) for place, actor in self._actors.items()}

    def _looked(self) -> list[Event]:
        """Workers that are lost with their nodes, or that move, if it is time to look.

        Their actors are ended here, so that the workers of one can be told of one by one.
        """
        if time.monotonic() < self._next_look:
            return []
        self._next_look = time.monotonic() + _SECONDS_BETWEEN_LOOKS
        gone = self._homes.lost(self._lives(), self._waited())
        lost = [(self._ended(place), why) for place, why in gone]
        if lost:
            self._put_anew()
        at_ease = {place for place, actor in self._actors.items() if actor.is_at_ease}
        moves = self._homes.moves(self._lives(), at_ease)
        moved = [(self._ended(place), why) for place, why in moves]
        return [
            *(WorkerLost(k, why, with_another=True) for workers, why in lost for k in workers),
            *(WorkerMoved(k, why) for workers, why in moved for k in workers),
        ]

    def _ended(self, place: int) -> list[int]:
        """The workers of an actor, which is ended."""
        actor = self._actors[place]
        self._end(actor)
        return actor.workers

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
                ask = actor.handle.beat.options(concurrency_group=BEATS)
                actor.beat, actor.asked = ask.remote(), time.monotonic()
        return [event for beat in there for event in self._sign(beat, waiting[beat])]

    def _sign(self, answer: Any, actor: Actor) -> list[Event]:
        try:
            said = self._ray.get(answer)
        except self._ray.exceptions.RayError:  # the calls for work will tell
            return []
        return [beat for frame in frames_in(said) for beat in actor.beats(frame)]

    def _put_anew(self) -> None:
        """Put what actors need into the object store of this node, from where they get it.

        Nodes keep copies and get them from each other. If a node with a copy is gone, Ray waits
        half a minute for it. So the copies are made again after a node may have been lost.
        """
        self._setup = self._ray.put(self._packed_setup)
        self._rows.clear()

    def _deliver(self, actor: Actor, shards: tuple[int, ...]) -> None:
        for number in shards:
            if number not in actor.delivered:
                assert not isinstance(self._shards, PlacedShards)
                if number not in self._rows:
                    rows = dict(self._shards.shard(number))
                    self._rows[number] = self._ray.put((number, rows))
                actor.deliver(number, self._rows[number])

    def _heard(self, actor: Actor) -> list[Event]:
        try:
            answer = self._ray.get(actor.calls.popleft())
        except self._ray.exceptions.RayError as error:
            self._homes.suspect(actor.node)
            self._end(actor)
            self._put_anew()
            why = f"on node {self._homes.host(actor.node)}: {epitaph(error)}"
            return [WorkerLost(worker, why) for worker in actor.workers]
        events = [event for frame in frames_in(answer) for event in self._events(actor, frame)]
        actor.call()
        return events

    def _events(self, actor: Actor, frame: Frame) -> list[Event]:
        if frame.kind == "lacking":
            actor.lacks_shards = True
            return []
        if frame.kind == "warning":
            self._warnings.tell(**frame.fields)
            return []
        events = events_of(frame, actor.workers, self._team(actor.place))
        return [event for event in events if actor.said(event)]

    def _team(self, place: int) -> str:
        """Name of an actor that workers share; none if one of them is slow on purpose."""
        hosted = self._hosted[place]
        is_shared = len(hosted) > 1 and self._slowed.isdisjoint(hosted)
        return f"actor {place}" if is_shared else ""
