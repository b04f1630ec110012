"""Who surveys which shard next, before the first question.

Workers that share a process take turns. If all of them were asked at once, most surveys would wait
for others in the same process, seem late, and be asked for again elsewhere.

A device beside cores surveys one of its shards itself, however long it takes to start: it measures
how many points fill it, and the ensembles become as large as that.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable

from quorate.protocol.allocation import Allocation


class Surveying:
    """Whose turn it is, on every node.

    Parameters
    ----------
    lacking
        What a worker could be asked for.
    devices
        Workers that compute on a device, where others do not.
    """

    def __init__(
        self,
        allocation: Allocation,
        lacking: Callable[[int], Iterable[object]],
        devices: Collection[int],
    ) -> None:
        self._lacking = lacking
        self._kept_for = {allocation.shards_of(worker)[0]: worker for worker in devices}
        self._gone: set[int] = set()
        self._node_of: dict[int, str] = {}
        self._at_work: dict[str, int] = {}
        self._waiting: dict[str, deque[int]] = {}
        self._called: list[int] = []

    def joined(self, worker: int, node: str) -> None:
        """Take in where a worker lives; an empty name is a node of its own."""
        self._node_of[worker] = node or f"worker {worker}"
        self._gone.discard(worker)

    def may(self, worker: int, shard: int) -> bool:
        """Whether a shard is not kept for another worker, which is there or still to come."""
        keeper = self._kept_for.get(shard, worker)
        return keeper == worker or keeper in self._gone

    def is_free(self, worker: int) -> bool:
        """Whether nobody else on its node is at work. If not, the worker waits for its turn."""
        node = self._node_of.get(worker, "")
        if self._at_work.get(node, worker) == worker:
            return True
        self._waiting.setdefault(node, deque()).append(worker)
        return False

    def begin(self, worker: int) -> None:
        """Take in that a worker is at work."""
        if worker in self._node_of:
            self._at_work[self._node_of[worker]] = worker

    def end(self, worker: int) -> None:
        """Take in that a worker is done: the next one of its node is called."""
        node = self._node_of.get(worker, "")
        if self._at_work.get(node) != worker:
            return
        del self._at_work[node]
        waiting = self._waiting.get(node, deque())
        while waiting:
            following = waiting.popleft()
            if any(self._lacking(following)):
                self._called.append(following)
                return

    def lost(self, worker: int) -> bool:
        """Take in that a worker is gone, and no longer waits; whether others may do its part."""
        waiting = self._waiting.get(self._node_of.get(worker, ""), deque())
        while worker in waiting:
            waiting.remove(worker)
        self.end(worker)
        self._gone.add(worker)
        return worker in self._kept_for.values()

    def called(self) -> list[int]:
        """Workers whose turn it has become since the last call."""
        called, self._called = self._called, []
        return called
