"""Shards that a worker does not see in a folder: their rows are sent to it."""

from typing import Any

from numpy.typing import NDArray

from quorate.models.protocol import Shard

Rows = dict[str, NDArray[Any]]


class Delivered:
    """Shards that were delivered, by number."""

    def __init__(self) -> None:
        self.shards: dict[int, Rows] = {}

    def shard(self, number: int) -> Shard:
        """The rows of shard `number`, which must have been delivered."""
        return self.shards[number]
