"""Blocks of points of a question, and the parts of the sum that are known there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quorate._types import Array, CodedArray
from quorate.protocol.messages import Evaluate, Values
from quorate.protocol.sums import Part, Sums
from quorate.protocol.teams import Grouping, Teams


@dataclass(eq=False)
class AskedBlock:
    """Some points of a question, and what is known there.

    `values`, `gradients` and `senders` are by number of the part.
    """

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

    def take(self, number: int, answer: Values) -> None:
        """Keep the first answer for a part."""
        self.values[number] = answer.values
        self.senders[number] = answer.task.worker
        if answer.gradients is not None:
            self.gradients[number] = answer.gradients
        self.is_complete = self.sums.is_complete(self.values)


def _renumber(by_part: dict[int, Any], numbers: Mapping[int, int]) -> None:
    known = {numbers[number]: value for number, value in by_part.items()}
    by_part.clear()
    by_part.update(known)
