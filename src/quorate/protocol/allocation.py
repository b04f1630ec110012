"""Who holds what: the shards S_k of every worker (§II)."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from quorate.errors import require


@dataclass(frozen=True)
class Allocation:
    """`held[k]` are the shards of worker k. Every shard has at least one holder."""

    held: tuple[tuple[int, ...], ...]

    @property
    def n_workers(self) -> int:
        """Number of workers K."""
        return len(self.held)

    @property
    def n_shards(self) -> int:
        """Number of shards, K in the paper."""
        return len(self._holders)

    def shards_of(self, worker: int) -> tuple[int, ...]:
        """S_k."""
        return self.held[worker]

    def holders_of(self, shard: int) -> tuple[int, ...]:
        """The workers that hold `shard`, in order."""
        return self._holders[shard]

    def shards_without_holder(self, lost: Collection[int]) -> list[int]:
        """Shards that only `lost` workers hold."""
        gone = set(lost)
        return sorted(s for s, holders in self._holders.items() if gone.issuperset(holders))

    def rank(self, worker: int, shard: int) -> int | None:
        """Which of the holders of `shard` this worker is, from 0; None if it is none."""
        return self._ranks.get((worker, shard))

    @cached_property
    def _ranks(self) -> dict[tuple[int, int], int]:
        holders = self._holders.items()
        return {(k, shard): rank for shard, workers in holders for rank, k in enumerate(workers)}

    @cached_property
    def _holders(self) -> dict[int, tuple[int, ...]]:
        holders: dict[int, list[int]] = {}
        for worker, shards in enumerate(self.held):
            for shard in shards:
                holders.setdefault(shard, []).append(worker)
        return {shard: tuple(workers) for shard, workers in holders.items()}


def one_to_one(n_workers: int) -> Allocation:
    """Shard k to worker k (Algorithm 1)."""
    return groups(n_workers, 1)


def groups(n_workers: int, redundancy: int) -> Allocation:
    """Groups of r workers that all hold the group's r shards (Algorithm 2).

    Where r does not divide K the last group is smaller, and its members hold just its shards:
    K = 5, r = 2 gives {0, 1}, {2, 3}, {4}.
    """
    check_sizes(n_workers, redundancy)
    members = [group for group in worker_groups(n_workers, redundancy) for _ in group]
    return Allocation(tuple(members))


def worker_groups(n_workers: int, redundancy: int) -> list[tuple[int, ...]]:
    """The groups 𝖪_g of `groups`; the shards 𝖹_g of a group bear the numbers of its workers."""
    starts = range(0, n_workers, redundancy)
    return [tuple(range(start, min(start + redundancy, n_workers))) for start in starts]


def cyclic(n_workers: int, redundancy: int) -> Allocation:
    """Shards k, k+1, …, k+r-1, modulo K, to worker k."""
    check_sizes(n_workers, redundancy)
    return allocation_of(
        ((worker + i) % n_workers for i in range(redundancy)) for worker in range(n_workers)
    )


def random_regular(n_workers: int, redundancy: int, seed: int) -> Allocation:
    """R shards to every worker and r workers to every shard, at random.

    Starts from `cyclic` and swaps shards between random pairs of workers wherever that leaves
    both with r different ones.
    """
    held = [list(shards) for shards in cyclic(n_workers, redundancy).held]
    rng = np.random.default_rng(seed)
    n_swaps = 20 * n_workers * redundancy
    pairs = rng.integers(n_workers, size=(n_swaps, 2)).tolist()
    slots = rng.integers(redundancy, size=(n_swaps, 2)).tolist()
    for (one, other), (i, j) in zip(pairs, slots, strict=True):
        mine, theirs = held[one][i], held[other][j]
        if mine not in held[other] and theirs not in held[one]:
            held[one][i], held[other][j] = theirs, mine
    return allocation_of(held)


@lru_cache(maxsize=16)
def overlapping(n_workers: int, redundancy: int, seed: int) -> Allocation:
    """Placement of the adaptive scheme, in which work can be passed on from worker to worker.

    Every worker shares shards with others, which share shards with others again: `cyclic` where
    r = 2, which makes one ring of all, and `random_regular` above, where every worker is a few
    steps away from every other.
    """
    if 2 < redundancy < n_workers:
        return random_regular(n_workers, redundancy, seed)
    return cyclic(n_workers, redundancy)


def allocation_of(held: Iterable[Iterable[int]]) -> Allocation:
    """Allocation with given shards of each worker, such as the non-zeros of a code (Alg. 3)."""
    return Allocation(tuple(tuple(shards) for shards in held))


def shards_each(n_workers: int, redundancy: int | None) -> int:
    """R as chosen, checked against K; by default 2, or 1 for one worker."""
    redundancy = min(2, n_workers) if redundancy is None else redundancy
    check_sizes(n_workers, redundancy)
    return redundancy


def check_sizes(n_workers: int, redundancy: int) -> None:
    """Refuse K < 1, r < 1 and r > K."""
    for name, value in (("workers", n_workers), ("redundancy", redundancy)):
        require(isinstance(value, int), f"{name} must be a whole number, not {value!r}.")
    require(n_workers >= 1, f"workers must be at least 1, not {n_workers}.")
    require(
        1 <= redundancy <= n_workers,
        f"redundancy must be from 1 to the number of workers, {n_workers}, not {redundancy}: "
        "a shard has at least one holder, and at most all workers.",
    )
