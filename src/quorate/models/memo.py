"""Memory for what is computed from a shard once and used at every evaluation."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from quorate.models.protocol import Shard

T = TypeVar("T")
_KEPT = 16  # shards; a worker holds few, and an answer is no larger than the rows of its shard


class PerShard(Generic[T]):
    """A function of a shard that remembers its last answers.

    It remembers only shards whose arrays are read-only, as those on disk are, and knows them by the
    identity of the arrays, not by their content. Answers are not pickled.
    """

    def __init__(self, compute: Callable[[Shard], T]) -> None:
        self._compute = compute
        self._answers: OrderedDict[tuple[tuple[str, int], ...], tuple[list[Any], T]] = OrderedDict()

    def __call__(self, shard: Shard) -> T:
        """The answer for this shard."""
        if any(_may_change(array) for array in shard.values()):
            return self._compute(shard)
        key = tuple((name, id(array)) for name, array in sorted(shard.items()))
        if key not in self._answers:
            # The arrays are stored too: while they live, no other array can have their identity.
            self._answers[key] = (list(shard.values()), self._compute(shard))
            if len(self._answers) > _KEPT:
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
