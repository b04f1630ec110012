"""Group-based CMC (G-CMC): Algorithm 2.

Workers of a group hold the same shards and draw independently. A group is a "super-worker" of CMC,
and every batch of every member counts, a straggler's too.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from quorate.protocol.allocation import groups, shards_each, worker_groups
from quorate.protocol.ledger import PAPER, Ledger, Merging
from quorate.protocol.messages import Block, Task
from quorate.protocol.scheme import NOBODY, Setup
from quorate.protocol.schemes.cmc import SendDraws
from quorate.protocol.sums import AnyHolder
from quorate.protocol.task_numbers import BatchCounter
from quorate.protocol.times import Outcomes, Realisations
from quorate.protocol.times.batches import grouped_times


class GroupedCMC:
    """A run of Algorithm 2.

    Parameters
    ----------
    n_workers
        K.
    redundancy
        r, the size of a group. Where it does not divide K the last group is smaller.
    merging
        How draws of shards become global draws, with σ² of eq. (9b).
    """

    def __init__(self, n_workers: int, redundancy: int, merging: Merging) -> None:
        # Data allocation: all shards of a group to all its workers
        self.allocation = groups(n_workers, redundancy)
        self.worker_groups = worker_groups(n_workers, redundancy)
        self.received = Ledger(self.worker_groups, merging)
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

    # At the server: when every group has sent l batches, the l-th global draw is complete, eq. (10)

    def next_task(self, worker: int, n_draws: int | None) -> Task | None:
        """A share of what its group still lacks, small enough that none has to wait for it."""
        group = self.group_of(worker)
        chain = self.chain_of(worker, worker)  # worker k holds shard k
        if n_draws is None:
            return self._batches.up_to(None, worker, chain)
        n_lacking = n_draws - self.received.n_received[group]
        if n_lacking <= 0:
            return None
        share = n_lacking // len(self.worker_groups[group])
        return self._batches.more(max(share, 1), worker, chain)

    def receive(self, block: Block) -> int:
        task, payload = block.task, block.payload
        worker = task.worker
        self._batches.n_received[worker] += len(payload)
        return self.received.add(self.group_of(worker), payload, task.chain, block.extras)

    def take_back(self, worker: int) -> None:
        self._batches.take_back(worker)

    def out_of_reach(self, n_draws: int, alive: Collection[int]) -> tuple[int, ...]:
        """The shards of a group bear the numbers of its workers."""
        lacking = [self.worker_groups[group] for group in self.received.lacking(n_draws)]
        return tuple(k for group in lacking if not set(group) & set(alive) for k in group)

    def leave_out(self, shards: Collection[int]) -> int:
        return self.received.leave_out(shards)


@dataclass(frozen=True)
class Grouped:
    """G-CMC (Algorithm 2): groups of r workers share r shards.

    Parameters
    ----------
    redundancy
        r, by default 2, or 1 for one worker.
    pairing
        How draws of shards make global draws: paper, in order of arrival, or all, using each draw.
    weights
        Source of the weights: draws, or shrunk towards the fits of warm-up. The default is shrunk
        unless there is a ridge.
    cov_ridge
        Ridge σ² on every covariance estimate, with weights from draws.
    """

    redundancy: int | None = None
    pairing: str = "all"
    weights: str | None = None
    cov_ridge: float = 0.0

    name: ClassVar[str] = "grouped"
    label: ClassVar[str] = "G-CMC"
    colour: ClassVar[str] = "#0072b2"
    published: ClassVar[Mapping[str, Any]] = PAPER
    needs_common_randomness: ClassVar[bool] = False
    can_leave_out: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Merging.chosen(self)

    def shards_per_worker(self, n_workers: int) -> int:
        return shards_each(n_workers, self.redundancy)

    def survives(self, n_workers: int) -> int:
        r = self.shards_per_worker(n_workers)
        return min(map(len, worker_groups(n_workers, r))) - 1

    def start(self, setup: Setup) -> GroupedCMC:
        redundancy = self.shards_per_worker(setup.n_workers)
        return GroupedCMC(setup.n_workers, redundancy, Merging.chosen(self, setup.seed))

    def sums(self, n_workers: int, seed: int) -> AnyHolder:
        """The first answer of each group counts, for all shards of the group."""
        redundancy = self.shards_per_worker(n_workers)
        cells = tuple(worker_groups(n_workers, redundancy))
        return AnyHolder(groups(n_workers, redundancy), cells)

    def finish_times(self, realisations: Realisations) -> Outcomes:
        return grouped_times(self.shards_per_worker(realisations.work.n_workers), realisations)
