"""Who contradicts whom: answers for the same part of a sum, or coded answers beside each other.

Coded answers obey the parity checks of their code as soon as there are more of them than it takes
to decode. So an answer that comes when its question is settled is still of use: it is compared with
those that settled it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from quorate._types import CodedArray
from quorate.protocol.messages import Values
from quorate.protocol.pass_blocks import LARGE, PassBlock, contradicted, not_finite
from quorate.protocol.sums import Sums

_REMEMBERED = 4  # questions of each lane, unless they are large


class _Settled(NamedTuple):
    """What a block of a question was settled by."""

    first: int
    n_points: int
    sums: Sums
    values: Mapping[int, CodedArray]


class Disputes:
    """The contradictions so far, and the questions that late answers are compared with.

    Attributes
    ----------
    found
        Workers whose answers contradict each other; the one that answered last is last.
    """

    def __init__(self) -> None:
        self.found: set[tuple[int, ...]] = set()
        self._settled: dict[int, deque[tuple[int, list[_Settled]]]] = {}  # by lane

    def add(self, others: tuple[int, ...], worker: int) -> None:
        """Note that `worker` contradicts others, if there are any."""
        if others:
            self.found.add((*others, worker))

    def settled(self, lane: int, question: int, blocks: Sequence[PassBlock]) -> None:
        """Remember what a question was settled by."""
        known = [
            _Settled(block.first, len(block.points), block.sums, block.values)
            for block in blocks
            if block.grouping is not None
        ]
        if sum(block.n_points for block in known) <= LARGE:
            lately = self._settled.setdefault(lane, deque(maxlen=_REMEMBERED))
            lately.append((question, known))

    def late(self, answer: Values) -> None:
        """Compare an answer with those that settled its question, if it came after them."""
        task = answer.task
        lately = self._settled.get(task.lane, ())
        for block in next((of for question, of in lately if question == task.question), ()):
            start = block.first - task.first_point
            values = answer.values[start : start + block.n_points]
            is_whole = start >= 0 and values.shape == (block.n_points,) and not not_finite(values)
            if is_whole and task.worker not in block.values:
                self.add(contradicted(block.sums, block.values, task.worker, values), task.worker)
