"""Adaptive CMC (ours), in the shape of the paper's boxes.

Workers hold overlapping sets of shards, and each draws, one block at a time, from whichever of its
shards is furthest behind. Every draw that arrives is used.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from quorate.errors import require
from quorate.numerics.streams import Purpose, Streams
from quorate.protocol.allocation import overlapping, shards_each
from quorate.protocol.ledger import Ledger, Merging
from quorate.protocol.messages import Block, Task
from quorate.protocol.scheme import NOBODY, Setup
from quorate.protocol.schemes.cmc import SendDraws
from quorate.protocol.sums import AnyHolder
from quorate.protocol.task_numbers import DrawCounter
from quorate.protocol.times import Outcomes, Realisations
from quorate.protocol.times.adaptive import FIRST_TASK, AdaptiveTimes


class AdaptiveCMC:
    """A run of the adaptive scheme: work goes where draws are lacking.

    L(t) global draws are complete when every shard has at least L(t) draws. With `pairing` "all"
    the result has more, made of the same draws and of those beyond.

    No draw is ever cancelled, however long it takes. Where time depends on the draw, dropping slow
    draws would change the distribution. See `docs/explanation/beyond.md`.

    Parameters
    ----------
    n_workers, redundancy
        K and r. With r = K this is the genie, a limit that K workers cannot beat by much.
    block_size
        Draws that a worker is asked for at a time, at most.
    gap
        Gives every worker a spare slot; None for no such slot. If all shards that a worker holds
        are more than `gap` draws ahead of the shard furthest behind, that one is copied to its
        spare slot, replacing the shard there, and the worker draws from it.
    merging
        How draws of shards become global draws. Its seed also keys the placement, and the order in
        which a worker sees shards equally far behind.
    """

    def __init__(
        self,
        n_workers: int,
        redundancy: int,
        merging: Merging,
        *,
        block_size: int = 1,
        gap: int | None = None,
    ) -> None:
        require(block_size >= 1, f"block_size must be at least 1, not {block_size}.")
        seed = merging.seed
        # Data allocation: r shards each, so that workers are linked by the shards they share
        self.allocation = overlapping(n_workers, redundancy, seed)
        self.received = Ledger([(shard,) for shard in range(n_workers)], merging)
        self._block_size = block_size
        self._gap = gap
        self._counter = DrawCounter(n_workers)
        self._at_hand = shuffled(self.allocation.held, Streams(seed))
        self._n_held = redundancy

    # At worker k: send each block as soon as it is made

    worker_side = SendDraws()
    quarantined = NOBODY
    shares_starts = True

    def chain_of(self, worker: int, shard: int) -> int:
        """Independent: its rank among the holders; others have chains of their own beyond."""
        rank = self.allocation.rank(worker, shard)
        return self._n_held + worker if rank is None else rank

    # At the server: when every shard has l draws, the l-th global draw is complete

    def next_task(self, worker: int, n_draws: int | None) -> Task | None:
        """A block of the shard at hand with the fewest draws received or under way.

        A worker never waits for draws under way elsewhere, which may take long: as long as some
        shard at hand lacks received draws, it draws from that one.
        """
        shard = self._furthest_behind(self._at_hand[worker], n_draws)
        if self._gap is not None:
            shard = self._copied(worker, shard, n_draws)
        if shard is None:
            return None
        n = min(self._block_size, max(FIRST_TASK, self._counter.n_started[shard]))
        if n_draws is not None:
            n_left = n_draws - self._counter.n_started[shard]
            if n_left <= 0:  # other workers draw them already, but may be slow
                n_left = n_draws - self.received.n_received[shard]
            n = max(1, min(n, n_left))
        return self._counter.more(n, worker, shard, self.chain_of(worker, shard))

    def _furthest_behind(self, shards: Collection[int], n_draws: int | None) -> int | None:
        """The shard with the fewest draws started, of those that lack draws."""
        n_received, n_started = self.received.n_received, self._counter.n_started
        shard = min(shards, key=n_started.__getitem__)
        if n_draws is None or n_received[shard] < n_draws:
            return shard
        lacking = [shard for shard in shards if n_received[shard] < n_draws]
        return min(lacking, key=n_started.__getitem__, default=None)

    def _copied(self, worker: int, shard: int | None, n_draws: int | None) -> int | None:
        """`shard`, or a copy in the spare slot of the shard furthest behind of all."""
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
        return self.received.add(shard, block.payload, task.chain, block.extras)

    def take_back(self, worker: int) -> None:
        self._counter.take_back(worker)

    def out_of_reach(self, n_draws: int, alive: Collection[int]) -> tuple[int, ...]:
        """Shards that can never have `n_draws` draws; none if a living worker has a spare slot."""
        if self._gap is not None and alive:
            return ()
        held = {shard for worker in alive for shard in self.allocation.shards_of(worker)}
        return tuple(shard for shard in self.received.lacking(n_draws) if shard not in held)

    def leave_out(self, shards: Collection[int]) -> int:
        return self.received.leave_out(shards)


def shuffled(held: Collection[tuple[int, ...]], streams: Streams) -> list[list[int]]:
    """The shards of each worker in random order, in which ties are broken."""
    n_held = max(map(len, held))
    lanes = [(worker, 0) for worker in range(len(held))]
    uniforms = streams.uniforms(Purpose.TIES, lanes, 0, 1, n_held)[:, 0]
    orders = np.argsort(uniforms, axis=1).tolist()
    return [[shards[i] for i in order] for shards, order in zip(held, orders, strict=True)]


@dataclass(frozen=True)
class Adaptive:
    """Adaptive CMC (ours): r shards each, overlapping; work goes where draws are lacking.

    Parameters
    ----------
    redundancy
        r, by default 2, or 1 for one worker.
    gap
        Give every worker a spare slot, for shards more than this many draws behind. See
        `AdaptiveCMC`.
    pairing
        How draws of shards make global draws: paper, in order of arrival, or all, using each draw.
    weights
        Source of the weights: draws, or shrunk towards the fits of warm-up. The default is shrunk
        unless there is a ridge.
    cov_ridge
        Ridge σ² on every covariance estimate, with weights from draws.
    """

    redundancy: int | None = None
    gap: int | None = None
    pairing: str = "all"
    weights: str | None = None
    cov_ridge: float = 0.0

    name: ClassVar[str] = "adaptive"
    label: ClassVar[str] = "adaptive"
    colour: ClassVar[str] = "#009e73"
    published: ClassVar[Mapping[str, Any]] = MappingProxyType({"weights": "draws"})
    needs_common_randomness: ClassVar[bool] = False
    can_leave_out: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(self.gap is None or self.gap >= 0, f"gap must be 0 or more, not {self.gap}.")
        Merging.chosen(self)

    def shards_per_worker(self, n_workers: int) -> int:
        return shards_each(n_workers, self.redundancy)

    def survives(self, n_workers: int) -> int:
        return n_workers - 1 if self.gap is not None else self.shards_per_worker(n_workers) - 1

    def start(self, setup: Setup) -> AdaptiveCMC:
        return AdaptiveCMC(
            setup.n_workers,
            self.shards_per_worker(setup.n_workers),
            Merging.chosen(self, setup.seed),
            block_size=setup.block_size,
            gap=self.gap,
        )

    def sums(self, n_workers: int, seed: int) -> AnyHolder:
        """Any holder answers for a shard, whichever is free."""
        redundancy = self.shards_per_worker(n_workers)
        return AnyHolder.by_shard(overlapping(n_workers, redundancy, seed))

    def finish_times(self, realisations: Realisations) -> Outcomes | None:
        if self.gap is not None:
            return None  # shards that are copied change who can do what
        work = realisations.work
        redundancy = self.shards_per_worker(work.n_workers)
        placement = overlapping(work.n_workers, redundancy, work.seed)
        at_hand = np.array(shuffled(placement.held, Streams(work.seed)))
        return AdaptiveTimes(at_hand, realisations).run()


@dataclass(frozen=True)
class Genie(Adaptive):
    """The adaptive scheme with every shard at every worker: a limit that no placement beats."""

    name: ClassVar[str] = "genie"
    label: ClassVar[str] = "genie"
    colour: ClassVar[str] = "#000000"

    def shards_per_worker(self, n_workers: int) -> int:
        return n_workers
