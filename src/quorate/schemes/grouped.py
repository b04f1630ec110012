"""Group-based CMC (G-CMC): Algorithm 2.

Workers of a group hold the same shards and draw independently. A group is a "super-worker" of CMC,
and every batch of every member counts, a straggler's too.
"""

from collections.abc import Collection

from quorate._types import Array
from quorate.allocation import groups, worker_groups
from quorate.ledger import DrawCounts, Ledger
from quorate.linalg import check_ridge
from quorate.messages import Block, Task
from quorate.pairing import check_pairing
from quorate.schemes.cmc import SendDraws
from quorate.tasks import BatchCounter


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
    pairing, seed
        How draws of shards make global draws, one of `quorate.pairing.PAIRINGS`, and by which
        randomness.
    """

    def __init__(
        self,
        n_workers: int,
        redundancy: int,
        cov_ridge: float,
        pairing: str = "paper",
        seed: int = 0,
    ) -> None:
        check_ridge("cov_ridge", cov_ridge)
        check_pairing(pairing)
        self.cov_ridge = cov_ridge
        self.pairing = pairing
        self.seed = seed
        # Data allocation: all shards of a group to all its workers
        self.allocation = groups(n_workers, redundancy)
        self.worker_groups = worker_groups(n_workers, redundancy)
        self.ledger = Ledger(self.worker_groups)
        self._redundancy = redundancy
        self._batches = BatchCounter(self.allocation)

    # At the group of workers: the l-th batch is the l-th that any member completes

    worker_side = SendDraws()

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
        return self.ledger.add(self.group_of(worker), block.payload, block.task.chain)

    def take_back(self, worker: int) -> None:
        self._batches.take_back(worker)

    def can_reach(self, n_draws: int, alive: Collection[int]) -> bool:
        received = zip(self.worker_groups, self.ledger.n_received, strict=True)
        return all(n >= n_draws or any(k in alive for k in members) for members, n in received)

    def global_draws(self) -> Array:
        """Eq. (10), with Ĉ_s(t) of eq. (9) from all batches received of its group by now."""
        return self.ledger.consensus(self.cov_ridge, self.pairing, self.seed)

    def draw_counts(self) -> DrawCounts:
        return self.ledger.draw_counts(self.pairing)
