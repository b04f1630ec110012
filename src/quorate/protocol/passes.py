"""Passes over the posterior: the schedule of `method="exact"`, and of checks.

An inquirer asks questions: points at which the sum over all shards is wanted. The schedule cuts
them into blocks and asks workers for parts of the sums. The first answer for a part counts. A part
that is late is asked for again of another worker, if one is free that can give it. A question is
answered when the sum is known at all its points; the inquirer then asks the next.
"""

from collections.abc import Collection, Iterator
from itertools import takewhile

import numpy as np

from quorate._types import Array
from quorate.numerics.named_arrays import part as part_of
from quorate.protocol.allocation import Allocation
from quorate.protocol.coordinator import WakingCoordinator
from quorate.protocol.disputes import Disputes
from quorate.protocol.inquirer import SURVEYS, Answered, Inquirer
from quorate.protocol.messages import Arrays, Command, Evaluate, Survey, Surveyed, Values
from quorate.protocol.pass_blocks import (
    BLOCK,
    PassBlock,
    block_size,
    blocks_of,
    fault_in_values,
    not_finite,
    total_of,
)
from quorate.protocol.requests import Key, Requests
from quorate.protocol.scheme import NOBODY
from quorate.protocol.sums import Sums
from quorate.protocol.surveying import Surveying
from quorate.protocol.teams import Teams

_TASK_SECONDS = 0.1  # that a task may take for which a worker gets several blocks


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
        Workers whose answers contradict each other.
    n_points, n_points_used
        Points at which single shards were evaluated, and those whose answer was the first.

    Parameters
    ----------
    sums
        How the scheme sums over shards.
    needs_surveys
        Whether shards are surveyed before the first question.
    devices
        Workers that compute on a device, where others do not.
    """

    quarantined = NOBODY

    def __init__(
        self,
        sums: Sums,
        inquirer: Inquirer,
        *,
        needs_surveys: bool,
        devices: Collection[int] = (),
    ) -> None:
        # Data allocation: that of the scheme
        self.allocation: Allocation = sums.allocation
        self.inquirer = inquirer
        self.now = 0.0
        self.answered: list[Answered] = []
        self._disputes = Disputes()
        self.disputes = self._disputes.found
        self.n_points = self.n_points_used = 0  # answered for single shards
        self.sums = sums
        self.teams = Teams(sums)
        self._requests = Requests()
        self._freed: list[Key] = []  # that nobody works on any more
        self._surveying = Surveying(self.allocation, devices)
        self._has_news = True
        self._blocks: dict[int, list[PassBlock]] = {}  # of the open question of each lane
        self._put_off: list[int] = []  # lanes whose question is answered, but not taken in
        self._has_begun = False
        self.n_complete = 0  # as the inquirer says, which only an answer changes
        if not needs_surveys:
            self._begin()

    @property
    def n_surveyed(self) -> int:
        """Shards that are surveyed."""
        return len(self._surveying.found)

    def next_task(self, worker: int, n_draws: int | None) -> Evaluate | Survey | None:
        if not self._has_begun and not self._surveying.is_free(worker):
            return None
        key = self._requests.choose(worker, self._lacking(worker), self.now)
        if key is None:
            return None
        lane, question, first, wanted = key
        if lane == SURVEYS:
            self._surveying.begin(worker)
            return Survey(worker, (question,))
        asked = self.inquirer.open[lane]
        part = next(p for p in self._sums(lane, first).parts_of(worker) if p.number == wanted)
        end = self._end_of_task(worker, key)
        return Evaluate(
            worker,
            part.shards,
            lane,
            question,
            first,
            asked.points[first:end],
            asked.scales,
            part.coefficients,
            self._surveying.recipes(worker, part.shards),
        )

    def _end_of_task(self, worker: int, key: Key) -> int:
        """Where the points of a task end: with its block, or later if the worker is quick."""
        lane, question, first, part = key
        asked = self.inquirer.open[lane]
        size = block_size(len(asked.points))
        if size >= len(asked.points):
            return first + size
        is_draw = asked.phase == "draw"  # which has more than one block only if devices are there
        n_more = self._requests.n_within(worker, _TASK_SECONDS) - 1 if is_draw else 0
        begun, *after = self._blocks[lane][first // size :][: 1 + n_more]
        wanted = takewhile(
            lambda block: (
                self._sums(lane, block.first) is begun.sums
                and not block.is_complete
                and part not in block.values
            ),
            after,
        )
        more = [(lane, question, block.first, part) for block in wanted]
        return first + size * (1 + self._requests.add(worker, more, self.now))

    def receive(self, answer: Values | Surveyed) -> int:
        if isinstance(answer, Surveyed):
            self._take_survey(answer)
        else:
            self._take_values(answer)
        return self.n_complete

    def take_back(self, worker: int) -> None:
        self._freed += self._requests.take_back(worker)
        self._has_news |= self._surveying.lost(worker)
        self._has_news |= self.teams.lost(worker)

    def joined(self, worker: int, node: str, process: str = "") -> None:
        """Take in that a worker is there. Those of one node answer together."""
        self._surveying.joined(worker, process or node, self.now)
        is_news = self.teams.joined(worker, node)  # surveys are for each worker
        self._has_news |= is_news and self._has_begun

    def to_wake(self, now: float) -> Collection[int]:
        """Workers for whom there may be work now that there was not before."""
        keys, self._freed = [*self._requests.newly_late(now), *self._freed], []
        self._has_news |= not self._has_begun and self._surveying.give_up(now)
        if self._has_news:
            self._has_news = False
            return self.teams.asked if self._has_begun else range(self.allocation.n_workers)
        able = (worker for key in keys for worker in self._who_can(key))
        return {*self._surveying.called(), *able}

    def out_of_reach(self, n_draws: int, alive: Collection[int]) -> tuple[int, ...]:
        """Shards that no living worker can survey or answer for, as far as it is still needed."""
        if not self._has_begun:
            held = {shard for worker in alive for shard in self.allocation.shards_of(worker)}
            shards = range(self.allocation.n_shards)
            return tuple(s for s in shards if s not in held and s not in self._surveying.found)
        return () if not self.inquirer.open else self.sums.lost_shards((), alive)

    def leave_out(self, shards: Collection[int]) -> int:
        """Nothing: without a shard it is another posterior."""
        return self.n_complete

    def fault_in(self, answer: Values | Surveyed) -> str:
        """Why an answer cannot be one; an empty string if it can."""
        if isinstance(answer, Surveyed):
            return not_finite(*answer.found.values())
        blocks = self._blocks_of(answer)
        if not blocks:
            return ""  # too late to matter
        scales = self.inquirer.open[answer.task.lane].scales
        return fault_in_values(answer, blocks, with_gradients=scales is not None)

    def replay(self, answered: Answered) -> int:
        """Take in what an earlier sitting has journaled.

        An answer is ignored if it is not the next of its lane: what came before it was damaged, and
        has been asked for again.
        """
        lane, number, arrays = answered
        asked = self.inquirer.open.get(lane)
        if lane == SURVEYS and number not in self._surveying.found:
            self._surveyed(number, arrays)
        elif asked is not None and asked.number == number:
            self._settle(lane, arrays["values"], arrays.get("gradients"))
        self.answered.clear()
        return self.n_complete

    def next_late(self, now: float) -> float:
        """When something that was asked for will be late."""
        late = self._requests.next_late()
        return late if self._has_begun else min(late, self._surveying.limit)

    def known(self, lane: int) -> Array:
        """Sums at the first points of the open question of a lane, as far as they are known."""
        return self._total(lane)[0] if lane in self._blocks else np.empty(0)

    # ------------------------------------------------------------ surveys

    def _take_survey(self, answer: Surveyed) -> None:
        (shard,) = answer.task.shards
        self._requests.answered(answer.task.worker, [(SURVEYS, shard, 0, 0)], self.now)
        self._surveying.end(answer.task.worker)
        if shard not in self._surveying.found:
            self._surveyed(shard, part_of(answer.found, shard))

    def _surveyed(self, shard: int, found: Arrays) -> None:
        self._surveying.found[shard] = found
        self.answered.append(Answered(SURVEYS, shard, found))
        if len(self._surveying.found) == self.allocation.n_shards and not self._has_begun:
            self._begin()

    def _begin(self) -> None:
        self._has_begun = True
        self.inquirer.begin(self._surveying.found)
        self._open_questions()

    # ------------------------------------------------------------ questions

    def _lacking(self, worker: int) -> Iterator[Key]:
        """What `worker` can be asked for, in the order in which it is wanted."""
        if not self._has_begun:
            for shard in self.allocation.shards_of(worker):
                if shard not in self._surveying.found and self._surveying.may(worker, shard):
                    yield SURVEYS, shard, 0, 0
            return
        for lane, asked in sorted(self.inquirer.open.items(), key=lambda item: item[1].number):
            for block in self._blocks[lane]:
                if not block.is_complete:
                    for part in self._sums(lane, block.first).parts_of(worker):
                        if part.number not in block.values:
                            yield lane, asked.number, block.first, part.number

    def _sums(self, lane: int, first: int) -> Sums:
        """How a block is put together; anew where those who could answer are gone."""
        asked = self.inquirer.open[lane]
        block = self._blocks[lane][first // block_size(len(asked.points))]
        if block.regroup(self.teams):
            self._requests.forget(lane, asked.number, first)
        return block.sums

    def _who_can(self, key: Key) -> Collection[int]:
        """Workers that can be asked for something."""
        lane, question, first, number = key
        if lane == SURVEYS:
            return self.allocation.holders_of(question)
        asked = self.inquirer.open.get(lane)
        is_open = asked is not None and asked.number == question
        return self._sums(lane, first).givers_of(number) if is_open else ()

    def _take_values(self, answer: Values) -> None:
        task = answer.task
        self.n_points += answer.size * len(task.shards)
        blocks = self._blocks_of(answer)
        parts = [(block, part.number) for block in blocks if (part := block.part_of(task))]
        keys = [(task.lane, task.question, block.first, number) for block, number in parts]
        self._requests.answered(task.worker, keys, self.now)
        for block, number in parts:
            n_new, others = block.take(number, answer)
            self.n_points_used += n_new * len(task.shards)
            self._disputes.add(others, task.worker)
        self._disputes.late(answer)
        is_news = bool(blocks) and task.lane not in self._put_off
        if is_news and all(block.is_complete for block in self._blocks[task.lane]):
            self._complete(task.lane)

    def _blocks_of(self, answer: Values) -> list[PassBlock]:
        """The blocks that an answer is about, if its question is still open."""
        task = answer.task
        asked = self.inquirer.open.get(task.lane)
        if asked is None or asked.number != task.question:
            return []
        size = block_size(len(asked.points))
        first = task.first_point // size
        return self._blocks[task.lane][first : first + max(-(-answer.size // size), 1)]

    def _total(self, lane: int) -> tuple[Array, Array | None]:
        return total_of(self._blocks[lane], self.inquirer.open[lane].scales)

    def _complete(self, lane: int) -> None:
        """Take in an answer that is complete; later, if that takes long and others are at work."""
        if len(self.inquirer.open) > 1 and len(self._blocks[lane][0].points) > BLOCK:
            self._put_off.append(lane)
        else:
            self._settle(lane, *self._total(lane))

    @property
    def has_put_off(self) -> bool:
        """Whether an answer that is complete waits to be taken in."""
        return bool(self._put_off)

    def catch_up(self) -> int:
        """Take in what was put off, so that workers could get their tasks first."""
        put_off, self._put_off = self._put_off, []
        for lane in put_off:
            self._settle(lane, *self._total(lane))
        return self.n_complete

    def _settle(self, lane: int, values: Array, gradients: Array | None) -> None:
        """Tell the inquirer the answer, and open its next questions."""
        asked = self.inquirer.open[lane]
        arrays = {"values": values} | ({} if gradients is None else {"gradients": gradients})
        self.answered.append(Answered(lane, asked.number, arrays))
        self._requests.forget(lane, asked.number)
        self._disputes.settled(lane, asked.number, self._blocks.pop(lane))
        self.inquirer.take(lane, values, gradients)
        self._open_questions()

    def _open_questions(self) -> None:
        self._has_news = True
        self.n_complete = self.inquirer.n_complete
        for lane, asked in self.inquirer.open.items():
            if lane not in self._blocks:
                self._blocks[lane] = blocks_of(asked.points)


class PassCoordinator(WakingCoordinator[PassSchedule]):
    """Drives passes. What takes long is done when workers have got their tasks."""

    def next_wake(self, now: float) -> float:
        return now if self.scheme.has_put_off else super().next_wake(now)

    def wake(self, now: float) -> list[Command]:
        """Commands that were put off, and tasks for workers that were idle."""
        n_global = self.scheme.catch_up()
        commands = self._released(n_global) if n_global > self.n_global else []
        return commands if self.is_done else [*commands, *super().wake(now)]
