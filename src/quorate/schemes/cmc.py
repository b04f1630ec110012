"""Consensus Monte Carlo with straggling workers: Algorithm 1.

Every worker holds one shard, and a global draw waits for all of them.
"""

from collections.abc import Collection, Sequence

import numpy as np

from quorate._types import Array, CodedArray
from quorate.allocation import one_to_one
from quorate.fit import Fit
from quorate.ledger import DrawCounts, Ledger
from quorate.linalg import check_ridge
from quorate.messages import NOTHING, Arrays, Block, Task
from quorate.pairing import check_pairing
from quorate.scheme import Processed
from quorate.tasks import BatchCounter


class SendDraws:
    """At worker k, lines 6-9: send the draws as they are."""

    def start(self, fits: Sequence[Fit | None]) -> Arrays:
        return NOTHING

    def process(self, draws: Array, state: Arrays) -> tuple[Processed, Arrays]:
        return Processed(draws), state

    def encode(self, worker: int, processed: Processed) -> tuple[CodedArray, Arrays]:
        return np.swapaxes(processed.vectors, 0, 1), NOTHING


class CMC:
    """Algorithm 1.

    Parameters
    ----------
    n_workers
        K.
    cov_ridge
        σ² of eq. (7b).
    pairing, seed
        How draws of shards make global draws, one of `quorate.pairing.PAIRINGS`, and by which
        randomness.
    """

    def __init__(
        self, n_workers: int, cov_ridge: float, pairing: str = "paper", seed: int = 0
    ) -> None:
        check_ridge("cov_ridge", cov_ridge)
        check_pairing(pairing)
        self.cov_ridge = cov_ridge
        self.pairing = pairing
        self.seed = seed
        # Data allocation: shard k to worker k
        self.allocation = one_to_one(n_workers)
        self.ledger = Ledger(self.allocation.held)
        self._batches = BatchCounter(self.allocation)

    # At worker k: send the l-th draw as soon as it is there

    worker_side = SendDraws()

    def chain_of(self, worker: int, shard: int) -> int:
        return 0

    # At the server: when all l-th draws are there, so is the l-th global draw

    def next_task(self, worker: int, n_draws: int | None) -> Task | None:
        return self._batches.up_to(n_draws, worker, chain=0)

    def receive(self, block: Block) -> int:
        self._batches.n_received[block.task.worker] += len(block.payload)
        return self.ledger.add(block.task.worker, block.payload)

    def take_back(self, worker: int) -> None:
        self._batches.take_back(worker)

    def can_reach(self, n_draws: int, alive: Collection[int]) -> bool:
        received = enumerate(self.ledger.n_received)
        return all(worker in alive or n >= n_draws for worker, n in received)

    def global_draws(self) -> Array:
        """Eq. (8), with Ĉ_k(t) of eq. (7) from all L_k(t) draws received by now."""
        return self.ledger.consensus(self.cov_ridge, self.pairing, self.seed)

    def draw_counts(self) -> DrawCounts:
        return self.ledger.draw_counts(self.pairing)
