"""How long a run's workers took, as a model of how long they will take.

A block of a worker takes its number of draws, times the worker's level, times a factor of its own.
Levels are medians over a worker's blocks, drawn together where few blocks make them noisy. Factors
are drawn from the worker's own blocks where it has many and from those of all where it has few, by
their numbers of draws. Blocks that were not finished when the run ended are known to take longer
than they had by then, and count as such: without them long ones would be missing. If the tail is
heavy, the largest fifth of a worker's factors follows a Pareto tail, whose index all workers share.
Factors are taken as independent: slow spells are not modelled.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quorate._types import Array, IntArray
from quorate.engines.latency import uniforms
from quorate.errors import require
from quorate.numerics.streams import Purpose, Streams
from quorate.run.history import Blocks, History

_TAIL_SHARE = 0.2  # of a worker's factors, from which the tail index is estimated
_FEWEST_IN_TAIL = 10
_ENOUGH_OF_ONE = 10  # blocks of a worker that weigh as much as those of all others
_N_QUANTILES = 4096
_RANKS = (np.arange(_N_QUANTILES) + 0.5) / _N_QUANTILES
_LIGHT = 4.0  # a tail index from which on single blocks hardly matter
_LEAST_INDEX = 1.1  # below 1 there would be no mean
_MEDIAN_INEFFICIENCY = 1.57  # variance of a median over that of a mean
_TO_SD = 1.483  # from the median absolute deviation of Gaussians
_AT_ONCE = 1e-6  # seconds: blocks that came together


class Begun(NamedTuple):
    """Blocks that were under way in the end: factors that they had reached by then.

    With their shares of all draws, if they are of the usual size, and whose they are.
    """

    factors: Array
    shares: Array
    workers: IntArray


@dataclass(frozen=True)
class Tail:
    """Hill's estimate of the tail index of block times, with its 95 % interval.

    The tail of a worker begins at a factor of its own; all have the same index. It is infinite
    where all of the largest are equal. `n_blocks` are in the tail.
    """

    index: float
    low: float
    high: float
    n_blocks: int

    @classmethod
    def of(cls, factors: Array, shares: Array, workers: IntArray, begun: Begun) -> "Tail | None":
        """Of factors in increasing order and their shares of the work; None of too few blocks.

        A block under way adds to how far the tail reaches, but not to the blocks that ended in it.
        """
        weight = excess = 0.0
        n_blocks = 0
        for worker in np.unique(workers):
            mine, own = factors[workers == worker], shares[workers == worker]
            beyond = np.cumsum(own) > (1 - _TAIL_SHARE) * own.sum()
            n = int(beyond.sum()) - 1
            if n < 1:
                continue
            threshold, *_ = mine[beyond]
            longer = (begun.workers == worker) & (begun.factors > threshold)
            n_blocks += n
            weight += own[-n:].sum()
            excess += own[-n:] @ np.log(mine[-n:] / threshold)
            excess += begun.shares[longer] @ np.log(begun.factors[longer] / threshold)
        if n_blocks < _FEWEST_IN_TAIL:
            return None
        index = weight / excess if excess > 0 else np.inf
        error = 1.96 / np.sqrt(n_blocks)
        return cls(index, index / (1 + error), index / (1 - error), n_blocks)

    @property
    def is_light(self) -> bool:
        """Whether single blocks hardly matter."""
        return self.index >= _LIGHT


@dataclass(frozen=True, eq=False)
class Measured:
    """A latency model (see `quorate.engines.latency.LatencyModel`) made of measured times.

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
    begun
        Blocks that were not finished.
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
    begun: Begun
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
        return Tail.of(self.factors, self.shares, self.workers, self.begun)

    def times(self, streams: Streams, n_workers: int, first: int, n: int) -> Array:
        ranks = (uniforms(streams, n_workers, first, n) * _N_QUANTILES).astype(np.int64)
        who = np.array(self._who(streams, n_workers))
        return np.asarray((self.levels[:, None] * self._quantiles)[who[:, None], ranks])

    @cached_property
    def _quantiles(self) -> Array:
        """Factors of each worker at evenly spaced ranks, shape (n_workers, `_N_QUANTILES`)."""
        return np.array([self._extended(self._mixed(k)) for k in range(self.n_workers)])

    def _mixed(self, worker: int) -> Array:
        """Those of one worker's own blocks and of all, by how many it has."""
        is_own = self.workers == worker
        n_own, own = int(is_own.sum()), float(self.shares[is_own].sum())
        trust = n_own / (n_own + _ENOUGH_OF_ONE)

        def weights(shares: Array, workers: IntArray) -> Array:
            return np.asarray(shares * (1 - trust + (workers == worker) * trust / (own or 1.0)))

        begun = self.begun
        factors, weight = with_longer(
            self.factors,
            weights(self.shares, self.workers),
            begun.factors,
            weights(begun.shares, begun.workers),
        )
        reached = np.cumsum(weight) / weight.sum()
        return np.asarray(factors[np.searchsorted(reached[:-1], _RANKS)])

    def _extended(self, quantiles: Array) -> Array:
        """With a Pareto tail, if it is heavy."""
        tail = self.tail
        if tail is None or tail.is_light:
            return quantiles
        beyond = (1 - _RANKS) / _TAIL_SHARE
        threshold = quantiles[np.searchsorted(_RANKS, 1 - _TAIL_SHARE)]
        exceeding = threshold * beyond ** (-1 / max(tail.index, _LEAST_INDEX))
        return np.where(beyond < 1, exceeding, quantiles)

    def death_times(self, streams: Streams, n_workers: int) -> Array:
        return self.deaths[self._who(streams, n_workers)]

    def _who(self, streams: Streams, n_workers: int) -> list[int]:
        n_copies = -(-n_workers // self.n_workers)
        order = streams.permutation(Purpose.WHO_IS_SLOW, n_copies * self.n_workers)
        return [worker % self.n_workers for worker in order[:n_workers]]


def with_longer(
    values: Array, weights: Array, begun: Array, begun_weights: Array
) -> tuple[Array, Array]:
    """Values in increasing order with their weights, and those known to be longer than `begun`.

    As Kaplan and Meier have it: each gives its weight to the values beyond, or else stands for
    itself.
    """
    for i in np.argsort(begun):
        beyond = values > begun[i]
        if beyond.any():
            share = begun_weights[i] / weights[beyond].sum()
            weights = np.where(beyond, weights * (1 + share), weights)
        else:
            values, weights = np.append(values, begun[i]), np.append(weights, begun_weights[i])
    return values, weights


def measured(folder: Path) -> tuple[Measured, History]:
    """What the journal of a run tells of its times, and the journal read through."""
    with History(folder) as history:
        history.read()
    way_out = "there must be a block after warm-up to plan from: let the run go on for longer"
    require(bool(np.any(history.blocks().first_draws > 0)), "run", str(folder), way_out)
    return taken(history), history


def taken(history: History) -> Measured:
    """What a history that has been read tells of times."""
    blocks = history.blocks()
    is_first = blocks.first_draws == 0
    warm, colds = blocks.chosen(~is_first), blocks.chosen(is_first)
    n_draws = warm.n_draws * warm.n_shards
    # What a worker was away for, being restarted, belongs to the block that came next.
    seconds = np.maximum(blocks.ends - blocks.begins + blocks.outages, _AT_ONCE)
    per_draw, cold_seconds = seconds[~is_first] / n_draws, seconds[is_first]
    levels = _levels(per_draw, warm, history.n_workers)
    factors = per_draw / levels[warm.workers]
    order = np.argsort(factors)
    worth = cold_seconds / (colds.n_shards * levels[colds.workers])  # draws of each shard
    warm_up = np.median(worth - colds.n_draws)
    heard = sorted(set(blocks.workers.tolist()))
    silent = [k for k in range(history.n_workers) if k not in heard]
    start = float(np.median([blocks.of(k).begins[0] for k in heard]))
    gone = history.gone()
    begun = _begun(history, warm, levels)
    for worker in set(silent) - set(gone):
        levels[worker] *= max(1.0, (history.seconds - start) / float(np.median(cold_seconds)))
    deaths = np.array([gone.get(worker, np.inf) for worker in range(history.n_workers)])
    return Measured(
        levels=levels,
        deaths=deaths,
        factors=factors[order],
        shares=n_draws[order] / n_draws.sum(),
        workers=warm.workers[order],
        begun=begun,
        block=int(np.median(np.repeat(n_draws, n_draws))),
        warm_up=max(0.0, float(warm_up)),
        start=start,
        silent=tuple(silent),
    )


def _begun(history: History, warm: Blocks, levels: Array) -> Begun:
    """Blocks under way are taken to be as large as those of the same worker usually were."""
    n_draws = warm.n_draws * warm.n_shards
    listed = [
        (seconds / (size * levels[worker]), size / n_draws.sum(), worker)
        for worker, seconds in history.under_way().items()
        if (sizes := n_draws[warm.workers == worker]).size and (size := np.median(sizes))
    ]
    factors, shares, workers = np.array(listed, dtype=np.float64).reshape(-1, 3).T
    return Begun(factors, shares, workers.astype(np.int64))


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
