"""Questions about rows in place, before a run: one piece of work for each shard.

Workers read the rows, and the coordinator none. Any holder of a shard may be asked, the first
answer counts, and late ones are asked of another: see `quorate.protocol.after`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quorate.protocol.messages import NOTHING, Arrays, ShardFound, ShardTask

FACTS, LEARN = "facts of rows in place", "learn from rows in place"
BEFORE = (FACTS, LEARN)
TOLD = "told"  # the array of an answer: bytes of JSON
_NO_POINTS = np.empty((0, 0))
_NO_NUMBERS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class RowsQuestion:
    """What is asked of each shard before a run.

    Parameters
    ----------
    what
        `FACTS` or `LEARN`.
    n_shards
        K.
    keys
        What an answer must have.
    given
        What the work takes.
    first
        The first shard to ask for: those before it are known.
    """

    what: str
    n_shards: int
    keys: frozenset[str]
    given: Arrays = field(default_factory=lambda: NOTHING)
    first: int = 0

    @property
    def shards(self) -> tuple[int, ...]:
        """Shards to ask for."""
        return tuple(range(self.first, self.n_shards))

    def pieces_of(self, shard: int) -> int:
        """One: a shard is read from its first row to its last."""
        return 1

    def task(self, worker: int, shard: int, piece: int) -> ShardTask:
        """The work on a shard, for a worker."""
        return ShardTask(worker, (shard,), self.what, 0, 1, _NO_POINTS, _NO_NUMBERS, self.given)

    def fault_in(self, answer: ShardFound) -> str:
        """Why an answer cannot be one; an empty string if it can."""
        found = _read(answer.found)
        if found is None or set(found) != self.keys:
            return f"an answer about rows in place must have {', '.join(sorted(self.keys))}"
        return ""


class RowsTold:
    """The answers of all shards, by number."""

    def __init__(self) -> None:
        self.by_shard: dict[int, Mapping[str, Any]] = {}
        self._labels: dict[int, Arrays] = {}

    def take(self, shard: int, piece: int, found: Arrays) -> None:
        self.by_shard[shard] = _read(found) or {}
        self._labels[shard] = {name: array for name, array in found.items() if name != TOLD}

    def in_order(self) -> list[Mapping[str, Any]]:
        """What was told, shard by shard."""
        return [self.by_shard[shard] for shard in sorted(self.by_shard)]

    def labels(self) -> list[Arrays]:
        """Packed labels of groups that came with the answers, shard by shard."""
        return [self._labels[shard] for shard in sorted(self._labels)]


def _read(found: Arrays) -> Mapping[str, Any] | None:
    """The JSON of an answer; None if it is none."""
    if TOLD not in found or any(array.dtype != np.uint8 for array in found.values()):
        return None
    try:
        told = json.loads(found[TOLD].tobytes())
    except ValueError:
        return None
    return told if isinstance(told, Mapping) else None
