"""Workers that share a process take turns: each process surveys one shard at a time.

If all of them were asked at once, most surveys would wait for others in the same process, seem
late, and be asked for again elsewhere.
"""

from collections import deque
from collections.abc import Callable


class Turns:
    """Whose turn it is, on every node.

    `has_work` says whether there is something that a worker could do.
    """

    def __init__(self, has_work: Callable[[int], bool]) -> None:
        self._has_work = has_work
        self._node_of: dict[int, str] = {}
        self._at_work: dict[str, int] = {}
        self._waiting: dict[str, deque[int]] = {}
        self._called: list[int] = []

    def joined(self, worker: int, node: str) -> None:
        """Take in where a worker lives; an empty name is a node of its own."""
        self._node_of[worker] = node or f"worker {worker}"

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
            if self._has_work(following):
                self._called.append(following)
                return

    def lost(self, worker: int) -> None:
        """Take in that a worker is gone, and no longer waits."""
        waiting = self._waiting.get(self._node_of.get(worker, ""), deque())
        while worker in waiting:
            waiting.remove(worker)
        self.end(worker)

    def called(self) -> list[int]:
        """Workers whose turn it has become since the last call."""
        called, self._called = self._called, []
        return called
