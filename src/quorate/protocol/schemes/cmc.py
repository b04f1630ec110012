"""Consensus Monte Carlo with straggling workers: Algorithm 1.

Every worker holds one shard, and a global draw waits for all of them.
"""

from collections.abc import Collection, Sequence

import numpy as np

from quorate._types import Array, CodedArray
from quorate.merging.fit import Fit, as_arrays
from quorate.protocol.allocation import one_to_one
from quorate.protocol.ledger import DrawCounts, Ledger, Merging
from quorate.protocol.messages import NOTHING, Arrays, Block, Task
from quorate.protocol.scheme import NOBODY, Processed
from quorate.protocol.task_numbers import BatchCounter


class SendDraws:
    """At worker k, lines 6-9: send the draws as they are; with the first, what warm-up found."""

    def start(self, fits: Sequence[Fit | None]) -> Arrays:
        """The fits, which are not sent yet."""
        return as_arrays(fits)

    def process(self, draws: Array, state: Arrays) -> tuple[Processed, Arrays]:
        return Processed(draws, once={0: state} if state else {}), NOTHING

    def encode(self, worker: int, processed: Processed) -> tuple[CodedArray, Arrays]:
        return np.swapaxes(processed.vectors, 0, 1), processed.once.get(0, NOTHING)

    def payload_shapes(self, n_shards: int, dim: int) -> Collection[tuple[int, ...]]:
        return [(n_shards, dim)]


class CMC:
    """Algorithm 1.

    Parameters
    ----------
    n_workers
        K.
    cov_ridge
        σ² of eq. (7b).
    pairing, seed, weights
        See `quorate.protocol.ledger.Merging`.
    """

    def __init__(
        self,
        n_workers: int,
        cov_ridge: float,
        pairing: str = "paper",
        seed: int = 0,
        weights: str = "draws",
    ) -> None:
        # Data allocation: shard k to worker k
        self.allocation = one_to_one(n_workers)
        self.ledger = Ledger(self.allocation.held, Merging(cov_ridge, pairing, seed, weights))
        self._batches = BatchCounter(self.allocation)

    # At worker k: send the l-th draw as soon as it is there

    worker_side = SendDraws()
    quarantined = NOBODY
    shares_starts = False

    def chain_of(self, worker: int, shard: int) -> int:
        return 0

    # At the server: when all l-th draws are there, so is the l-th global draw

    def next_task(self, worker: int, n_draws: int | None) -> Task | None:
        return self._batches.up_to(n_draws, worker, chain=0)

    def receive(self, block: Block) -> int:
        self._batches.n_received[block.task.worker] += len(block.payload)
        return self.ledger.add(block.task.worker, block.payload, extras=block.extras)

    def take_back(self, worker: int) -> None:
        self._batches.take_back(worker)

    def can_reach(self, n_draws: int, alive: Collection[int]) -> bool:
        return not self._out_of_reach(n_draws, alive)

    def exclude(self, n_draws: int, alive: Collection[int]) -> int:
        return self.ledger.exclude(self._out_of_reach(n_draws, alive))

    def _out_of_reach(self, n_draws: int, alive: Collection[int]) -> list[int]:
        n_received = self.ledger.n_received
        return [k for k in self.ledger.included if k not in alive and n_received[k] < n_draws]

    def global_draws(self) -> Array:
        """Eq. (8), with Ĉ_k(t) of eq. (7) from all L_k(t) draws received by now."""
        return self.ledger.consensus()

    def draw_counts(self) -> DrawCounts:
        return self.ledger.draw_counts()
