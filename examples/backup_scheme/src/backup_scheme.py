"""Backup workers: a scheme for quorate, written outside the package.

In the order of the paper's boxes: data allocation, at worker k, at the server; last, the options.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from quorate.protocol.allocation import cyclic, shards_each
from quorate.protocol.ledger import PAPER, Ledger, Merging
from quorate.protocol.messages import Block, Task
from quorate.protocol.scheme import NOBODY, Setup
from quorate.protocol.schemes.cmc import SendDraws
from quorate.protocol.sums import AnyHolder
from quorate.protocol.task_numbers import DrawCounter


class BackupCMC:
    """One run: worker k draws from shard k, and helps others when that shard is done."""

    def __init__(self, n_workers: int, redundancy: int, merging: Merging, block_size: int) -> None:
        # Data allocation: shards k, k+1, …, k+r-1 to worker k
        self.allocation = cyclic(n_workers, redundancy)
        self.received = Ledger([(shard,) for shard in range(n_workers)], merging)
        self._counter = DrawCounter(n_workers)
        self._block_size = block_size

    # At worker k: send draws as they are made, on chains of its own

    worker_side = SendDraws()
    quarantined = NOBODY
    shares_starts = True

    def chain_of(self, worker: int, shard: int) -> int:
        rank = self.allocation.rank(worker, shard)
        assert rank is not None, "tasks are for shards that the worker holds"
        return rank

    # At the server: when every shard has l draws, the l-th global draw is complete

    def next_task(self, worker: int, n_draws: int | None) -> Task | None:
        """A block of the worker's own shard, or else of the one furthest behind."""
        held = self.allocation.shards_of(worker)
        received = self.received.n_received
        lacking = [s for s in held if n_draws is None or received[s] < n_draws]
        if not lacking:
            return None
        shard = worker if worker in lacking else min(lacking, key=received.__getitem__)
        n_left = self._block_size if n_draws is None else n_draws - received[shard]
        n = min(self._block_size, n_left)
        return self._counter.more(n, worker, shard, self.chain_of(worker, shard))

    def receive(self, block: Block) -> int:
        task = block.task
        (shard,) = task.shards
        self._counter.received(task.worker, shard, len(block.payload))
        return self.received.add(shard, block.payload, task.chain, block.extras)

    def take_back(self, worker: int) -> None:
        self._counter.take_back(worker)

    def out_of_reach(self, n_draws: int, alive: Collection[int]) -> tuple[int, ...]:
        held = {shard for worker in alive for shard in self.allocation.shards_of(worker)}
        return tuple(shard for shard in self.received.lacking(n_draws) if shard not in held)

    def leave_out(self, shards: Collection[int]) -> int:
        return self.received.leave_out(shards)


@dataclass(frozen=True)
class Backup:
    """Backup workers: everybody draws from a shard of their own, and then helps.

    Parameters
    ----------
    redundancy
        r, by default 2, or 1 for one worker.
    pairing, weights, cov_ridge
        How draws become global draws; see `quorate.protocol.ledger.Merging`.
    """

    redundancy: int | None = None
    pairing: str = "all"
    weights: str | None = None
    cov_ridge: float = 0.0

    name: ClassVar[str] = "backup"
    label: ClassVar[str] = "backup"
    colour: ClassVar[str] = "#cc79a7"
    published: ClassVar[Mapping[str, Any]] = MappingProxyType({**PAPER, "pairing": "all"})
    needs_common_randomness: ClassVar[bool] = False
    can_leave_out: ClassVar[bool] = True

    def shards_per_worker(self, n_workers: int) -> int:
        return shards_each(n_workers, self.redundancy)

    def survives(self, n_workers: int) -> int:
        return self.shards_per_worker(n_workers) - 1

    def start(self, setup: Setup) -> BackupCMC:
        redundancy = self.shards_per_worker(setup.n_workers)
        merging = Merging.chosen(self, setup.seed)
        return BackupCMC(setup.n_workers, redundancy, merging, setup.block_size)

    def sums(self, n_workers: int, seed: int) -> AnyHolder:
        """In exact passes any holder answers for a shard."""
        return AnyHolder.by_shard(cyclic(n_workers, self.shards_per_worker(n_workers)))

    def finish_times(self, realisations: object) -> None:
        """No short cut: the planner simulates the scheme."""
