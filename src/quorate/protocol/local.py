"""Local parameters after a run: what is asked of workers, and what is made of their answers.

One piece of work for moments is a shard, with all points, which are draws of the global parameters;
for draws it is a shard and a block of points. Answers are put together in the order of the points.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from quorate._types import Array, IntArray
from quorate.models.groups.levels import Moments
from quorate.numerics.named_arrays import AnyArray, parts
from quorate.protocol.messages import NOTHING, Arrays, ShardFound, ShardTask

BLOCK = 128  # points of one piece of work, for draws
_KEYS = {True: {"groups", "centres", "sums"}, False: {"groups", "draws"}}  # of moments, of draws
LevelDraws = tuple[IntArray, Array]  # codes of groups (m,), draws (n_points, m, q)


@dataclass(frozen=True, eq=False)
class LocalQuestion:
    """Moments of the parameters of all groups, or draws of those of some groups.

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

    def pieces_of(self, shard: int) -> int:
        """Number of blocks of points; the same for all shards."""
        return -(-len(self.points) // self.block)

    def task(self, worker: int, shard: int, piece: int) -> ShardTask:
        """One piece of work, for a worker."""
        block = slice(piece * self.block, (piece + 1) * self.block)
        what, given = ("moments", NOTHING)
        if self.groups is not None:
            what, given = "draws", {"groups": self.groups[shard]}
        points, numbers = self.points[block], self.numbers[block]
        n_pieces = self.pieces_of(shard)
        return ShardTask(worker, (shard,), what, piece, n_pieces, points, numbers, given)

    def fault_in(self, answer: ShardFound) -> str:
        """Why an answer cannot be one; an empty string if it can."""
        levels = parts(answer.found)
        if set(levels) != {str(i) for i in range(len(self.widths))}:
            return f"local parameters of levels {', '.join(levels)} came"
        n_points = min(self.block, len(self.points) - answer.task.piece * self.block)
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


class MomentsOfShards:
    """Keeps the moments of each shard."""

    def __init__(self, question: LocalQuestion) -> None:
        self._n_levels = len(question.widths)
        self._shards = question.shards
        self._found: dict[int, Arrays] = {}

    def take(self, shard: int, piece: int, found: Arrays) -> None:
        assert piece == 0  # a shard is one piece of work
        self._found[shard] = found

    def moments(self) -> list[Moments]:
        """Moments of all groups of all shards, level by level, summed over the points."""
        shards = [parts(self._found[shard]) for shard in self._shards]
        return [_moments([shard[str(i)] for shard in shards]) for i in range(self._n_levels)]


class DrawsInOrder:
    """Keeps draws, and puts them together in the order of the points."""

    def __init__(self, question: LocalQuestion) -> None:
        self._n_levels = len(question.widths)
        self._found: dict[int, dict[int, Arrays]] = {shard: {} for shard in question.shards}

    def take(self, shard: int, piece: int, found: Arrays) -> None:
        self._found[shard][piece] = found

    def draws(self) -> list[LevelDraws]:
        """Draws of the groups that were asked for, level by level."""
        shards = [[parts(of[piece]) for piece in sorted(of)] for of in self._found.values()]
        return [
            _draws([[block[str(i)] for block in blocks] for blocks in shards])
            for i in range(self._n_levels)
        ]


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
