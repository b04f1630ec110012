"""Adaptive CMC: ours, in the shape of the paper's boxes.

Workers hold overlapping sets of shards, and each draws, one block at a time, from whichever of its
shards is furthest behind. Every draw that arrives is used.
"""

from collections.abc import Collection

import numpy as np

from quorate._types import Array
from quorate.errors import require
from quorate.numerics.streams import Purpose, Streams
from quorate.protocol.allocation import overlapping
from quorate.protocol.ledger import DrawCounts, Ledger, Merging
from quorate.protocol.messages import Block, Task
from quorate.protocol.scheme import NOBODY
from quorate.protocol.schemes.cmc import SendDraws
from quorate.protocol.task_numbers import DrawCounter


class AdaptiveCMC:
    """Work goes to where it is lacking.

    There are L(t) global draws, as far as promises go, where every shard has at least L(t) draws.
    With `pairing` "all" more are given, made of the same draws and of those beyond.

    No draw is ever cancelled, however long it takes: where time depends on the draw, to throw away
    the slow ones is to draw from another distribution. `docs/beyond.md` has more on this.

    Parameters
    ----------
    n_workers, redundancy
        K and r. With r = K this is the genie, which nothing with K workers can outrun by much.
    cov_ridge
        σ² on every Ĉ.
    block_size
        Draws that a worker is asked for at a time.
    gap
        Gives every worker a spare slot. Where the best that a worker can do is for a shard more
        than `gap` draws ahead of the one furthest behind of all, the latter is copied to its spare
        slot, in place of what was there, and worked on. None for no such slot.
    pairing, weights
        See `quorate.protocol.ledger.Merging`.
    seed
        Of the placement, of the order in which a worker sees shards equally far behind, and of
        the pairing.
    """

    def __init__(
        self,
        n_workers: int,
        redundancy: int,
        cov_ridge: float,
        *,
        block_size: int = 1,
        gap: int | None = None,
        pairing: str = "all",
        seed: int = 0,
        weights: str = "draws",
    ) -> None:
        require(block_size >= 1, "block_size", block_size, "a block has at least one draw")
        require(gap is None or gap >= 0, "gap", gap, "use None for no spare slot, or 0 or more")
        # Data allocation: r shards each, so that workers are linked by the shards they share
        self.allocation = overlapping(n_workers, redundancy, seed)
        shards = [(shard,) for shard in range(n_workers)]
        self.ledger = Ledger(shards, Merging(cov_ridge, pairing, seed, weights))
        self._block_size = block_size
        self._gap = gap
        self._counter = DrawCounter(n_workers)
        self._at_hand = shuffled(self.allocation.held, Streams(seed))
        self._n_held = redundancy

    # At worker k: send each block as soon as it is there

    worker_side = SendDraws()
    quarantined = NOBODY
    shares_starts = True

    def chain_of(self, worker: int, shard: int) -> int:
        """Independent: its rank among the holders; others have chains of their own beyond."""
        rank = self.allocation.rank(worker, shard)
        return self._n_held + worker if rank is None else rank

    # At the server: when every shard has l draws, the l-th global draw is there

    def next_task(self, worker: int, n_draws: int | None) -> Task | None:
        """A block of the shard at hand with the fewest draws received or under way.

        Nobody waits for a draw under way, which may take long: as long as a shard at hand has not
        all its draws received, there is something to do.
        """
        shard = self._furthest_behind(self._at_hand[worker], n_draws)
        if self._gap is not None:
            shard = self._copied(worker, shard, n_draws)
        if shard is None:
            return None
        n = self._block_size
        if n_draws is not None:
            n_left = n_draws - self._counter.n_started[shard]
            if n_left <= 0:  # others are at them already, and may be slow
                n_left = n_draws - self.ledger.n_received[shard]
            n = max(1, min(n, n_left))
        return self._counter.more(n, worker, shard, self.chain_of(worker, shard))

    def _furthest_behind(self, shards: Collection[int], n_draws: int | None) -> int | None:
        """Of those that lack draws, if any does."""
        n_received, n_started = self.ledger.n_received, self._counter.n_started
        shard = min(shards, key=n_started.__getitem__)
        if n_draws is None or n_received[shard] < n_draws:
            return shard
        lacking = [shard for shard in shards if n_received[shard] < n_draws]
        return min(lacking, key=n_started.__getitem__, default=None)

    def _copied(self, worker: int, shard: int | None, n_draws: int | None) -> int | None:
        """What to do with a spare slot: `shard`, or a copy of the one furthest behind of all."""
        assert self._gap is not None
        behind = self._furthest_behind(range(len(self._at_hand)), n_draws)
        if behind is None:
            return shard
        n_started = self._counter.n_started
        if shard is not None and n_started[shard] - n_started[behind] <= self._gap:
            return shard
        self._at_hand[worker][self._n_held :] = [behind]
        return behind

    def receive(self, block: Block) -> int:
        task = block.task
        shard = task.shards[0]
        self._counter.received(task.worker, shard, len(block.payload))
        return self.ledger.add(shard, block.payload, task.chain, block.extras)

    def take_back(self, worker: int) -> None:
        self._counter.take_back(worker)

    def can_reach(self, n_draws: int, alive: Collection[int]) -> bool:
        """With a spare slot, anybody left can do everything."""
        return not self._out_of_reach(n_draws, alive)

    def exclude(self, n_draws: int, alive: Collection[int]) -> int:
        return self.ledger.exclude(self._out_of_reach(n_draws, alive))

    def _out_of_reach(self, n_draws: int, alive: Collection[int]) -> list[int]:
        if self._gap is not None and alive:
            return []
        lacking = [s for s in self.ledger.included if self.ledger.n_received[s] < n_draws]
        holders = self.allocation.holders_of
        return [s for s in lacking if not any(k in alive for k in holders(s))]

    def global_draws(self) -> Array:
        """Eq. (10), with Ĉ_s(t) from all draws received of shard s by now."""
        return self.ledger.consensus()

    def draw_counts(self) -> DrawCounts:
        return self.ledger.draw_counts()


def shuffled(held: Collection[tuple[int, ...]], streams: Streams) -> list[list[int]]:
    """The shards of each worker in random order: of those equally far behind, the first is next."""
    n_held = max(map(len, held))
    lanes = [(worker, 0) for worker in range(len(held))]
    uniforms = streams.uniforms(Purpose.TIES, lanes, 0, 1, n_held)[:, 0]
    orders = np.argsort(uniforms, axis=1).tolist()
    return [[shards[i] for i in order] for shards, order in zip(held, orders, strict=True)]
