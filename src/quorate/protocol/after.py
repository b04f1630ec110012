"""Tasks over shards after a run: who is asked for what, and what is known.

What needs the rows is computed where the rows are: parameters of groups, log-likelihoods of rows,
responses. The work on each shard is cut into pieces. Any holder of the shard may be asked for a
piece, and the first answer counts. A piece that is late is asked of another holder. A piece is a
function of its task, so results do not depend on who computed what, nor on when it came.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from quorate.protocol.allocation import Allocation
from quorate.protocol.messages import Arrays, ShardFound, ShardTask
from quorate.protocol.requests import Key, Requests
from quorate.protocol.scheme import NOBODY

_LANE = 0  # of all requests


class Question(Protocol):
    """What is asked of workers, shard by shard and piece by piece."""

    @property
    def shards(self) -> tuple[int, ...]:
        """Shards to ask for."""

    def pieces_of(self, shard: int) -> int:
        """Number of pieces that the work on a shard is cut into."""

    def task(self, worker: int, shard: int, piece: int) -> ShardTask:
        """One piece of work, for a worker."""

    def fault_in(self, answer: ShardFound) -> str:
        """Why an answer cannot be one; an empty string if it can."""


class Answers(Protocol):
    """Takes the answers to pieces of work, each once and in any order."""

    def take(self, shard: int, piece: int, found: Arrays) -> None:
        """Keep the answer to a piece of work, or what is wanted of it."""


class ShardSchedule:
    """Who computes which piece next, and which are done.

    Attributes
    ----------
    now
        The time, as the coordinator was told it.
    """

    quarantined = NOBODY

    def __init__(self, allocation: Allocation, question: Question, answers: Answers) -> None:
        self.allocation = allocation
        self.question = question
        self.now = 0.0
        self._answers = answers
        self._requests = Requests()
        self._left = {s: dict.fromkeys(range(question.pieces_of(s))) for s in question.shards}
        self.n_pieces = sum(map(len, self._left.values()))

    @property
    def n_complete(self) -> int:
        """Pieces of work that are done."""
        return self.n_pieces - sum(map(len, self._left.values()))

    def next_task(self, worker: int, n_draws: int | None) -> ShardTask | None:
        key = self._requests.choose(worker, self._lacking(worker), self.now)
        return None if key is None else self.question.task(worker, key[1], key[2])

    def receive(self, answer: ShardFound) -> int:
        task = answer.task
        (shard,) = task.shards
        self._requests.answered(task.worker, [_key(shard, task.piece)], self.now)
        if task.piece in self._left[shard]:
            del self._left[shard][task.piece]
            self._answers.take(shard, task.piece, answer.found)
        return self.n_complete

    def take_back(self, worker: int) -> None:
        self._requests.take_back(worker)

    def joined(self, worker: int, node: str, process: str = "") -> None:
        """Nothing: every piece of work is for one worker."""

    def to_wake(self, now: float) -> Collection[int]:
        """All workers."""
        return range(self.allocation.n_workers)

    def out_of_reach(self, n_draws: int, alive: Collection[int]) -> tuple[int, ...]:
        """Shards with work left that no living worker holds."""
        held = {shard for worker in alive for shard in self.allocation.shards_of(worker)}
        return tuple(shard for shard, left in self._left.items() if left and shard not in held)

    def leave_out(self, shards: Collection[int]) -> int:
        """Nothing: all that was asked for is wanted."""
        return self.n_complete

    def fault_in(self, answer: ShardFound) -> str:
        """Why an answer cannot be one; an empty string if it can."""
        return self.question.fault_in(answer)

    def next_late(self, now: float) -> float:
        """When something that was asked for will be late."""
        return self._requests.next_late()

    def _lacking(self, worker: int) -> Iterator[Key]:
        """What `worker` can be asked for, in the order of the shards that it holds."""
        for shard in self.allocation.shards_of(worker):
            for piece in self._left.get(shard, ()):
                yield _key(shard, piece)


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


def _key(shard: int, piece: int) -> Key:
    return _LANE, shard, piece, 0
