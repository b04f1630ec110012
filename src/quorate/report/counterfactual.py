"""What a run without redundancy would have waited for, from measured times.

Merges: when plain CMC would have had the same draws, in virtual time. Under CMC worker k draws from
shard k alone, and a global draw waits for all workers. A block of n draws of m shards that took a
worker t seconds stands for n draws of one shard in t/m seconds, warm-up included. Time during which
a worker was away is lost under CMC too; time during which it had nothing to do is not. A worker
that sent too few blocks repeats them, from the second on. A worker that did not come back never has
its draws.

Exact runs: how long each worker would have needed for one shard at all points of the passes.
"""

from dataclasses import dataclass

import numpy as np

from quorate._types import Array, IntArray
from quorate.run.blocks import Blocks
from quorate.run.history import History


@dataclass(frozen=True, eq=False)
class Pace:
    """One worker under CMC: at `times[i]` it has `n_draws[i]` draws of its shard.

    `goes_on` says whether it would have sent more than it did.
    """

    times: Array
    n_draws: IntArray
    goes_on: bool

    @classmethod
    def of(cls, blocks: Blocks, goes_on: bool = True) -> "Pace":
        """The pace that the blocks of one worker show."""
        used = blocks.first_draws > 0  # warm-up comes once: CMC has one chain for each worker
        used[:1] = True
        seconds = blocks.outages + used * (blocks.ends - blocks.begins) / blocks.n_shards
        times = blocks.begins[:1].sum() + np.cumsum(seconds)
        return cls(times[used], np.cumsum(blocks.n_draws[used]), goes_on)

    def when(self, n_draws: IntArray) -> Array:
        """When the worker has `n_draws` draws, all at least 1; inf if it never does."""
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
    """The pace of every worker of a run."""
    blocks, gone = history.blocks(), history.gone()
    return [Pace.of(blocks.of(k), goes_on=k not in gone) for k in range(history.n_workers)]


def cmc_releases(workers: list[Pace], n_draws: IntArray) -> Array:
    """When CMC would have had `n_draws` global draws: when the last worker has as many."""
    return np.asarray(np.max([pace.when(n_draws) for pace in workers], axis=0))


# ---------------------------------------------------------------- exact runs


def seconds_per_point(history: History) -> Array:
    """Seconds per point and shard of each worker; inf if it answered for no point.

    A worker whose answers came with those of another has the pace of that one.
    """
    answers = history.blocks()
    blocks = answers.chosen(answers.n_draws > 0)
    spent = np.bincount(blocks.workers, blocks.ends - blocks.begins, history.n_workers)
    done = np.bincount(blocks.workers, blocks.n_draws * blocks.n_shards, history.n_workers)
    paces = np.where(done > 0, spent / np.maximum(done, 1), np.inf)
    for worker, speaker in ({} if history.passes is None else history.passes.spoken_for).items():
        paces[worker] = min(paces[worker], paces[speaker])
    return paces


def seconds_alone(history: History) -> Array:
    """How long each worker would have needed for one shard at all points; inf if it is gone."""
    assert history.passes is not None
    times = seconds_per_point(history) * history.passes.n_points
    times[sorted(history.gone())] = np.inf
    return times


def seconds_of_passes(history: History) -> float:
    """How long the passes took, without the surveys before them."""
    assert history.passes is not None
    phases = history.passes.phases()
    first = next(phase.began for phase in phases if phase.name == "fit")
    return max(phase.ended for phase in phases) - first
