"""Who surveys which shard next, what surveys found, and who was told how shards were prepared.

Workers that share a process take turns. If all of them were asked at once, most surveys would wait
for others in the same process, seem late, and be asked for again elsewhere.

A device beside cores surveys one of its shards itself, if it starts within two minutes: it measures
how many points fill it, and the ensembles become as large as that.

A survey may come with a recipe: how the model prepared the shard. The other holders of the shard
follow it, which saves them a search.
"""

from collections.abc import Collection, Iterator
from math import inf

import numpy as np

from quorate._types import Array
from quorate.protocol.allocation import Allocation
from quorate.protocol.messages import RECIPE, Arrays

_PATIENCE = 120.0  # seconds for a device to start, after the first worker


class Surveying:
    """Whose turn it is, in every process, and which shards are kept for a device.

    Parameters
    ----------
    devices
        Workers that compute on a device, where others do not.
    """

    def __init__(self, allocation: Allocation, devices: Collection[int]) -> None:
        self._kept_for = dict(_kept(allocation, devices))
        self._absent = set(self._kept_for.values())
        self._given_up: set[int] = set()
        self._limit = inf
        self._process_of: dict[int, str] = {}
        self._at_work: dict[str, int] = {}
        self._waiting: dict[str, dict[int, None]] = {}
        self._called: list[int] = []
        self.found: dict[int, Arrays] = {}  # by the survey of each shard
        self._told: dict[int, set[int]] = {}  # shards of which a worker has the recipe

    def joined(self, worker: int, process: str, now: float) -> None:
        """Take in where a worker lives; an empty name is a process of its own."""
        self._process_of[worker] = process or f"worker {worker}"
        self._absent.discard(worker)
        self._given_up.discard(worker)
        self._limit = min(self._limit, now + _PATIENCE)

    def may(self, worker: int, shard: int) -> bool:
        """Whether a shard is not kept for another worker."""
        keeper = self._kept_for.get(shard, worker)
        return keeper == worker or keeper in self._given_up

    @property
    def limit(self) -> float:
        """When devices that have not joined are no longer waited for; infinity if all have."""
        return self._limit if self._absent else inf

    def give_up(self, now: float) -> bool:
        """Wait no longer for devices, if it is time; whether that is so."""
        if now < self.limit:
            return False
        self._given_up |= self._absent
        self._absent.clear()
        return True

    def is_free(self, worker: int) -> bool:
        """Whether nobody else in its process is at work. If not, the worker waits for its turn."""
        process = self._process_of.get(worker, "")
        if self._at_work.get(process, worker) == worker:
            return True
        self._waiting.setdefault(process, {})[worker] = None
        return False

    def begin(self, worker: int) -> None:
        """Take in that a worker is at work."""
        if worker in self._process_of:
            self._at_work[self._process_of[worker]] = worker

    def end(self, worker: int) -> None:
        """Take in that a worker is done: those of its process that wait are called.

        The first of them that there is work for takes the turn, and the others wait again.
        """
        process = self._process_of.get(worker, "")
        if self._at_work.get(process) == worker:
            del self._at_work[process]
            self._called += self._waiting.pop(process, ())

    def lost(self, worker: int) -> bool:
        """Take in that a worker is gone, and no longer waits; whether others may do its part."""
        self._waiting.get(self._process_of.get(worker, ""), {}).pop(worker, None)
        self.end(worker)
        self._absent.discard(worker)
        self._given_up.add(worker)
        self._told.pop(worker, None)  # the one in its place has no recipes
        return worker in self._kept_for.values()

    def called(self) -> list[int]:
        """Workers whose turn it may have become since the last call."""
        called, self._called = self._called, []
        return called

    def recipes(self, worker: int, shards: Collection[int]) -> Array | None:
        """How these shards were prepared, one row each; None if the worker was told before.

        None, too, if not all have a recipe. Those of one model have the same shape.
        """
        told = self._told.setdefault(worker, set())
        if told.issuperset(shards):
            return None
        known = [self.found[s][RECIPE] for s in shards if RECIPE in self.found.get(s, {})]
        if len(known) < len(shards) or len({of.shape for of in known}) > 1:
            return None
        told.update(shards)
        return np.stack(known)


def _kept(allocation: Allocation, devices: Collection[int]) -> Iterator[tuple[int, int]]:
    """A shard for each device, of its own: the first that is not kept for another."""
    taken: set[int] = set()
    for worker in devices:
        shard = next((s for s in allocation.shards_of(worker) if s not in taken), None)
        if shard is not None:
            taken.add(shard)
            yield shard, worker
