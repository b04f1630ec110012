"""How long a run's workers took, as a model of how long they will take.

A block of a worker takes its number of draws, times the worker's level, times a factor of its own.
Levels are medians over a worker's blocks, drawn together where few blocks make them noisy. Factors
are drawn from the worker's own blocks where it has many and from those of all where it has few, by
their numbers of draws. Where there are enough blocks, the largest tenth of all follows the Pareto
tail that was fitted to it, if it is heavy. Factors are taken as independent: slow spells are not
modelled.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, IntArray
from quorate.errors import require
from quorate.latency import uniforms
from quorate.story import Blocks, Story
from quorate.streams import Purpose, Streams

_TAIL_SHARE = 0.1  # of the factors, from which the tail index is estimated
_FEWEST_IN_TAIL = 10
_FEWEST_TO_EXTEND = 50  # with fewer, factors are those that were seen and no larger ones
_ENOUGH_OF_ONE = 10  # blocks of a worker that weigh as much as those of all others
_N_QUANTILES = 4096
_LIGHT = 4.0  # a tail index from which on single blocks hardly matter
_LEAST_INDEX = 1.1  # below 1 there would be no mean
_MEDIAN_INEFFICIENCY = 1.57  # variance of a median over that of a mean
_TO_SD = 1.483  # from the median absolute deviation of Gaussians
_AT_ONCE = 1e-6  # seconds: blocks that came together


@dataclass(frozen=True)
class Tail:
    """Hill's estimate of the tail index of block times, with its 95 % interval.

    `index` is infinite where all of the largest are equal. `threshold` is the factor from which
    the tail begins, `share` how much of the work lies beyond, in `n_blocks`.
    """

    index: float
    low: float
    high: float
    threshold: float
    share: float
    n_blocks: int

    @classmethod
    def of(cls, factors: Array, shares: Array) -> "Tail | None":
        """Of factors in increasing order and their shares of the work; None of too few blocks."""
        beyond = np.cumsum(shares) > 1 - _TAIL_SHARE
        n = int(beyond.sum()) - 1
        if n < _FEWEST_IN_TAIL:
            return None
        (threshold, *_), largest = factors[beyond], factors[-n:]
        excess = float(np.average(np.log(largest / threshold), weights=shares[-n:]))
        index = 1 / excess if excess > 0 else np.inf
        error = 1.96 / np.sqrt(n)
        share = float(shares[-n:].sum())
        return cls(index, index / (1 + error), index / (1 - error), float(threshold), share, n)

    @property
    def is_light(self) -> bool:
        """Whether single blocks hardly matter."""
        return self.index >= _LIGHT


@dataclass(frozen=True, eq=False)
class Measured:
    """A latency model (see `quorate.latency.LatencyModel`) made of measured times.

    With as many workers as the run had, all of them are there, in random places; with others, as
    many copies of all of them as are needed.

    Parameters
    ----------
    levels
        Usual seconds for one draw of one shard, of each worker.
    deaths
        When each was lost for good, infinity if never.
    factors, shares, workers
        By which blocks took longer than usual, in increasing order; their shares of all draws; and
        whose they are.
    block
        Draws of single shards in a block, usually.
    warm_up
        How many draws the warm-up of a chain is worth.
    start
        Seconds before workers begin.
    silent
        Workers that sent nothing: their level is what it is at least.
    """

    levels: Array
    deaths: Array
    factors: Array
    shares: Array
    workers: IntArray
    block: int
    warm_up: float
    start: float
    silent: tuple[int, ...]

    @property
    def n_workers(self) -> int:
        """K of the run."""
        return len(self.levels)

    @cached_property
    def tail(self) -> Tail | None:
        """Of the factors."""
        return Tail.of(self.factors, self.shares)

    def times(self, streams: Streams, n_workers: int, first: int, n: int) -> Array:
        ranks = (uniforms(streams, n_workers, first, n) * _N_QUANTILES).astype(np.int64)
        who = np.array(self._who(streams, n_workers))
        return np.asarray((self.levels[:, None] * self._quantiles)[who[:, None], ranks])

    @cached_property
    def _quantiles(self) -> Array:
        """Factors of each worker at evenly spaced ranks, shape (n_workers, `_N_QUANTILES`)."""
        ranks = (np.arange(_N_QUANTILES) + 0.5) / _N_QUANTILES
        pooled = self.factors[np.searchsorted(np.cumsum(self.shares)[:-1], ranks)]
        tail = self.tail
        if tail is not None and not tail.is_light and tail.n_blocks >= _FEWEST_TO_EXTEND:
            beyond = (1 - ranks) / tail.share
            exceeding = tail.threshold * beyond ** (-1 / max(tail.index, _LEAST_INDEX))
            pooled = np.where(beyond < 1, exceeding, pooled)
        return np.array([self._mixed(worker, pooled, ranks) for worker in range(self.n_workers)])

    def _mixed(self, worker: int, pooled: Array, ranks: Array) -> Array:
        """Those of one worker's own blocks and of all, by how many it has."""
        own = self.workers == worker
        if not own.any():
            return pooled
        trust = own.sum() / (own.sum() + _ENOUGH_OF_ONE)
        values = np.concatenate([self.factors[own], pooled])
        own_shares = trust * self.shares[own] / self.shares[own].sum()
        weights = np.concatenate([own_shares, np.full(len(ranks), (1 - trust) / len(ranks))])
        order = np.argsort(values)
        found = np.searchsorted(np.cumsum(weights[order])[:-1], ranks)
        return np.asarray(values[order][found])

    def death_times(self, streams: Streams, n_workers: int) -> Array:
        return self.deaths[self._who(streams, n_workers)]

    def _who(self, streams: Streams, n_workers: int) -> list[int]:
        n_copies = -(-n_workers // self.n_workers)
        order = streams.permutation(Purpose.WHO_IS_SLOW, n_copies * self.n_workers)
        return [worker % self.n_workers for worker in order[:n_workers]]


def measured(folder: Path) -> tuple[Measured, Story]:
    """What the journal of a run tells of its times, and the journal read through."""
    with Story(folder) as story:
        story.read()
    blocks = story.blocks()
    is_first = blocks.first_draws == 0
    warm = _chosen(blocks, ~is_first)
    way_out = "there must be a block after warm-up to plan from: let the run go on for longer"
    require(len(warm) > 0, "run", str(folder), way_out)
    per_draw = _seconds(warm) / (warm.n_draws * warm.n_shards)
    levels = _levels(per_draw, warm, story.n_workers)
    factors = per_draw / levels[warm.workers]
    order = np.argsort(factors)
    n_draws = (warm.n_draws * warm.n_shards)[order]
    colds = _chosen(blocks, is_first)
    warm_up = np.median(_draws_worth(colds, levels) - colds.n_draws)
    silent = [k for k in range(story.n_workers) if k not in set(blocks.workers.tolist())]
    start = float(np.median([blocks.of(k).begins[0] for k in set(blocks.workers.tolist())]))
    gone = story.gone()
    for worker in set(silent) - set(gone):
        levels[worker] *= max(1.0, (story.seconds - start) / float(np.median(_seconds(colds))))
    deaths = np.array([gone.get(worker, np.inf) for worker in range(story.n_workers)])
    return Measured(
        levels=levels,
        deaths=deaths,
        factors=factors[order],
        shares=n_draws / n_draws.sum(),
        workers=warm.workers[order],
        block=int(np.median(np.repeat(n_draws, n_draws))),
        warm_up=max(0.0, float(warm_up)),
        start=start,
        silent=tuple(silent),
    ), story


def _chosen(blocks: Blocks, which: NDArray[np.bool_]) -> Blocks:
    arrays = {k: v[which] for k, v in vars(blocks).items() if isinstance(v, np.ndarray)}
    return Blocks(blocks.cells, **arrays)


def _seconds(blocks: Blocks) -> Array:
    return np.asarray(np.maximum(blocks.ends - blocks.begins, _AT_ONCE))


def _draws_worth(blocks: Blocks, levels: Array) -> Array:
    """How many draws of each of its shards a block could have been, by the time that it took."""
    return np.asarray(_seconds(blocks) / (blocks.n_shards * levels[blocks.workers]))


def _levels(per_draw: Array, blocks: Blocks, n_workers: int) -> Array:
    """Median of each worker, drawn towards that of all as far as its noise explains it."""
    logs = np.log(per_draw)
    medians = np.full(n_workers, np.median(logs))
    counts = np.bincount(blocks.workers, minlength=n_workers)
    for worker in np.flatnonzero(counts):
        medians[worker] = np.median(logs[blocks.workers == worker])
    spread = _TO_SD * np.median(np.abs(logs - medians[blocks.workers]))
    noise = _MEDIAN_INEFFICIENCY * spread**2 / np.maximum(counts, 1)
    seen = counts > 0
    between = max(0.0, float(np.var(medians[seen]) - np.mean(noise[seen])))
    trust = between / np.where(between + noise > 0, between + noise, 1.0)
    middle = np.median(medians[seen])
    return np.asarray(np.exp(middle + trust * (medians - middle)))
