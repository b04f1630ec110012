"""Passes over the posterior: the schedule of `method="exact"`, and of checks.

An inquirer asks questions: points at which the sum over all shards is wanted. The schedule cuts
them into blocks and asks workers for parts of the sums. The first answer for a part counts. A part
that is late is asked for again of another worker, if one is free that can give it. A question is
answered when the sum is known at all its points; the inquirer then asks the next.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, CodedArray
from quorate.numerics.named_arrays import part as part_of
from quorate.passes.inquiry import Pass
from quorate.protocol.allocation import Allocation
from quorate.protocol.asked_blocks import AskedBlock
from quorate.protocol.coordinator import WakingCoordinator
from quorate.protocol.messages import Arrays, Evaluate, Survey, Surveyed, Values
from quorate.protocol.requests import Key, Requests
from quorate.protocol.scheme import NOBODY
from quorate.protocol.sums import NO_DENSITY, Sums, gradients_on_grid, values_on_grid
from quorate.protocol.teams import Teams

BLOCK = 64  # points that a worker is asked for at a time
SURVEYS = -1  # in place of a lane
_SAME = 1e-6  # relative difference of two answers that rounding may explain


class Inquirer(Protocol):
    """Asks the questions; see `quorate.passes.inquiry`."""

    @property
    def open(self) -> Mapping[int, Pass]:
        """Questions that are not answered yet, by lane."""

    @property
    def n_complete(self) -> int:
        """Draws that are there, or points that are known."""

    def begin(self, surveys: Mapping[int, Arrays]) -> None:
        """Ask the first question, from what was found of each shard."""

    def take(self, lane: int, values: Array, gradients: Array | None = None) -> None:
        """Take the answer to the open question of a lane."""


class Answered(NamedTuple):
    """A question that is answered, for the journal; or a shard that is surveyed."""

    lane: int  # SURVEYS for a survey
    number: int  # of the question, or the shard
    arrays: Arrays


class PassSchedule:
    """Who evaluates what next, and what is known.

    Attributes
    ----------
    now
        The time, as the coordinator was told it.
    answered
        Questions answered and shards surveyed that are not journaled yet. The journal's writer
        empties the list.
    disputes
        Pairs of workers that gave different answers for the same part.
    n_points, n_points_used
        Points at which single shards were evaluated, and those whose answer was the first.

    Parameters
    ----------
    sums
        How the scheme sums over shards.
    needs_surveys
        Whether shards are surveyed before the first question.
    """

    quarantined = NOBODY

    def __init__(self, sums: Sums, inquirer: Inquirer, *, needs_surveys: bool) -> None:
        # Data allocation: that of the scheme
        self.allocation: Allocation = sums.allocation
        self.inquirer = inquirer
        self.now = 0.0
        self.answered: list[Answered] = []
        self.disputes: set[tuple[int, int]] = set()
        self.n_points = self.n_points_used = 0  # answered for single shards
        self.sums = sums
        self.teams = Teams(sums)
        self._requests = Requests()
        self._freed: list[Key] = []  # that nobody works on any more
        self._has_news = True
        self._surveys: dict[int, Arrays] = {}
        self._blocks: dict[int, list[AskedBlock]] = {}  # of the open question of each lane
        self._has_begun = False
        if not needs_surveys:
            self._begin()

    @property
    def n_surveyed(self) -> int:
        """Shards that are surveyed."""
        return len(self._surveys)

    # At worker k: evaluate, and send the sum

    # At the server: a question is answered when the sum is known at every point

    def next_task(self, worker: int, n_draws: int | None) -> Evaluate | Survey | None:
        key = self._requests.choose(worker, self._lacking(worker), self.now)
        if key is None:
            return None
        lane, question, first, wanted = key
        if lane == SURVEYS:
            return Survey(worker, (question,))
        asked = self.inquirer.open[lane]
        parts = self._sums(asked, self._blocks[lane][first // BLOCK]).parts_of(worker)
        part = next(part for part in parts if part.number == wanted)
        points = asked.points[first : first + BLOCK]
        return Evaluate(
            worker,
            part.shards,
            lane,
            question,
            first,
            points,
            asked.scales,
            part.coefficients,
        )

    def receive(self, answer: Values | Surveyed) -> int:
        if isinstance(answer, Surveyed):
            self._take_survey(answer)
        else:
            self._take_values(answer)
        return self.inquirer.n_complete

    def take_back(self, worker: int) -> None:
        self._freed += self._requests.take_back(worker)
        self._has_news |= self.teams.lost(worker)

    def joined(self, worker: int, node: str) -> None:
        """Take in that a worker is there. Those of one node answer together."""
        is_news = self.teams.joined(worker, node)
        self._has_news |= is_news and self._has_begun  # surveys are for each worker

    def to_wake(self, now: float) -> Collection[int]:
        """Workers for whom there may be work now that there was not before."""
        keys, self._freed = [*self._requests.newly_late(now), *self._freed], []
        if self._has_news:
            self._has_news = False
            return self.teams.asked if self._has_begun else range(self.allocation.n_workers)
        return {worker for key in keys for worker in self._who_can(key)}

    def out_of_reach(self, n_draws: int, alive: Collection[int]) -> tuple[int, ...]:
        """Shards that no living worker can survey or answer for, as far as it is still needed."""
        if not self._has_begun:
            held = {shard for worker in alive for shard in self.allocation.shards_of(worker)}
            shards = range(self.allocation.n_shards)
            return tuple(s for s in shards if s not in held and s not in self._surveys)
        return () if not self.inquirer.open else self.sums.lost_shards((), alive)

    def leave_out(self, shards: Collection[int]) -> int:
        """Nothing: without a shard it is another posterior."""
        return self.inquirer.n_complete

    def fault_in(self, answer: Values | Surveyed) -> str:
        """Why an answer cannot be one; an empty string if it can."""
        if isinstance(answer, Surveyed):
            return _not_finite(*answer.found.values())
        block = self._block(answer.task)
        if block is None:
            return ""  # too late to matter
        if self.inquirer.open[answer.task.lane].scales is None:
            return _misshapen(answer.values, len(block.points)) or _not_finite(answer.values)
        if answer.gradients is None:
            return "gradients are missing"
        n = block.points.size
        is_paired = np.iscomplexobj(answer.gradients)
        return (
            _misshapen(answer.values, len(block.points))
            or _misshapen(answer.gradients, -(-n // 2) if is_paired else n)
            or _not_finite(answer.values, answer.gradients)
        )

    def replay(self, answered: Answered) -> int:
        """Take in what an earlier sitting has journaled.

        An answer is ignored if it is not the next of its lane: what came before it was damaged, and
        has been asked for again.
        """
        lane, number, arrays = answered
        asked = self.inquirer.open.get(lane)
        if lane == SURVEYS and number not in self._surveys:
            self._surveyed(number, arrays)
        elif asked is not None and asked.number == number:
            self._settle(lane, arrays["values"], arrays.get("gradients"))
        self.answered.clear()
        return self.inquirer.n_complete

    def next_late(self, now: float) -> float:
        """When something that was asked for will be late."""
        return self._requests.next_late()

    def known(self, lane: int) -> Array:
        """Sums at the first points of the open question of a lane, as far as they are known."""
        return self._total(lane)[0] if lane in self._blocks else np.empty(0)

    # ------------------------------------------------------------ surveys

    def _take_survey(self, answer: Surveyed) -> None:
        (shard,) = answer.task.shards
        self._requests.answered(answer.task.worker, (SURVEYS, shard, 0, 0), self.now)
        if shard not in self._surveys:
            self._surveyed(shard, part_of(answer.found, shard))

    def _surveyed(self, shard: int, found: Arrays) -> None:
        self._surveys[shard] = found
        self.answered.append(Answered(SURVEYS, shard, found))
        if len(self._surveys) == self.allocation.n_shards and not self._has_begun:
            self._begin()

    def _begin(self) -> None:
        self._has_begun = True
        self.inquirer.begin(self._surveys)
        self._open_questions()

    # ------------------------------------------------------------ questions

    def _lacking(self, worker: int) -> Iterator[Key]:
        """What `worker` can be asked for, in the order in which it is wanted."""
        if not self._has_begun:
            for shard in self.allocation.shards_of(worker):
                if shard not in self._surveys:
                    yield SURVEYS, shard, 0, 0
            return
        for lane, asked in sorted(self.inquirer.open.items(), key=lambda item: item[1].number):
            for block in self._blocks[lane]:
                if not block.is_complete:
                    for part in self._sums(asked, block).parts_of(worker):
                        if part.number not in block.values:
                            yield lane, asked.number, block.first, part.number

    def _sums(self, asked: Pass, block: AskedBlock) -> Sums:
        """How a block is put together; anew where those who could answer are gone."""
        if block.regroup(self.teams):
            self._requests.forget(asked.lane, asked.number, block.first)
        return block.sums

    def _who_can(self, key: Key) -> Collection[int]:
        """Workers that can be asked for something."""
        lane, question, first, number = key
        if lane == SURVEYS:
            return self.allocation.holders_of(question)
        asked = self.inquirer.open.get(lane)
        if asked is None or asked.number != question:
            return ()
        return self._sums(asked, self._blocks[lane][first // BLOCK]).givers_of(number)

    def _take_values(self, answer: Values) -> None:
        task = answer.task
        n_points = answer.size * len(task.shards)
        self.n_points += n_points
        block = self._block(task)
        part = None if block is None else block.part_of(task)
        if block is None or part is None:
            return
        number = part.number
        self._requests.answered(
            task.worker, (task.lane, task.question, task.first_point, number), self.now
        )
        if number in block.values:
            self._compare(block, number, answer)
            return
        if block.is_complete:
            return
        self.n_points_used += n_points
        block.take(number, answer)
        if block.is_complete and all(block.is_complete for block in self._blocks[task.lane]):
            self._settle(task.lane, *self._total(task.lane))

    def _block(self, task: Evaluate) -> AskedBlock | None:
        """The block that a task is about, if its question is still open."""
        asked = self.inquirer.open.get(task.lane)
        if asked is None or asked.number != task.question:
            return None
        return self._blocks[task.lane][task.first_point // BLOCK]

    def _compare(self, block: AskedBlock, number: int, answer: Values) -> None:
        """Two answers for the same part must agree, but for rounding."""
        known, size = block.values[number], np.abs(block.values[number])
        if np.any(np.abs(known - answer.values) > _SAME * (1 + size)):
            self.disputes.add((block.senders[number], answer.task.worker))

    def _total(self, lane: int) -> tuple[Array, Array | None]:
        """Sums at the first points of a question, up to one that is not known, and gradients."""
        values, gradients = [], []
        scales = self.inquirer.open[lane].scales
        blocks = takewhile(lambda block: block.is_complete, self._blocks[lane])
        for block in blocks:
            n, dim = block.points.shape
            found = values_on_grid(block.sums.total(block.values, n))
            values.append(np.where(found > NO_DENSITY, found, -np.inf))
            if scales is not None:
                found = gradients_on_grid(block.sums.total(block.gradients, n * dim))
                gradients.append(found.reshape(n, dim) / scales)
        none: list[Array] = [np.empty(0)]
        known = np.concatenate(values or none)
        return known, np.concatenate(gradients) if gradients else None

    def _settle(self, lane: int, values: Array, gradients: Array | None) -> None:
        """Tell the inquirer the answer, and open its next questions."""
        asked = self.inquirer.open[lane]
        arrays = {"values": values} | ({} if gradients is None else {"gradients": gradients})
        self.answered.append(Answered(lane, asked.number, arrays))
        self._requests.forget(lane, asked.number)
        del self._blocks[lane]
        self.inquirer.take(lane, values, gradients)
        self._open_questions()

    def _open_questions(self) -> None:
        self._has_news = True
        for lane, asked in self.inquirer.open.items():
            if lane not in self._blocks:
                points, firsts = asked.points, range(0, len(asked.points), BLOCK)
                self._blocks[lane] = [AskedBlock(i, points[i : i + BLOCK]) for i in firsts]


def _misshapen(array: CodedArray, size: int) -> str:
    if array.shape == (size,):
        return ""
    return f"values have shape {array.shape}, where it should be {(size,)}"


def _not_finite(*arrays: NDArray[Any]) -> str:
    return "" if all(np.all(np.isfinite(array)) for array in arrays) else "values are not finite"


PassCoordinator = WakingCoordinator[PassSchedule]
