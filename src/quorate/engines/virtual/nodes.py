"""How long tasks take in virtual time, where workers share nodes, too."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from quorate._types import Array, IntArray
from quorate.engines.latency import LatencyModel
from quorate.numerics.streams import Streams
from quorate.protocol.allocation import Allocation

_TIMES = 64  # computing times made together for each worker
_FEWER, _MANY = 8, 10_000  # so many where there are many workers


class Shares(NamedTuple):
    """Who does which shard of a task: entry i of `owners` and `ranks` is about the i-th shard.

    `ranks` counts the shards that the same worker does before. `workers` are those that have any,
    and `counts` how many.
    """

    owners: IntArray
    ranks: IntArray
    workers: IntArray
    counts: IntArray


class ComputingTimes:
    """Times of tasks. The workers of a node take turns, as those of a process do.

    Parameters
    ----------
    latency
        Times of one shard.
    nodes
        Node of each worker; empty for nodes of their own.
    """

    def __init__(
        self,
        latency: LatencyModel,
        streams: Streams,
        allocation: Allocation,
        nodes: Sequence[str],
    ) -> None:
        n_workers = allocation.n_workers
        self._latency, self._streams = latency, streams
        self._allocation, self._nodes = allocation, nodes
        self._n_made = _TIMES if n_workers < _MANY else _FEWER
        self._times = np.empty((n_workers, 0))
        self._n_used = np.zeros(n_workers, dtype=np.int64)
        self._shares: dict[tuple[int, tuple[int, ...]], Shares] = {}

    def of(self, worker: int, shards: tuple[int, ...]) -> float:
        """Time that the node of a worker takes."""
        if not self._nodes or len(shards) == 1:
            return self._alone(worker, len(shards))
        known = self._shares.get((worker, shards))
        if known is None:
            known = self._shares[worker, shards] = self._dealt(worker, shards)
        return self._together(known)

    def _alone(self, worker: int, n: int) -> float:
        first = int(self._n_used[worker])
        self._n_used[worker] = first + n
        self._make(first + n)
        times: Array = self._times[worker, first : first + n]
        return float(sum(times.tolist()))

    def _together(self, shares: Shares) -> float:
        units = self._n_used[shares.owners] + shares.ranks
        self._make(int(units.max()) + 1)
        self._n_used[shares.workers] += shares.counts
        return float(self._times[shares.owners, units].sum())

    def _dealt(self, worker: int, shards: tuple[int, ...]) -> Shares:
        """Each shard to its first holder on the node of the worker."""
        node = self._nodes[worker]
        holders = map(self._allocation.holders_of, shards)
        owners = [next((k for k in of if self._nodes[k] == node), worker) for of in holders]
        seen: dict[int, int] = {}
        ranks = []
        for owner in owners:
            ranks.append(seen.get(owner, 0))
            seen[owner] = ranks[-1] + 1
        workers, counts = np.unique(owners, return_counts=True)
        return Shares(np.array(owners), np.array(ranks), workers, counts)

    def _make(self, n_wanted: int) -> None:
        while n_wanted > (n_known := self._times.shape[1]):
            n_more = max(self._n_made, n_known)
            more = self._latency.times(self._streams, len(self._times), n_known, n_more)
            self._times = np.concatenate([self._times, more], axis=1)
