"""Blocks of the points of a question, and the parts of the sum that are known there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, CodedArray
from quorate.protocol.messages import Evaluate, Values
from quorate.protocol.sums import NO_DENSITY, Part, Sums, gradients_on_grid, values_on_grid
from quorate.protocol.teams import Grouping, Teams

BLOCK = 64  # points that a worker is asked for at a time
LARGE = 1024  # points of a question above which blocks are larger
_BLOCKS = 16  # of a large question, at most
_SAME = 1e-6  # relative difference of two answers that rounding may explain


def block_size(n_points: int) -> int:
    """Points of a block of a question: the least that a worker is asked for."""
    return BLOCK if n_points <= LARGE else BLOCK * -(-n_points // (_BLOCKS * BLOCK))


def blocks_of(points: Array) -> "list[PassBlock]":
    """Blocks of the points of a question."""
    size = block_size(len(points))
    return [PassBlock(i, points[i : i + size]) for i in range(0, len(points), size)]


class Taken(NamedTuple):
    """How many points were new, and the senders of earlier answers that it contradicts, if any."""

    n_new: int
    others: tuple[int, ...] = ()


@dataclass(eq=False)
class PassBlock:
    """Some points of a question, and the parts of the sum that are known there, by number."""

    first: int
    points: Array
    grouping: Grouping | None = None  # of the sum into parts, once somebody is asked
    values: dict[int, CodedArray] = field(default_factory=dict)
    gradients: dict[int, CodedArray] = field(default_factory=dict)
    senders: dict[int, int] = field(default_factory=dict)
    is_complete: bool = False

    @property
    def sums(self) -> Sums:
        """How the parts are put together, once somebody was asked."""
        assert self.grouping is not None
        return self.grouping.sums

    def regroup(self, teams: Teams) -> bool:
        """Group the shards into parts if need be; returns whether parts have changed since."""
        if self.grouping is not None and not teams.is_outdated(self.grouping):
            return False
        self.grouping, numbers = teams.grouping(self.grouping, self.values)
        if numbers is None:
            return False
        for by_part in (self.values, self.gradients, self.senders):
            _renumber(by_part, numbers)
        return True

    def part_of(self, task: Evaluate) -> Part | None:
        """The part that a task is for; None if the sum is put together otherwise by now."""
        if self.grouping is None:
            return None
        parts = self.sums.parts_of(task.worker)
        return next((part for part in parts if part.shards == task.shards), None)

    def take(self, part: int, answer: Values) -> Taken:
        """Take what an answer for a part says of these points. The first answer counts."""
        n, dim = self.points.shape
        start, sender = self.first - answer.task.first_point, answer.task.worker
        values = answer.values[start : start + n]
        if part in self.values:
            agrees = _agree(self.values[part], values)
            return Taken(0, () if agrees else (self.senders[part],))
        others = contradicted(self.sums, self.values, part, values)
        if self.is_complete:
            return Taken(0, others)
        self.values[part], self.senders[part] = values, sender
        if answer.gradients is not None:
            pairs = 2 if np.iscomplexobj(answer.gradients) else 1  # numbers in one entry
            first, end = start * dim // pairs, -(-(start + n) * dim // pairs)
            self.gradients[part] = answer.gradients[first:end]
        self.is_complete = self.sums.is_complete(self.values)
        return Taken(n, others)


def _renumber(by_part: dict[int, Any], numbers: Mapping[int, int]) -> None:
    known = {numbers[number]: value for number, value in by_part.items()}
    by_part.clear()
    by_part.update(known)


def _agree(known: CodedArray, values: CodedArray) -> bool:
    """Two answers for the same part must agree, but for rounding."""
    return bool(np.all(np.abs(known - values) <= _SAME * (1 + np.abs(known))))


def total_of(blocks: Sequence[PassBlock], scales: Array | None) -> tuple[Array, Array | None]:
    """Sums at the first points of a question, up to one that is not known, and gradients.

    Gradients are there if there are `scales`, their units.
    """
    values, gradients = [], []
    for block in takewhile(lambda block: block.is_complete, blocks):
        n, dim = block.points.shape
        found = values_on_grid(block.sums.total(block.values, n))
        values.append(np.where(found > NO_DENSITY, found, -np.inf))
        if scales is not None:
            found = gradients_on_grid(block.sums.total(block.gradients, n * dim))
            gradients.append(found.reshape(n, dim) / scales)
    none: list[Array] = [np.empty(0)]
    known = np.concatenate(values or none)
    return known, np.concatenate(gradients) if gradients else None


def contradicted(
    sums: Sums, known: Mapping[int, CodedArray], number: int, values: CodedArray
) -> tuple[int, ...]:
    """Workers whose coded answers contradict one more, beyond rounding; none if all agree.

    Only coded answers are compared so, and a worker sends just one of them.
    """
    factors = sums.parity(number, known)
    if not factors:
        return ()
    terms = {k: factor * (values if k == number else known[k]) for k, factor in factors.items()}
    sizes = [abs(factors[k]) + np.abs(term) for k, term in terms.items()]
    agrees = np.all(np.abs(np.add.reduce(list(terms.values()))) <= _SAME * np.add.reduce(sizes))
    return () if agrees else tuple(k for k in sorted(terms) if k != number)


def fault_in_values(answer: Values, blocks: Sequence[PassBlock], *, with_gradients: bool) -> str:
    """Why an answer cannot be one for these blocks; an empty string if it can."""
    n = sum(len(block.points) for block in blocks)
    if not with_gradients:
        return _misshapen(answer.values, n) or not_finite(answer.values)
    if answer.gradients is None:
        return "gradients are missing"
    n_entries = n * blocks[0].points.shape[1]
    is_paired = np.iscomplexobj(answer.gradients)
    return (
        _misshapen(answer.values, n)
        or _misshapen(answer.gradients, -(-n_entries // 2) if is_paired else n_entries)
        or not_finite(answer.values, answer.gradients)
    )


def _misshapen(array: CodedArray, size: int) -> str:
    if array.shape == (size,):
        return ""
    return f"values have shape {array.shape}, where it should be {(size,)}"


def not_finite(*arrays: NDArray[Any]) -> str:
    """A message that numbers are not finite; an empty string if they are."""
    for array in arrays:
        if not np.logical_and.reduce(np.isfinite(array), axis=None):
            return "values are not finite"
    return ""
