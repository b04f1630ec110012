"""Sums over shards that several processes of a node compute together, one piece each.

Every shard has its process. Pieces are added up in the order of the processes. Values lie on a grid
on which sums are exact, so the bits depend neither on how shards are dealt nor on who is first.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.engines.frames import Frame
from quorate.engines.processes.hosts import FOR_ALL

_Piece = tuple["_Sum", int]


@dataclass
class _Sum:
    """A task under way, and what has arrived of its pieces."""

    task: Frame
    pieces: list[list[int]]  # the shards of each
    found: dict[int, dict[str, NDArray[Any]]] = field(default_factory=dict)
    is_wanted: bool = True

    def question(self, piece: int) -> Frame:
        """The task of a process."""
        fields = {**self.task.fields, "worker": FOR_ALL, "shards": self.pieces[piece]}
        return Frame("evaluate", fields, self.task.arrays)

    def answer(self) -> Frame:
        """The sum of all pieces, in their order."""
        found = [self.found[piece] for piece in range(len(self.pieces))]
        arrays = {name: np.asarray(np.add.reduce([of[name] for of in found])) for name in found[0]}
        return Frame("values", self.task.fields, arrays)


class NodeSums:
    """The sums that a node was asked for.

    Parameters
    ----------
    n_places
        Number of places for processes on the node.
    send
        Sends a frame to the process at a place, which answers in the order of the frames.
    """

    def __init__(self, n_places: int, send: Callable[[int, Frame], None]) -> None:
        self._send = send
        self._loads = Counter(dict.fromkeys(range(n_places), 0))
        self._seats: dict[int, int] = {}  # the place of each shard
        self._under_way: list[deque[_Piece]] = [deque() for _ in range(n_places)]

    def is_needed(self, place: int) -> bool:
        """Whether a sum waits for the process at a place."""
        return any(of.is_wanted for of, _ in self._under_way[place])

    def begin(self, task: Frame, places: Sequence[int]) -> None:
        """Have the processes at `places` compute the sum that a task asks for."""
        dealt: dict[int, list[int]] = {}
        for shard in task.fields["shards"]:
            dealt.setdefault(self._place_for(shard, places), []).append(shard)
        whole = _Sum(task, [dealt[place] for place in sorted(dealt)])
        for piece, place in enumerate(sorted(dealt)):
            self._ask(place, whole, piece)

    def take(self, place: int, values: Frame) -> Frame | None:
        """Take the next answer of a process; returns the sum if it is complete."""
        whole, piece = self._under_way[place].popleft()
        whole.found[piece] = values.arrays
        is_complete = len(whole.found) == len(whole.pieces)
        return whole.answer() if is_complete and whole.is_wanted else None

    def drop(self, workers: Collection[int]) -> None:
        """Forget the sums that some workers were asked for."""
        for pieces in self._under_way:
            for whole, _ in pieces:
                whole.is_wanted &= whole.task.fields["worker"] not in workers

    def gone(self, place: int, places: Sequence[int]) -> None:
        """Have the processes at `places` compute what the one at `place` was asked for."""
        left, self._under_way[place] = self._under_way[place], deque()
        for whole, piece in left:
            if whole.is_wanted and places:
                self._ask(places[whole.pieces[piece][0] % len(places)], whole, piece)

    def _ask(self, place: int, whole: _Sum, piece: int) -> None:
        self._under_way[place].append((whole, piece))
        self._send(place, whole.question(piece))

    def _place_for(self, shard: int, places: Sequence[int]) -> int:
        """The place of a shard; another one while there is no process.

        A shard that is new gets the place with the fewest, so that every sum is dealt evenly.
        """
        if shard not in self._seats:
            self._seats[shard] = min(self._loads, key=lambda place: (self._loads[place], place))
            self._loads[self._seats[shard]] += 1
        seat = self._seats[shard]
        return seat if seat in places else places[shard % len(places)]
