"""Sums over shards that several processes of a node compute together, one piece each.

Every shard has its process. Pieces are added up in the order of the processes. Values lie on a grid
on which sums are exact, so the bits depend neither on how shards are dealt nor on who is first.

What a process is late with is computed by an idle one as well, and the first answer counts. A
process that is behind, with pieces that others have computed by now, gets no new ones.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.engines.frames import Frame
from quorate.engines.processes.hosts import FOR_ALL

_LATE, _LEAST = 3.0, 0.1  # a piece is late after so many times the usual, and so many seconds more
_RECENT = 32  # pieces from which the usual time is known


@dataclass
class _Sum:
    """A task under way, and what has arrived of its pieces."""

    task: Frame
    pieces: list[list[int]]  # the shards of each
    found: dict[int, dict[str, NDArray[Any]]] = field(default_factory=dict)
    helped: set[int] = field(default_factory=set)  # pieces that a second process is asked for
    is_wanted: bool = True

    def lacks(self, piece: int) -> bool:
        """Whether a piece is still of use."""
        return self.is_wanted and piece not in self.found

    def question(self, piece: int) -> Frame:
        """The task of a process, with the recipes of its own shards."""
        shards, arrays = self.pieces[piece], self.task.arrays
        if "recipes" in arrays:
            rows = [self.task.fields["shards"].index(shard) for shard in shards]
            arrays = {**arrays, "recipes": arrays["recipes"][rows]}
        return Frame("evaluate", {**self.task.fields, "worker": FOR_ALL, "shards": shards}, arrays)

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
        self._under_way: list[deque[tuple[_Sum, int]]] = [deque() for _ in range(n_places)]
        self._since = [0.0] * n_places  # when a process began with its first piece
        self._times: deque[float] = deque(maxlen=_RECENT)  # seconds for a shard

    @property
    def is_idle(self) -> bool:
        """Whether no process has anything to do."""
        return not any(self._under_way)

    def is_busy(self, place: int) -> bool:
        """Whether the process at a place has something to do."""
        return bool(self._under_way[place])

    def begin(self, task: Frame, places: Sequence[int], now: float) -> None:
        """Have the processes at `places` compute the sum that a task asks for."""
        able = [place for place in places if not self._is_behind(place)] or places
        dealt: dict[int, list[int]] = {}
        for shard in task.fields["shards"]:
            dealt.setdefault(self._place_for(shard, able), []).append(shard)
        whole = _Sum(task, [dealt[place] for place in sorted(dealt)])
        for piece, place in enumerate(sorted(dealt)):
            self._ask(place, whole, piece, now)

    def take(self, place: int, values: Frame, now: float) -> Frame | None:
        """Take the next answer of a process; returns the sum if it is complete."""
        whole, piece = self._under_way[place].popleft()
        self._times.append((now - self._since[place]) / len(whole.pieces[piece]))
        self._since[place] = now
        is_news = whole.lacks(piece)
        whole.found[piece] = values.arrays
        return whole.answer() if is_news and len(whole.found) == len(whole.pieces) else None

    def help(self, places: Sequence[int], now: float) -> None:
        """Have idle processes compute, too, what others are late with."""
        idle = [place for place in places if not self._under_way[place]]
        late = [place for place in places if self._is_late(place, now)] if idle else []
        for whole, piece in [each for place in late for each in self._under_way[place]]:
            if idle and whole.lacks(piece) and piece not in whole.helped:
                whole.helped.add(piece)
                self._ask(idle.pop(0), whole, piece, now)

    def drop(self, workers: Collection[int]) -> None:
        """Forget the sums that some workers were asked for."""
        for pieces in self._under_way:
            for whole, _ in pieces:
                whole.is_wanted &= whole.task.fields["worker"] not in workers

    def gone(self, place: int, places: Sequence[int], now: float) -> None:
        """Have the processes at `places` compute what the one at `place` was asked for."""
        left, self._under_way[place] = self._under_way[place], deque()
        for whole, piece in left:
            if whole.lacks(piece) and places:
                self._ask(places[whole.pieces[piece][0] % len(places)], whole, piece, now)

    def _ask(self, place: int, whole: _Sum, piece: int, now: float) -> None:
        if not self._under_way[place]:
            self._since[place] = now
        self._under_way[place].append((whole, piece))
        self._send(place, whole.question(piece))

    def _is_behind(self, place: int) -> bool:
        """Whether a process is at work on a piece that is of no use any more."""
        return any(not whole.lacks(piece) for whole, piece in self._under_way[place])

    def _is_late(self, place: int, now: float) -> bool:
        if not self._under_way[place] or not self._times:
            return False
        whole, piece = self._under_way[place][0]
        usual = median(self._times) * len(whole.pieces[piece])
        return now - self._since[place] > _LATE * usual + _LEAST

    def _place_for(self, shard: int, places: Sequence[int]) -> int:
        """The place of a shard; another one while there is no process, or it is behind.

        A shard that is new gets the place with the fewest, so that every sum is dealt evenly.
        """
        if shard not in self._seats:
            self._seats[shard] = min(self._loads, key=lambda place: (self._loads[place], place))
            self._loads[self._seats[shard]] += 1
        seat = self._seats[shard]
        return seat if seat in places else places[shard % len(places)]
