"""Workers of one node answer together: one sum over all their shards travels, not one for each.

All shards that the same nodes hold make up one part of a pass. Any of these nodes can answer for
it. So a node that is slow or gone is covered by others as a single worker is. Values lie on a grid
on which sums are exact, so draws do not depend on who lives where.

One worker of each node is asked for the parts of all. An engine says where workers live, with
`quorate.protocol.messages.WorkerJoined`. A worker of which it says nothing answers for itself.
Coded sums are not combined: which of them are wanted is known only when they are there.
"""

from collections.abc import Collection, Iterable
from itertools import chain
from typing import NamedTuple

from quorate.protocol.sums import AnyHolder, Sums

Home = str | int  # a node, or a worker with a node of its own
_FEW = 4  # parts for each node; with more of them, only two nodes are asked for each part


class Grouping(NamedTuple):
    """How sums are put together at some points, and how much had happened by then.

    `is_stuck` says that no worker was there for some part.
    """

    sums: Sums
    n_joined: int
    n_lost: int
    is_stuck: bool


class Teams:
    """Where workers live, and the parts of a sum that their nodes can give."""

    def __init__(self, sums: Sums) -> None:
        self._sums = sums
        self._node_of: dict[int, str] = {}
        self._members: dict[str, dict[int, None]] = {}  # that are there
        self._asked = set(range(sums.allocation.n_workers))
        self._n_joined = self._n_lost = 0
        self._current: Grouping | None = None

    @property
    def asked(self) -> Collection[int]:
        """Workers that are asked for sums: one of each node."""
        return self._asked

    def of(self, worker: int) -> tuple[int, ...]:
        """All workers that `worker` answers for."""
        return tuple(sorted(self._members.get(self._node_of.get(worker, ""), {worker: None})))

    def joined(self, worker: int, node: str) -> bool:
        """Take in where a worker lives; returns whether that may be news."""
        if not node or not isinstance(self._sums, AnyHolder):
            return False
        if worker in self._members.get(node, ()):
            return False
        self._leave(worker)
        self._node_of[worker] = node
        self._members.setdefault(node, {})[worker] = None
        if len(self._members[node]) > 1:
            self._asked.discard(worker)
        self._n_joined += 1
        return True

    def lost(self, worker: int) -> bool:
        """Take in that a worker is gone; returns whether its node has to be asked otherwise."""
        if worker not in self._members.get(self._node_of.get(worker, ""), ()):
            return False
        self._leave(worker)
        self._n_lost += 1
        return True

    def is_outdated(self, grouping: Grouping) -> bool:
        """Whether some worker of it is gone, or can now answer where nobody could."""
        return grouping.n_lost != self._n_lost or (
            grouping.is_stuck and grouping.n_joined != self._n_joined
        )

    def grouping(
        self, before: Grouping | None, known: Collection[int]
    ) -> tuple[Grouping, dict[int, int] | None]:
        """Parts for all that is not known yet, and the new numbers of those that are `known`.

        There are no new numbers if nothing has changed.
        """
        if before is None or not isinstance(before.sums, AnyHolder):
            return self._whole(), None
        kept = [before.sums.cells[number] for number in known]
        parts = self._parts(kept) if kept else self._whole()
        return parts, {number: i for i, number in enumerate(known)}

    def _whole(self) -> Grouping:
        """The grouping where nothing is known yet: the same for many blocks."""
        now = self._n_joined, self._n_lost
        if self._current is None or self._current[1:3] != now:
            self._current = self._parts([])
        return self._current

    def _parts(self, kept: list[tuple[int, ...]]) -> Grouping:
        if not self._node_of or not isinstance(self._sums, AnyHolder):
            return Grouping(self._sums, self._n_joined, self._n_lost, is_stuck=False)
        classes = self._classes(self._sums, set(chain.from_iterable(kept)))
        cells = [tuple(chain.from_iterable(shards)) for shards in classes.values()]
        asked = [tuple(sorted(map(self._who_speaks, homes))) for homes in classes]
        sums = AnyHolder(self._sums.allocation, (*kept, *cells), (*((),) * len(kept), *asked))
        return Grouping(sums, self._n_joined, self._n_lost, is_stuck=not all(asked))

    def _classes(
        self, sums: AnyHolder, known: set[int]
    ) -> dict[tuple[Home, ...], list[tuple[int, ...]]]:
        """Cells that are not known, by the nodes that can answer for them."""
        wanted = [
            (cell, self._homes(givers))
            for cell, givers in zip(sums.cells, sums.givers, strict=True)
            if cell[0] not in known
        ]
        n_homes = len({home for _, homes in wanted for home in homes})
        is_many = len({frozenset(homes) for _, homes in wanted}) > _FEW * n_homes
        classes: dict[tuple[Home, ...], list[tuple[int, ...]]] = {}
        for cell, homes in wanted:
            some = homes[:2] if is_many else homes
            classes.setdefault(tuple(sorted(some, key=str)), []).append(cell)
        return classes

    def _homes(self, workers: Iterable[int]) -> tuple[Home, ...]:
        """Homes of the workers that are present, in order and each home once."""
        homes: dict[Home, None] = {}
        for worker in workers:
            node = self._node_of.get(worker)
            if node is None:
                homes[worker] = None
            elif worker in self._members[node]:
                homes[node] = None
        return tuple(homes)

    def _who_speaks(self, home: Home) -> int:
        return home if isinstance(home, int) else next(iter(self._members[home]))

    def _leave(self, worker: int) -> None:
        """Take a worker from its node, if it has one; the next of the node speaks for it then."""
        members = self._members.get(self._node_of.get(worker, ""), {})
        members.pop(worker, None)
        self._asked.add(worker)
        if members:
            self._asked.add(next(iter(members)))
