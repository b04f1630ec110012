"""Local parameters after a run: the schedule of the tasks that compute them.

One piece of work is a shard and a block of points, which are draws of the global parameters. Any
holder of the shard may be asked for it, and the first answer counts. A piece that is late is asked
of another holder. Answers are added or put together in the order of the points, so results do not
depend on who computed what, nor on when it came.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quorate._types import Array, IntArray
from quorate.models.groups.levels import Moments
from quorate.numerics.named_arrays import AnyArray, parts
from quorate.protocol.allocation import Allocation
from quorate.protocol.messages import NOTHING, Arrays, Local, LocalFound
from quorate.protocol.requests import Key, Requests
from quorate.protocol.scheme import NOBODY

BLOCK = 128  # points of one piece of work, for draws
_LANE = 0  # of all requests
_KEYS = {True: {"groups", "centres", "sums"}, False: {"groups", "draws"}}  # of moments, of draws
LevelDraws = tuple[IntArray, Array]  # codes of groups (m,), draws (n_points, m, q)


@dataclass(frozen=True, eq=False)
class LocalQuestion:
    """What is asked of workers.

    Parameters
    ----------
    points
        Draws of the global parameters, (n_points, d).
    numbers
        Which draws of the run these are, (n_points,).
    widths
        Number of parameters of a group, level by level.
    shards
        Shards to ask for.
    groups
        Codes of the groups to draw from, by shard; None for moments of all groups.
    """

    points: Array
    numbers: IntArray
    widths: tuple[int, ...]
    shards: tuple[int, ...]
    groups: Mapping[int, IntArray] | None = None

    @property
    def block(self) -> int:
        """Points of one piece of work: all for moments, as a shard is prepared for its points."""
        return len(self.points) if self.groups is None else BLOCK

    @property
    def firsts(self) -> range:
        """The first point of each block."""
        return range(0, len(self.points), self.block)

    @property
    def n_pieces(self) -> int:
        """Pieces of work."""
        return len(self.shards) * len(self.firsts)

    def task(self, worker: int, shard: int, first: int) -> Local:
        """One piece of work, for a worker."""
        block = slice(first, first + self.block)
        groups = None if self.groups is None else self.groups[shard]
        return Local(worker, (shard,), first, self.points[block], self.numbers[block], groups)

    def fault_in(self, answer: LocalFound) -> str:
        """Why an answer cannot be one; an empty string if it can."""
        levels = parts(answer.found)
        if set(levels) != {str(i) for i in range(len(self.widths))}:
            return f"local parameters of levels {', '.join(levels)} came"
        n_points = min(self.block, len(self.points) - answer.task.first_point)
        for i, width in enumerate(self.widths):
            wrong = self._fault_in_level(levels[str(i)], n_points, width)
            if wrong:
                return wrong
        return ""

    def _fault_in_level(self, found: Arrays, n_points: int, width: int) -> str:
        if set(found) != _KEYS[self.groups is None]:
            return f"local parameters have {', '.join(found)}"
        m = len(found["groups"])
        shapes = {"centres": (m, width), "sums": (3, m, width), "draws": (n_points, m, width)}
        for name, array in found.items():
            expected = shapes.get(name, (m,))
            if array.shape != expected:
                return f"{name} have shape {array.shape}, where it should be {expected}"
            if not np.isfinite(array).all():
                return f"{name} are not finite"
        return ""


class LocalSchedule:
    """Who computes which local parameters next, and what is known.

    Attributes
    ----------
    now
        The time, as the coordinator was told it.
    """

    quarantined = NOBODY

    def __init__(self, allocation: Allocation, question: LocalQuestion) -> None:
        self.allocation = allocation
        self.question = question
        self.now = 0.0
        self._requests = Requests()
        self._firsts = question.firsts
        self._found: dict[int, dict[int, Arrays]] = {shard: {} for shard in question.shards}
        self._sums: dict[int, Arrays] = {}  # over the first blocks of each shard
        self._n_summed = dict.fromkeys(question.shards, 0)  # blocks

    @property
    def n_complete(self) -> int:
        """Pieces of work that are done."""
        return sum(map(len, self._found.values()))

    def next_task(self, worker: int, n_draws: int | None) -> Local | None:
        key = self._requests.choose(worker, self._lacking(worker), self.now)
        return None if key is None else self.question.task(worker, key[1], key[2])

    def receive(self, answer: LocalFound) -> int:
        task = answer.task
        (shard,) = task.shards
        self._requests.answered(task.worker, _key(shard, task.first_point), self.now)
        self._found[shard].setdefault(task.first_point, answer.found)
        if self.question.groups is None:
            self._add_up(shard)
        return self.n_complete

    def _add_up(self, shard: int) -> None:
        """Add moments in the order of the points, as far as they are there, and keep the sums."""
        found = self._found[shard]
        for first in self._firsts[self._n_summed[shard] :]:
            if first not in found:
                return
            answer, found[first] = found[first], NOTHING
            before = self._sums.get(shard)
            self._sums[shard] = answer if before is None else _added(before, answer)
            self._n_summed[shard] += 1

    def take_back(self, worker: int) -> None:
        self._requests.take_back(worker)

    def out_of_reach(self, n_draws: int, alive: Collection[int]) -> tuple[int, ...]:
        """Shards with work left that no living worker holds."""
        held = {shard for worker in alive for shard in self.allocation.shards_of(worker)}
        return tuple(s for s, done in self._found.items() if s not in held and self._lacks(done))

    def leave_out(self, shards: Collection[int]) -> int:
        """Nothing: all groups that were asked for are wanted."""
        return self.n_complete

    def fault_in(self, answer: LocalFound) -> str:
        """Why an answer cannot be one; an empty string if it can."""
        return self.question.fault_in(answer)

    def next_late(self, now: float) -> float:
        """When something that was asked for will be late."""
        return self._requests.next_late(now)

    def _lacking(self, worker: int) -> Iterator[Key]:
        """What `worker` can be asked for, in the order of the shards that it holds."""
        for shard in self.allocation.shards_of(worker):
            for first in self._firsts:
                if first not in self._found[shard]:
                    yield _key(shard, first)

    def _lacks(self, done: Mapping[int, Arrays]) -> bool:
        return len(done) < len(self._firsts)

    # ------------------------------------------------------------ what was found

    def moments(self) -> list[Moments]:
        """Moments of all groups of all shards, level by level, summed over the points."""
        shards = [parts(self._sums[shard]) for shard in self._found]
        return [_moments([shard[str(i)] for shard in shards]) for i in self._levels]

    def draws(self) -> list[LevelDraws]:
        """Draws of the groups that were asked for, level by level."""
        shards = [[parts(found[first]) for first in self._firsts] for found in self._found.values()]
        return [
            _draws([[block[str(i)] for block in blocks] for blocks in shards]) for i in self._levels
        ]

    @property
    def _levels(self) -> range:
        return range(len(self.question.widths))


def allocation_for(n_workers: int, shards: Sequence[int], redundancy: int) -> Allocation:
    """Which of any number of workers holds which shards: each shard has `redundancy` holders.

    A worker is the first holder of the shards that come first in its list.
    """
    copies = min(redundancy, n_workers)
    held: list[list[int]] = [[] for _ in range(n_workers)]
    for copy in range(copies):
        for i, shard in enumerate(shards):
            held[(i + copy) % n_workers].append(shard)
    return Allocation(tuple(map(tuple, held)))


def _key(shard: int, first: int) -> Key:
    return _LANE, shard, first, 0


def _added(before: Arrays, answer: Arrays) -> Arrays:
    """Moments of one more block added; groups and centres are those of the shard."""
    return {
        name: before[name] + array if name.endswith("sums") else array
        for name, array in answer.items()
    }


def _moments(shards: list[dict[str, AnyArray]]) -> Moments:
    """Moments of one level by the codes of groups, from those of each shard."""
    groups, centres = (
        np.concatenate([of[name] for of in shards]) for name in ("groups", "centres")
    )
    sums = np.concatenate([of["sums"] for of in shards], axis=1)
    order = np.argsort(groups)
    return Moments(groups[order], centres[order], sums[:, order])


def _draws(shards: list[list[dict[str, AnyArray]]]) -> LevelDraws:
    """Draws of one level by the codes of groups, from the blocks of each shard."""
    groups = np.concatenate([blocks[0]["groups"] for blocks in shards])
    draws = [np.concatenate([block["draws"] for block in blocks]) for blocks in shards]
    order = np.argsort(groups)
    return groups[order], np.concatenate(draws, axis=1)[:, order]
