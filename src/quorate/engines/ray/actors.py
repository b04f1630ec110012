"""The actors of a run on Ray: which workers share one, and what is under way to each and back."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quorate.engines.frames import Frame, packed_frame
from quorate.engines.placement import Held
from quorate.engines.ray.cluster import Cluster
from quorate.protocol.messages import Answer, Block, Event, Task, Work, WorkerJoined

_CALLS = 2  # that an actor has to answer at a time


@dataclass
class Actor:
    """One actor, the workers that were started in it, and the messages under way."""

    place: int  # its number
    node: str
    handle: Any
    n_gpus: float = 0.0
    workers: list[int] = field(default_factory=list)
    calls: deque[Any] = field(default_factory=deque)  # answers to come, in order
    outgoing: list[Any] = field(default_factory=list)  # frames to go with the next call
    n_owed: int = 0  # draws and points asked for and not yet received
    lacks_shards: bool = False
    delivered: set[int] = field(default_factory=set)
    beat: Any = None  # the answer to come
    asked: float = 0.0  # when it was asked for that
    next_beat: float = 0.0
    joined: set[int] = field(default_factory=set)
    has_answered: bool = False

    @property
    def is_at_ease(self) -> bool:
        """Whether little is lost if it ends: it has no work, or has sent some of its results."""
        has_joined = len(self.joined) == len(self.workers)
        return has_joined and (self.has_answered or not self.n_owed)

    def waited(self, now: float) -> float:
        """Seconds that it has owed a sign of life."""
        return 0.0 if self.beat is None else now - self.asked

    def host(self, worker: int, attempt: int) -> None:
        """Start a worker in it."""
        self.workers.append(worker)
        self.outgoing.append(packed_frame(Frame("host", {"worker": worker, "attempt": attempt})))
        self.call()

    def take(self, task: Work, packed: bytes) -> None:
        """Give it a task, packed as a frame."""
        self.outgoing.append(packed)
        self.n_owed += task.n_draws if isinstance(task, Task) else 1
        self.call()

    def call(self) -> None:
        """Have it take what is outgoing and go on working, unless it has enough calls to answer."""
        while (self.outgoing or self.n_owed) and len(self.calls) < _CALLS:
            outgoing, self.outgoing = self.outgoing, []
            self.calls.append(self.handle.turn.remote(*outgoing))

    def said(self, event: Event) -> None:
        """Count what has arrived from it."""
        if isinstance(event, Block):
            self.n_owed -= len(event.payload)
        elif isinstance(event, Answer):
            self.n_owed -= 1
        elif isinstance(event, WorkerJoined):
            self.joined.add(event.worker)
        self.has_answered |= isinstance(event, Answer)


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
