"""Consensus Monte Carlo with straggling workers: Algorithm 1.

Every worker holds one shard, and a global draw waits for all of them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from quorate._types import Array, CodedArray
from quorate.merging.fit import Fit, as_arrays
from quorate.merging.pairing import PAIRINGS
from quorate.protocol.allocation import one_to_one
from quorate.protocol.ledger import PAPER, WEIGHTS, Ledger, Merging
from quorate.protocol.messages import NOTHING, Arrays, Block, Task
from quorate.protocol.scheme import NOBODY, Processed, Setup
from quorate.protocol.sums import AnyHolder
from quorate.protocol.task_numbers import BatchCounter
from quorate.protocol.times import Outcomes, Realisations
from quorate.protocol.times.batches import grouped_times


class SendDraws:
    """At worker k, lines 6-9: send the draws as they are; fits of warm-up go with the first."""

    def start(self, fits: Sequence[Fit | None]) -> Arrays:
        """The fits, which the first block sends."""
        return as_arrays(fits)

    def process(self, draws: Array, state: Arrays) -> tuple[Processed, Arrays]:
        return Processed(draws, once={0: state} if state else {}), NOTHING

    def encode(self, worker: int, processed: Processed) -> tuple[CodedArray, Arrays]:
        return processed.vectors.swapaxes(0, 1), processed.once.get(0, NOTHING)

    def payload_shapes(self, n_shards: int, dim: int) -> Collection[tuple[int, ...]]:
        return [(n_shards, dim)]


class PlainCMC:
    """A run of Algorithm 1. `merging` says how draws of shards become global draws, eq. (7b)."""

    def __init__(self, n_workers: int, merging: Merging) -> None:
        # Data allocation: shard k to worker k
        self.allocation = one_to_one(n_workers)
        self.received = Ledger(self.allocation.held, merging)
        self._batches = BatchCounter(self.allocation)

    # At worker k: send the l-th draw as soon as it is made

    worker_side = SendDraws()
    quarantined = NOBODY
    shares_starts = False

    def chain_of(self, worker: int, shard: int) -> int:
        return 0

    # At the server: when all l-th draws have arrived, so has the l-th global draw, eq. (8)

    def next_task(self, worker: int, n_draws: int | None) -> Task | None:
        return self._batches.up_to(n_draws, worker, chain=0)

    def receive(self, block: Block) -> int:
        worker, payload = block.task.worker, block.payload
        self._batches.n_received[worker] += len(payload)
        return self.received.add(worker, payload, extras=block.extras)

    def take_back(self, worker: int) -> None:
        self._batches.take_back(worker)

    def out_of_reach(self, n_draws: int, alive: Collection[int]) -> tuple[int, ...]:
        return tuple(k for k in self.received.lacking(n_draws) if k not in alive)

    def leave_out(self, shards: Collection[int]) -> int:
        return self.received.leave_out(shards)


@dataclass(frozen=True)
class CMC:
    """Plain Consensus Monte Carlo (Algorithm 1): every worker holds one shard.

    Parameters
    ----------
    pairing
        How draws of shards make global draws: paper, in order of arrival, or all, using each draw.
    weights
        Source of the weights: draws, or shrunk towards the fits of warm-up. The default is shrunk
        unless there is a ridge.
    cov_ridge
        Ridge σ² on every covariance estimate, with weights from draws.
    """

    pairing: str = field(default="all", metadata={"metavar": "|".join(PAIRINGS)})
    weights: str | None = field(default=None, metadata={"metavar": "|".join(WEIGHTS)})
    cov_ridge: float = 0.0

    name: ClassVar[str] = "cmc"
    label: ClassVar[str] = "CMC"
    colour: ClassVar[str] = "#4d4d4d"
    published: ClassVar[Mapping[str, Any]] = PAPER
    needs_common_randomness: ClassVar[bool] = False
    can_leave_out: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Merging.chosen(self)

    def shards_per_worker(self, n_workers: int) -> int:
        return 1

    def survives(self, n_workers: int) -> int:
        return 0

    def start(self, setup: Setup) -> PlainCMC:
        return PlainCMC(setup.n_workers, Merging.chosen(self, setup.seed))

    def sums(self, n_workers: int, seed: int) -> AnyHolder:
        return AnyHolder.by_shard(one_to_one(n_workers))

    def finish_times(self, realisations: Realisations) -> Outcomes:
        return grouped_times(1, realisations)
