"""The order of rows in the data that shards were cut from."""

import numpy as np

from quorate._types import IntArray
from quorate.data.codes import OWNERS
from quorate.data.partition import Owners, Partition, shuffled
from quorate.data.placed import PlacedShards, Shards
from quorate.data.store import ShardSet


def rows_of_data(shards: Shards) -> list[IntArray] | None:
    """For each shard, the numbers of its rows in the data; None if that was not written down."""
    if isinstance(shards, PlacedShards):
        return shards.rows_of_data()
    owners = owners_of(shards)
    if owners is None:
        return None
    order = np.argsort(owners, kind="stable")
    return np.split(order, np.cumsum(shards.n_rows)[:-1])


def owners_to_keep(partition: Partition, by: str) -> dict[str, Owners]:
    """The shard of every row, by the name of its file, if that cannot be computed again."""
    is_known = by.partition(":")[0] in ("shuffle", "files")
    return {} if is_known else {OWNERS: partition.owners}


def owners_of(shards: ShardSet) -> Owners | None:
    """The shard of every row; shards of before have none of it for groups and strata."""
    if OWNERS in dict(shards.label_digests):
        return shards.labels(OWNERS)
    n_shards, way = shards.n_shards, shards.by.partition(":")[0]
    if way == "shuffle":
        return shuffled(sum(shards.n_rows), n_shards, shards.seed)
    if way == "files":
        return np.repeat(np.arange(n_shards), shards.n_rows)
    return None
