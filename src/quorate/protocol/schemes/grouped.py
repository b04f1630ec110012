"""Group-based CMC (G-CMC): Algorithm 2.

Workers of a group hold the same shards and draw independently. A group is a "super-worker" of CMC,
and every batch of every member counts, a straggler's too.
"""

from collections.abc import Collection

from quorate._types import Array
from quorate.protocol.allocation import groups, worker_groups
from quorate.protocol.ledger import DrawCounts, Ledger, Merging
from quorate.protocol.messages import Block, Task
from quorate.protocol.scheme import NOBODY
from quorate.protocol.schemes.cmc import SendDraws
from quorate.protocol.task_numbers import BatchCounter


class GroupedCMC:
    """Algorithm 2.

    Parameters
    ----------
    n_workers
        K.
    redundancy
        r, the size of a group. Where it does not divide K the last group is smaller.
    cov_ridge
        σ² of eq. (9b).
    pairing, seed, weights
        See `quorate.protocol.ledger.Merging`.
    """

    def __init__(
        self,
        n_workers: int,
        redundancy: int,
        cov_ridge: float,
        pairing: str = "paper",
        seed: int = 0,
        weights: str = "draws",
    ) -> None:
        # Data allocation: all shards of a group to all its workers
        self.allocation = groups(n_workers, redundancy)
        self.worker_groups = worker_groups(n_workers, redundancy)
        self.ledger = Ledger(self.worker_groups, Merging(cov_ridge, pairing, seed, weights))
        self._redundancy = redundancy
        self._batches = BatchCounter(self.allocation)

    # At the group of workers: the l-th batch is the l-th that any member completes

    worker_side = SendDraws()
    quarantined = NOBODY
    shares_starts = False

    def chain_of(self, worker: int, shard: int) -> int:
        """Independent within a group. The first member draws what CMC's worker would."""
        return worker % self._redundancy

    def group_of(self, worker: int) -> int:
        """g, for worker k in 𝖪_g."""
        return worker // self._redundancy

    # At the server: when every group has sent l batches, the l-th global draw is there

    def next_task(self, worker: int, n_draws: int | None) -> Task | None:
        """A share of what its group still lacks, small enough that none has to wait for it."""
        group = self.group_of(worker)
        chain = self.chain_of(worker, worker)  # worker k holds shard k
        if n_draws is None:
            return self._batches.up_to(None, worker, chain)
        n_lacking = n_draws - self.ledger.n_received[group]
        if n_lacking <= 0:
            return None
        share = n_lacking // len(self.worker_groups[group])
        return self._batches.more(max(share, 1), worker, chain)

    def receive(self, block: Block) -> int:
        worker = block.task.worker
        self._batches.n_received[worker] += len(block.payload)
        group = self.group_of(worker)
        return self.ledger.add(group, block.payload, block.task.chain, block.extras)

    def take_back(self, worker: int) -> None:
        self._batches.take_back(worker)

    def can_reach(self, n_draws: int, alive: Collection[int]) -> bool:
        return not self._out_of_reach(n_draws, alive)

    def exclude(self, n_draws: int, alive: Collection[int]) -> int:
        return self.ledger.exclude(self._out_of_reach(n_draws, alive))

    def _out_of_reach(self, n_draws: int, alive: Collection[int]) -> list[int]:
        lacking = [g for g in self.ledger.included if self.ledger.n_received[g] < n_draws]
        return [g for g in lacking if not any(k in alive for k in self.worker_groups[g])]

    def global_draws(self) -> Array:
        """Eq. (10), with Ĉ_s(t) of eq. (9) from all batches received of its group by now."""
        return self.ledger.consensus()

    def draw_counts(self) -> DrawCounts:
        return self.ledger.draw_counts()
