"""Memory for what is computed from a shard once and used at every evaluation."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from quorate.models.protocol import Shard

T = TypeVar("T")


class PerShard(Generic[T]):
    """A function of a shard that remembers its last answers.

    It remembers only shards whose arrays are read-only, as those on disk are, and knows them by the
    identity of the arrays, not by their content. Answers are not pickled. An answer is no larger
    than the rows of its shard.
    """

    n_kept: ClassVar[int] = 16  # shards; `make_room` is for processes that hold more

    @classmethod
    def make_room(cls, n_shards: int) -> None:
        """Let all functions in this process remember at least so many shards."""
        PerShard.n_kept = max(PerShard.n_kept, n_shards)

    def __init__(self, compute: Callable[[Shard], T]) -> None:
        self._compute = compute
        self._answers: OrderedDict[tuple[tuple[str, int], ...], tuple[list[Any], T]] = OrderedDict()

    def __call__(self, shard: Shard) -> T:
        """The answer for this shard."""
        if any(_may_change(array) for array in shard.values()):
            return self._compute(shard)
        return self._remembered(shard, lambda: self._compute(shard))

    def remember(self, shard: Shard, compute: Callable[[], T]) -> None:
        """Let the answer for a shard be computed in another way, unless it is known."""
        if not any(_may_change(array) for array in shard.values()):
            self._remembered(shard, compute)

    def _remembered(self, shard: Shard, compute: Callable[[], T]) -> T:
        key = tuple((name, id(array)) for name, array in sorted(shard.items()))
        if key not in self._answers:
            # The arrays are stored too: while they live, no other array can have their identity.
            self._answers[key] = (list(shard.values()), compute())
            if len(self._answers) > self.n_kept:
                self._answers.popitem(last=False)
        return self._answers[key][1]

    def __reduce__(self) -> tuple[type["PerShard[T]"], tuple[Callable[[Shard], T]]]:
        return PerShard, (self._compute,)


def _may_change(array: Any) -> bool:
    while isinstance(array, np.ndarray):  # a read-only view may be of a writeable array
        if array.flags.writeable:
            return True
        array = array.base
    return False
