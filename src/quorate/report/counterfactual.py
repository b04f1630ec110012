"""How long plain CMC would have waited for each worker, in virtual time, by measured times.

Under CMC worker k draws from shard k alone, and a global draw waits for all workers. A block of n
draws of m shards that took a worker t seconds stands for n draws of one shard in t/m seconds,
warm-up included. Time for which a worker was away is lost under CMC too; time for which it had
nothing to do is not. A worker whose blocks do not reach goes on with them from the second, over and
over; one that did not come back never gets there.
"""

from dataclasses import dataclass

import numpy as np

from quorate._types import Array, IntArray
from quorate.run.history import Blocks, History


@dataclass(frozen=True, eq=False)
class Pace:
    """One worker under CMC: `n_draws[i]` draws of its shard are there at `times[i]`."""

    times: Array
    n_draws: IntArray
    goes_on: bool

    @classmethod
    def of(cls, blocks: Blocks, goes_on: bool = True) -> "Pace":
        """By the blocks of one worker."""
        used = blocks.first_draws > 0  # warm-up comes once: CMC has one chain for each worker
        used[:1] = True
        seconds = blocks.outages + used * (blocks.ends - blocks.begins) / blocks.n_shards
        times = blocks.begins[:1].sum() + np.cumsum(seconds)
        return cls(times[used], np.cumsum(blocks.n_draws[used]), goes_on)

    def when(self, n_draws: IntArray) -> Array:
        """When there are `n_draws` draws, each of them at least 1; inf for never."""
        if not len(self.times):
            return np.full(len(n_draws), np.inf)
        had = int(self.n_draws[-1])
        repeated = slice(1, None) if len(self.times) > 1 else slice(0, None)
        before = (self.times[0], self.n_draws[0]) if len(self.times) > 1 else (0.0, 0)
        counts, times = self.n_draws[repeated] - before[1], self.times[repeated] - before[0]
        n_more = np.maximum(n_draws - had, 1)
        n_rounds, rest = np.divmod(n_more - 1, counts[-1])
        extended = self.times[-1] + n_rounds * times[-1]
        extended += times[np.searchsorted(counts, rest + 1)]
        measured = self.times[
            np.minimum(np.searchsorted(self.n_draws, n_draws), len(self.times) - 1)
        ]
        beyond = extended if self.goes_on else np.inf
        return np.asarray(np.where(n_draws <= had, measured, beyond))


def paces(history: History) -> list[Pace]:
    """Of every worker."""
    blocks, gone = history.blocks(), history.gone()
    return [Pace.of(blocks.of(k), goes_on=k not in gone) for k in range(history.n_workers)]


def cmc_releases(workers: list[Pace], n_draws: IntArray) -> Array:
    """When CMC would have had `n_draws` global draws: when the last worker has as many."""
    return np.asarray(np.max([pace.when(n_draws) for pace in workers], axis=0))
