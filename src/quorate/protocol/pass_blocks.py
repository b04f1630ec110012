"""Blocks of the points of a question, and the parts of the sum that are known there."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from quorate._types import Array, CodedArray
from quorate.protocol.messages import Values
from quorate.protocol.sums import Sums

BLOCK = 64  # points that a worker is asked for at a time
_LARGE = 1024  # points of a question above which blocks are larger
_BLOCKS = 16  # of a large question, at most
_SAME = 1e-6  # relative difference of two answers that rounding may explain


def block_size(n_points: int) -> int:
    """Points of a block of a question: the least that a worker is asked for."""
    return BLOCK if n_points <= _LARGE else BLOCK * -(-n_points // (_BLOCKS * BLOCK))


def blocks_of(points: Array) -> "list[PassBlock]":
    """Blocks of the points of a question."""
    size = block_size(len(points))
    return [PassBlock(i, points[i : i + size]) for i in range(0, len(points), size)]


class Taken(NamedTuple):
    """How many points were new, and the sender of an earlier answer that disagrees, if any."""

    n_new: int
    other: int | None = None


@dataclass(eq=False)
class PassBlock:
    """Some points of a question, and the parts of the sum that are known there."""

    first: int
    points: Array
    values: dict[int, CodedArray] = field(default_factory=dict)
    gradients: dict[int, CodedArray] = field(default_factory=dict)
    senders: dict[int, int] = field(default_factory=dict)
    is_complete: bool = False

    def take(self, part: int, answer: Values, sums: Sums) -> Taken:
        """Take what an answer for a part says of these points. The first answer counts."""
        n, dim = self.points.shape
        start, sender = self.first - answer.task.first_point, answer.task.worker
        values = answer.values[start : start + n]
        if part in self.values:
            agrees = _agree(self.values[part], values)
            return Taken(0, None if agrees else self.senders[part])
        if self.is_complete:
            return Taken(0)
        self.values[part], self.senders[part] = values, sender
        if answer.gradients is not None:
            pairs = 2 if np.iscomplexobj(answer.gradients) else 1  # numbers in one entry
            first, end = start * dim // pairs, -(-(start + n) * dim // pairs)
            self.gradients[part] = answer.gradients[first:end]
        self.is_complete = sums.is_complete(self.values)
        return Taken(n)


def _agree(known: CodedArray, values: CodedArray) -> bool:
    """Two answers for the same part must agree, but for rounding."""
    return bool(np.all(np.abs(known - values) <= _SAME * (1 + np.abs(known))))
