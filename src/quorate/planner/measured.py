"""The times of a run's workers, as a model of the times they will take.

A block takes its number of draws, times the level of its worker, times a factor of its own.

Levels are medians over a worker's blocks, shrunk towards each other where few blocks make them
noisy. Factors are resampled, in proportion to their draws: from the worker's own blocks where it
has many, from those of all workers where it has few. Blocks that were not finished when the run
ended count as blocks that take longer than they had by then; without them long blocks would be
missing. If the tail is heavy, the largest fifth of a worker's factors follows a Pareto tail, whose
index all workers share. Factors are independent: slow spells are not modelled.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quorate._types import Array, BoolArray, IntArray
from quorate.engines.latency import uniforms
from quorate.errors import require
from quorate.numerics.streams import Purpose, Streams
from quorate.run.blocks import Blocks
from quorate.run.history import History

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
    """Blocks under way when the run ended: the factors they had reached by then.

    `shares` are their shares of all draws, if they have the usual size.
    """

    factors: Array
    shares: Array
    workers: IntArray


@dataclass(frozen=True)
class Tail:
    """Hill's estimate of the tail index of block times, with its 95 % interval.

    The tail of a worker begins at a factor of its own; all workers have the same index. It is
    infinite where the largest factors are all equal. `n_blocks` blocks are in the tail.
    """

    index: float
    low: float
    high: float
    n_blocks: int

    @classmethod
    def of(cls, factors: Array, shares: Array, workers: IntArray, begun: Begun) -> "Tail | None":
        """The tail of factors in increasing order; None if it has too few blocks.

        `shares` are shares of all draws. A block under way shows how far the tail reaches, but it
        is not one of the blocks that ended in it.
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
    """A latency model (see `quorate.engines.latency.LatencyModel`) made from measured times.

    With as many workers as the run had, each of these takes part once, in a random place. With
    other numbers, each takes part in as many copies as needed. In an exact run, workers that answer
    together count as one.

    Parameters
    ----------
    levels
        Usual seconds for one draw of one shard, or one point in an exact run, of each worker.
    deaths
        When each worker was lost for good, infinity if never.
    factors, shares, workers
        One entry for each block, by increasing factor: how much longer than usual it took, its
        share of all draws, and its worker.
    begun
        Blocks that were not finished.
    block
        Usual number of draws of single shards in a block.
    warm_up
        How many draws of a shard the warm-up of its chain is worth.
    start
        Seconds before workers begin.
    silent
        Workers that sent nothing. Their level is a lower bound.
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
        """K of the run; or how many answer in it, where workers answer together."""
        return len(self.levels)

    @cached_property
    def tail(self) -> Tail | None:
        """The tail of the factors."""
        return Tail.of(self.factors, self.shares, self.workers, self.begun)

    def times(self, streams: Streams, n_workers: int, first: int, n: int) -> Array:
        ranks = (uniforms(streams, n_workers, first, n) * _N_QUANTILES).astype(np.int64)
        who = np.array(self._who(streams, n_workers))
        return np.asarray(self._quantiles[who[:, None], ranks])

    def death_times(self, streams: Streams, n_workers: int) -> Array:
        return self.deaths[self._who(streams, n_workers)]

    def _who(self, streams: Streams, n_workers: int) -> list[int]:
        """Which worker of the run each worker behaves like."""
        n_copies = -(-n_workers // self.n_workers)
        order = streams.permutation(Purpose.WHO_IS_SLOW, n_copies * self.n_workers)
        return [worker % self.n_workers for worker in order[:n_workers]]

    @cached_property
    def _quantiles(self) -> Array:
        """Seconds of a draw at evenly spaced ranks, (n_workers of the run, `_N_QUANTILES`)."""
        factors = [self._with_tail(self._mixed(worker)) for worker in range(self.n_workers)]
        return self.levels[:, None] * np.array(factors)

    def _mixed(self, worker: int) -> Array:
        """Quantiles of factors of a worker's own blocks and of all, by how many it has."""
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

    def _with_tail(self, quantiles: Array) -> Array:
        """Quantiles of which the largest fifth follows a Pareto tail, if that is heavy."""
        tail = self.tail
        if tail is None or tail.is_light:
            return quantiles
        beyond = (1 - _RANKS) / _TAIL_SHARE
        threshold = quantiles[np.searchsorted(_RANKS, 1 - _TAIL_SHARE)]
        exceeding = threshold * beyond ** (-1 / max(tail.index, _LEAST_INDEX))
        return np.where(beyond < 1, exceeding, quantiles)


def with_longer(
    values: Array, weights: Array, begun: Array, begun_weights: Array
) -> tuple[Array, Array]:
    """Values in increasing order with weights, where some are only known to exceed `begun`.

    After Kaplan and Meier: each of the latter gives its weight to the values beyond it, or becomes
    a value itself if there are none.
    """
    for i in np.argsort(begun):
        beyond = values > begun[i]
        if beyond.any():
            share = begun_weights[i] / weights[beyond].sum()
            weights = np.where(beyond, weights * (1 + share), weights)
        else:
            values, weights = np.append(values, begun[i]), np.append(weights, begun_weights[i])
    return values, weights


# ---------------------------------------------------------------- from a journal


def measured(folder: Path) -> tuple[Measured, History]:
    """The times that the journal of a run holds, and its history."""
    with History(folder) as history:
        history.read()
    require(
        not np.all(_is_warm_up(history)),
        f"The run in {folder} has no block after warm-up to plan from. Let it run for longer.",
    )
    return measured_times(history), history


def _is_warm_up(history: History) -> BoolArray:
    """Which blocks are the first of their chain; or, in an exact run, the survey of a shard."""
    blocks = history.blocks()
    counts = blocks.first_draws if history.passes is None else blocks.n_draws
    return np.asarray(counts == 0)


def _machines(history: History) -> IntArray:
    """Where each worker lives: those that answer together in an exact run share a machine."""
    first = list(range(history.n_workers))  # of those that live together
    spoken_for = {} if history.passes is None else history.passes.spoken_for
    for worker, speaker in spoken_for.items():
        low, high = sorted((first[worker], first[speaker]))
        first = [low if one == high else one for one in first]
    return np.unique(first, return_inverse=True)[1]


def _by_machine(blocks: Blocks, machines: IntArray) -> Blocks:
    """Blocks with machines in place of workers; a machine computes one block at a time."""
    workers, begins = machines[blocks.workers], blocks.begins.copy()
    for machine in np.unique(workers):
        (mine,) = np.nonzero(workers == machine)
        begins[mine[1:]] = np.maximum(begins[mine[1:]], blocks.ends[mine[:-1]])
    return replace(blocks, workers=workers, begins=begins)


def measured_times(history: History) -> Measured:
    """The times of a run whose history has been read.

    In an exact run they are those of points in place of draws, and of machines in place of workers.
    """
    machines, is_first = _machines(history), _is_warm_up(history)
    n_machines = int(machines.max()) + 1
    blocks = _by_machine(history.blocks(), machines)
    # While a worker is restarted, its next block waits: that time is the block's.
    seconds = np.maximum(blocks.ends - blocks.begins + blocks.outages, _AT_ONCE)
    warm, warm_seconds = blocks.chosen(~is_first), seconds[~is_first]
    cold, cold_seconds = blocks.chosen(is_first), seconds[is_first]
    n_draws = warm.n_draws * warm.n_shards
    levels = _levels(warm_seconds / n_draws, warm, n_machines)
    factors = warm_seconds / n_draws / levels[warm.workers]
    order = np.argsort(factors)
    heard = sorted(set(blocks.workers.tolist()))
    silent = tuple(machine for machine in range(n_machines) if machine not in heard)
    start = float(np.median([blocks.of(machine).begins[0] for machine in heard]))
    gone = [history.gone().get(worker, np.inf) for worker in range(history.n_workers)]
    deaths = np.full(n_machines, -np.inf)
    np.maximum.at(deaths, machines, gone)
    begun = _begun(history, warm, levels)
    for machine in silent:
        if np.isinf(deaths[machine]):
            longest = (history.seconds - start) / float(np.median(cold_seconds))
            levels[machine] *= max(1.0, longest)
    return Measured(
        levels=levels,
        deaths=deaths,
        factors=factors[order],
        shares=n_draws[order] / n_draws.sum(),
        workers=warm.workers[order],
        begun=begun,
        block=_usual(n_draws),
        warm_up=_warm_up(cold, cold_seconds, levels),
        start=start,
        silent=silent,
    )


def _usual(sizes: IntArray) -> int:
    """The size of the block that holds the middle one of all draws."""
    ordered = np.sort(sizes)
    return int(ordered[np.searchsorted(np.cumsum(ordered), ordered.sum() / 2)])


def _warm_up(first: Blocks, seconds: Array, levels: Array) -> float:
    """How many draws warm-up is worth, by the first blocks of chains."""
    worth = seconds / (first.n_shards * levels[first.workers])  # draws of each shard
    return max(0.0, float(np.median(worth - first.n_draws)))


def _begun(history: History, warm: Blocks, levels: Array) -> Begun:
    """Blocks under way, which count as large as those of the same worker usually were."""
    n_draws = warm.n_draws * warm.n_shards
    listed = [
        (seconds / (size * levels[worker]), size / n_draws.sum(), worker)
        for worker, seconds in history.under_way().items()
        if (sizes := n_draws[warm.workers == worker]).size and (size := np.median(sizes))
    ]
    factors, shares, workers = np.array(listed, dtype=np.float64).reshape(-1, 3).T
    return Begun(factors, shares, workers.astype(np.int64))


def _levels(per_draw: Array, blocks: Blocks, n_workers: int) -> Array:
    """Median time of a draw of each worker, shrunk towards that of all by how noisy it is."""
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
