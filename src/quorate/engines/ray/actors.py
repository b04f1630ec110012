"""The actors of a run on Ray: which workers share one, and what is under way to each and back."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quorate.engines.frames import Frame, packed_frame
from quorate.engines.placement import Held
from quorate.engines.ray.cluster import Cluster
from quorate.engines.ray.relay import CALLS_HELD
from quorate.protocol.messages import (
    Answer,
    Beat,
    Block,
    Doing,
    Event,
    Task,
    Work,
    WorkerFailed,
    WorkerJoined,
    WorkerLost,
)

_CALLS = 2  # that an actor has to answer at a time
CALLS_OF_RELAY = CALLS_HELD + 2  # at most: so some are always on their way back


@dataclass
class Actor:
    """One actor, the workers that were started in it, and the messages under way."""

    place: int  # its number
    node: str
    handle: Any
    n_gpus: float = 0.0
    is_relay: bool = False  # whether workers live in processes of its own
    workers: list[int] = field(default_factory=list)
    calls: deque[Any] = field(default_factory=deque)  # answers to come, in order
    outgoing: list[Any] = field(default_factory=list)  # frames to go with the next call
    n_calls: int = 0  # so far
    owed: Counter[int] = field(default_factory=Counter)  # draws and answers to come, by worker
    lacks_shards: bool = False
    delivered: set[int] = field(default_factory=set)
    beat: Any = None  # the answer to come
    asked: float = 0.0  # when it was asked for that
    next_beat: float = 0.0
    joined: set[int] = field(default_factory=set)
    has_answered: bool = False

    @property
    def answers_to_come(self) -> list[Any]:
        """References to all that it was asked and has not answered."""
        return [*self.calls, *([] if self.beat is None else [self.beat])]

    @property
    def is_at_ease(self) -> bool:
        """Whether little is lost if it ends: it has no work, or has sent some of its results."""
        has_joined = len(self.joined) == len(self.workers)
        return has_joined and (self.has_answered or not self.owed.total())

    def waited(self, now: float) -> float:
        """Seconds that it has owed a sign of life."""
        return 0.0 if self.beat is None else now - self.asked

    def host(self, worker: int, attempt: int) -> None:
        """Start a worker in the actor."""
        self.workers.append(worker)
        self.outgoing.append(packed_frame(Frame("host", {"worker": worker, "attempt": attempt})))
        self.call()

    def take(self, task: Work, packed: bytes) -> None:
        """Send the actor a task, packed as a frame."""
        self.outgoing.append(packed)
        self.owed[task.worker] += task.n_draws if isinstance(task, Task) else 1
        self.call()

    def end(self, worker: int) -> None:
        """Have a relay end the process of a worker."""
        self._lose(worker)
        self.outgoing.append(packed_frame(Frame("end", {"worker": worker})))
        self.call()

    def deliver(self, number: int, shard: Any) -> None:
        """Send the actor a shard that it does not see, from the object store."""
        self.delivered.add(number)
        if self.is_relay:
            self.outgoing.append(shard)  # calls to a relay may overtake each other
        else:
            self.handle.deliver.remote(shard)

    def call(self) -> None:
        """Call the actor with all outgoing frames, unless it has enough calls to answer."""
        while self._may_call():
            outgoing, self.outgoing = self.outgoing, []
            numbered = [self.n_calls, *outgoing] if self.is_relay else outgoing
            self.calls.append(self.handle.turn.remote(*numbered))
            self.n_calls += 1

    def said(self, event: Event) -> bool:
        """Count what has arrived from it; whether that is not of a worker that was ended."""
        if isinstance(event, Answer):
            worker = event.task.worker
            if worker not in self.joined:
                return False
            self.owed[worker] -= len(event.payload) if isinstance(event, Block) else 1
            self.has_answered = True
        elif isinstance(event, WorkerJoined | WorkerLost | WorkerFailed):
            if event.worker not in self.workers:
                return False
            if isinstance(event, WorkerJoined):
                self.joined.add(event.worker)
            elif isinstance(event, WorkerLost):
                self._lose(event.worker)
        return True

    def beats(self, sign: Frame) -> list[Beat]:
        """What a sign of life says of workers that live in it.

        One worker of a process that others wait for is to blame if they wait in vain.
        """
        if sign.kind == "beat":
            return [Beat(worker, Doing(**sign.fields)) for worker in self.workers]
        told, there = sign.fields, set(self.workers)
        doing = told["doing"] and Doing(**told["doing"])
        workers = [worker for worker in told["workers"] if worker in there]
        beats = [Beat(worker, doing, told["is_stopped"]) for worker in workers]
        return [beat._replace(is_needed=told["is_needed"]) for beat in beats[:1]] + beats[1:]

    def _may_call(self) -> bool:
        """A relay always has a call to answer, so that it can tell what happens."""
        n = len(self.calls)
        if self.is_relay:
            return not n or (bool(self.outgoing) and n < CALLS_OF_RELAY)
        return bool(self.outgoing or self.owed.total() > 0) and n < _CALLS

    def _lose(self, worker: int) -> None:
        self.workers.remove(worker)
        self.joined.discard(worker)
        del self.owed[worker]


class Gpus:
    """GPUs of the nodes, of which every worker owns a `share`."""

    def __init__(self, cluster: Cluster, share: float) -> None:
        self._cluster, self._share = cluster, share
        self._free: dict[str, float] = {}  # GPUs of each node, before we used it

    def of(self, node: str, n_workers: int, actors: Iterable[Actor]) -> float | None:
        """GPUs of a new actor on a node; None if the others there leave too few.

        Workers that share an actor have their shares in one GPU.
        """
        if not self._share:
            return 0.0
        if node not in self._free:
            self._free[node] = self._cluster.free_gpus(node)
        share = max(self._share, round(min(n_workers * self._share, 1.0), 4))
        left = self._free[node] - sum(actor.n_gpus for actor in actors if actor.node == node)
        return share if left >= share else None


def dealt(n_workers: int, n_actors: int, sites: Mapping[int, str]) -> list[list[int]]:
    """The workers of each actor. Those with rows of one site share no actor with others.

    There is at least one actor for each site.
    """
    by_site: dict[str | None, list[int]] = {}
    for worker in range(n_workers):
        by_site.setdefault(sites.get(worker), []).append(worker)
    actors = []
    for workers in by_site.values():
        n = min(max(n_actors * len(workers) // n_workers, 1), len(workers))
        actors += [workers[place::n] for place in range(n)]
    return actors


def held_together(held: Held, actors: list[list[int]]) -> list[tuple[int, ...]]:
    """The shards of each actor: those of all its workers."""
    return [tuple(sorted({s for k in workers for s in held[k]})) for workers in actors]
