"""What is worked out from a shard once and used at every evaluation."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from quorate.models.protocol import Shard

T = TypeVar("T")
_KEPT = 16  # shards; a worker holds few, and what is kept for one is no larger than its rows


class PerShard(Generic[T]):
    """A function of a shard that remembers its last answers, where that is safe.

    Only shards whose arrays are read-only, as those on disk are, are remembered: by which arrays
    they hold, not by what is in them. Answers do not travel when this is pickled.
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
            # The arrays are kept too: so long as they live, no other array has their identity.
            self._answers[key] = (list(shard.values()), self._compute(shard))
            if len(self._answers) > _KEPT:
                self._answers.popitem(last=False)
        return self._answers[key][1]

    def __reduce__(self) -> tuple[type["PerShard[T]"], tuple[Callable[[Shard], T]]]:
        return PerShard, (self._compute,)


def _may_change(array: Any) -> bool:
    while isinstance(array, np.ndarray):  # a read-only view of an array that can be written to
        if array.flags.writeable:
            return True
        array = array.base
    return False
