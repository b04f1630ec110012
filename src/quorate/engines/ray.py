"""Workers as actors of a Ray cluster, one actor each, on all its machines.

The coordinator pulls: an actor that has work has two calls to answer, each with one block, and gets
another call when an answer is read. Signs of life are calls that an actor answers in a thread of
their own. Ray never restarts actors; the supervisor does.

Ray takes about a minute to declare a node dead. A node whose workers have all gone silent is
avoided at once, until it answers a question of its own.
"""

import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from quorate._warnings import warn
from quorate.data.write import ShardSet
from quorate.engines.devices import CPU
from quorate.engines.faults import Handicap
from quorate.engines.frames import Frame, frames_in, packed_frame
from quorate.engines.placement import Held, is_silent, place, placement, usable
from quorate.engines.ray_cluster import Cluster
from quorate.engines.ray_host import Host
from quorate.engines.service import (
    WarningsHeard,
    device_frame,
    doing_of,
    environment,
    events_of,
    setup_frame,
    task_frame,
)
from quorate.engines.worker import Job
from quorate.errors import DeviceWarning
from quorate.protocol.messages import Answer, Beat, Block, Event, Task, Work, WorkerLost

_CALLS = 2  # that an actor has to answer at a time
_SECONDS_BETWEEN_BEATS = 1.0
_BEATS = "beats"  # the threads of an actor that answer for signs of life


@dataclass
class _Actor:
    """One actor, and the messages under way to it and back."""

    worker: int
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
        self._held = held
        self._share = gpus_per_worker
        self._shards = ShardSet.open(job.shard_folder)
        setup = packed_frame(setup_frame(job, handicaps or {}))
        self._cluster = Cluster(address)
        self._ray = self._cluster.ray
        self._setup = self._ray.put(setup)
        self._rows: dict[int, Any] = {}  # shards in the object store, of which there is one copy
        self._actors: dict[int, _Actor] = {}
        self.placed: dict[int, str] = {}
        self._asked: dict[str, Any] = {}  # nodes that were silent, with their answers to come
        self._warnings = WarningsHeard()
        self._start_time = time.monotonic() - began_at

    def __enter__(self) -> "RayEngine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._start_time

    def start(self, worker: int, attempt: int) -> None:
        """Start an actor for `worker`, on the node that keeps holders of a shard apart."""
        self.kill(worker)
        nodes = usable(self._cluster.nodes(), self._silent_nodes())
        if not self.placed:
            self.placed = placement(self._held, nodes)
        else:
            self.placed[worker] = place(worker, self._held, nodes, self.placed)
        node = self.placed[worker]
        n_gpus = self._gpus_for(node)
        actor = _Actor(worker, self._new_host(node, n_gpus), n_gpus=n_gpus)
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
        beats = self._beats()
        first = {actor.calls[0]: actor for actor in self._actors.values() if actor.calls}
        if not first:
            time.sleep(0 if beats else timeout)
            return beats
        answers = list(first)
        answered, _ = self._ray.wait(answers, timeout=0 if beats else timeout)
        if answered and len(answers) > 1:
            answered, _ = self._ray.wait(answers, num_returns=len(answers), timeout=0)
        return [*beats, *(event for answer in answered for event in self._heard(first[answer]))]

    def kill(self, worker: int) -> None:
        """End the actor of `worker` at once, if it has one."""
        if worker in self._actors:
            self._suspect(self.placed[worker])
            self._ray.kill(self._actors.pop(worker).handle)

    def pid(self, worker: int) -> int | None:
        """None: actors may be on any machine."""
        return None

    def close(self) -> None:
        """End all actors, and the cluster if it is ours."""
        for actor in self._actors.values():
            self._ray.kill(actor.handle)
        self._actors.clear()
        self._asked.clear()
        self._rows.clear()
        self._cluster.close()

    def _gpus_for(self, node: str) -> float:
        """GPUs of a new worker on a node: its share, or none if the others there have them all."""
        if not self._share:
            return 0.0
        given = [a.n_gpus for k, a in self._actors.items() if self.placed[k] == node]
        left = self._cluster.gpus().get(node, 0.0) - sum(given)
        if left >= self._share:
            return self._share
        warn("A node of the Ray cluster has no GPU left. Workers there use cores.", DeviceWarning)
        return 0.0

    def _new_host(self, node: str, n_gpus: float) -> Any:
        """An actor that reserves no core: there may be more workers than cores.

        It reserves one byte of memory, because Ray ignores the node for actors without resources.
        """
        resources = {"num_cpus": 0, "num_gpus": n_gpus, "memory": 1, "max_restarts": 0}
        actor_class = self._ray.remote(**resources, concurrency_groups={_BEATS: 1})(Host)
        options = {"runtime_env": {"env_vars": environment()}, **_on(node, soft=True)}
        return actor_class.options(**options).remote(self._shards.fingerprint)

    def _suspect(self, node: str) -> None:
        """Ask a node for an answer, if none of its workers gives any."""
        now = time.monotonic()
        waited = {
            k: 0.0 if actor.beat is None else now - actor.asked for k, actor in self._actors.items()
        }
        if node not in self._asked and is_silent(node, self.placed, waited):
            question = self._ray.remote(num_cpus=0, max_retries=0)(lambda: None)
            self._asked[node] = question.options(**_on(node, soft=False)).remote()

    def _silent_nodes(self) -> set[str]:
        """Nodes that were silent and have not answered since."""
        for node, answer in list(self._asked.items()):
            answered, _ = self._ray.wait([answer], timeout=0)
            with suppress(self._ray.exceptions.RayError):  # Ray gives it up
                if self._ray.get(answered):
                    del self._asked[node]
        return set(self._asked)

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

    def _deliver(self, actor: _Actor, shards: tuple[int, ...]) -> None:
        for number in shards:
            if number not in actor.delivered:
                if number not in self._rows:
                    self._rows[number] = self._ray.put(dict(self._shards.shard(number)))
                actor.handle.deliver.remote(number, self._rows[number])
                actor.delivered.add(number)

    def _heard(self, actor: _Actor) -> list[Event]:
        try:
            answer = self._ray.get(actor.calls.popleft())
        except self._ray.exceptions.RayError as error:
            self.kill(actor.worker)
            return [WorkerLost(actor.worker, _epitaph(error))]
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
        return events


def _on(node: str, *, soft: bool) -> dict[str, Any]:
    """The option that has Ray use a node; with `soft`, another one if it is gone."""
    strategies = import_module("ray.util.scheduling_strategies")
    strategy = strategies.NodeAffinitySchedulingStrategy(node, soft=soft)
    return {"scheduling_strategy": strategy}


def _epitaph(error: Exception) -> str:
    """The reason that Ray gives for the end of an actor, in one line."""
    lines = [line for line in str(error).splitlines() if not line.startswith("\t")]
    return " ".join(" ".join(lines).split())
