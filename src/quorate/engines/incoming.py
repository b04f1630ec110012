"""What arrives from the processes of an engine, until the coordinator reads it."""

import queue
import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class Incoming(Generic[T]):
    """A queue that many threads fill and one empties.

    A thread waits while `n_most` things are unread. It costs a third of `queue.Queue`, which an
    exact run would notice: a block of its points takes workers little longer.
    """

    def __init__(self, n_most: int) -> None:
        self._room = threading.Semaphore(n_most)
        self._unread: queue.SimpleQueue[T] = queue.SimpleQueue()

    def put(self, thing: T) -> None:
        """Add a thing when there is room for it."""
        self._room.acquire()
        self._unread.put(thing)

    def get(self, timeout: float) -> T:
        """The next thing; `queue.Empty` if none comes within `timeout` seconds."""
        thing = self._unread.get(timeout=timeout)
        self._room.release()
        return thing
