"""Effective sample size (ESS) and R-hat, rank-normalised.

After Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), "Rank-normalization, folding, and
localization". `draws` always has shape (chains, n, ...), and results have shape (...).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

from quorate._types import Array, IntArray

_Found = TypeVar("_Found")
_AT_ONCE = 2**18  # numbers whose statistics are computed together
_THREADS = 8  # for functions of many draws: numpy sorts without Python's lock
_FUNCTIONS_OF_A_THREAD = 5  # at least: each thread holds six copies of one
_FIRST_LAGS = (8, 64)  # in which the correlation of many draws usually ends
_GROUPS = 8  # of chains, for nested R-hat
SHORTEST = 4  # draws of a chain from which R-hat and ESS can be computed
_LONG = 100  # draws of a chain from which its autocorrelation can be estimated by itself
_LONG_CHAINS = (4, 5, 3, 2)  # that short chains are joined into: the first that divides them


def bulk_ess(draws: Array) -> Array:
    """Bulk ESS: number of independent draws that say as much about means of ranks."""
    return _by_function(_bulk_ess, draws)


def _bulk_ess(draws: Array) -> Array:
    return _ess(_rank_normalised(_halves(draws)))


def mean_ess(draws: Array) -> Array:
    """ESS of the mean: number of independent draws whose mean has the same error."""
    return _by_function(lambda some: _ess(_halves(some)), draws)


def split_rhat(draws: Array) -> Array:
    """Split R-hat: how much halves of chains differ in location or spread; 1 if they do not."""
    return _by_function(_split_rhat, draws)


def _split_rhat(draws: Array) -> Array:
    halves = _halves(draws)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    return np.maximum(_rhat(_rank_normalised(halves)), _rhat(_rank_normalised(folded)))


def in_chains(draws: Array, n_chains: int) -> Array:
    """Draws (n, ...) that come from chains in turn, by chain: (chains, n, ...).

    A last row that not all chains have reached is left out.
    """
    n_steps = len(draws) // n_chains
    rows = draws[: n_steps * n_chains].reshape(n_steps, n_chains, *draws.shape[1:])
    return np.swapaxes(rows, 0, 1)


def joined_chains(n_draws: int, n_chains: int) -> IntArray:
    """Numbers of draws that come from chains in turn, by chain: (chains, n).

    Short chains are joined end to end into a few long ones. The ESS of many short chains is
    estimated badly: their autocovariances are biased, because each is about the mean of a few
    draws. R-hat then compares these means. A last row that not all chains have reached is left out.
    """
    n_steps = n_draws // n_chains
    rows = np.arange(n_steps * n_chains).reshape(n_steps, n_chains).T
    if n_steps >= _LONG or n_chains <= max(_LONG_CHAINS):
        return rows
    n_long = next((n for n in _LONG_CHAINS if n_chains % n == 0), _LONG_CHAINS[0])
    n_each = n_chains // n_long
    return rows[: n_long * n_each].reshape(n_long, n_each * n_steps)


def ess_of_chains(draws: Array, n_chains: int) -> Array:
    """Bulk ESS of draws (n, ...) that come from chains in turn; NaN if chains are too short."""
    if len(draws) // n_chains < SHORTEST:
        return np.full(draws.shape[1:], np.nan)
    return _by_function(_bulk_ess, draws, joined_chains(len(draws), n_chains))


def ess_and_rhat_of_chains(functions: Sequence[Array], n_chains: int) -> tuple[Array, Array]:
    """Bulk ESS and nested R-hat of functions, (n,) each, of draws that come from chains in turn."""
    n_together = max(_AT_ONCE // len(functions[0]), 1)

    def of_some(first: int) -> tuple[Array, Array]:
        values = np.stack(functions[first : first + n_together], axis=1)
        return ess_of_chains(values, n_chains), nested_rhat(in_chains(values, n_chains))

    ess, r_hats = zip(*_in_threads(of_some, range(0, len(functions), n_together)), strict=True)
    return np.concatenate(ess), np.concatenate(r_hats)


def nested_rhat(draws: Array, errors: float = 0.0) -> Array:
    """Nested R-hat of many short chains: how much groups of chains differ; 1 if they do not.

    After Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari & Gelman (2024), "Nested R̂". A group
    has the chains whose first draws of a function are neighbours in order. Chains that remember
    where they began make their groups differ. The noise of the means of groups is subtracted, and
    so many of its standard `errors` more.
    """
    n_groups = min(_GROUPS, draws.shape[0] // 2)
    if n_groups < 2 or draws.shape[1] < SHORTEST:
        return np.full(draws.shape[2:], np.nan)
    later = draws[:, draws.shape[1] // 2 :]  # the half that has had time to forget
    order = np.argsort(draws[:, 0], axis=0)
    groups = np.array_split(np.take_along_axis(later.mean(axis=1), order, axis=0), n_groups)
    between = np.var([group.mean(axis=0) for group in groups], axis=0, ddof=1)
    noise = np.mean([group.var(axis=0, ddof=1) / len(group) for group in groups], axis=0)
    excess = between - noise * (1 + errors * np.sqrt(2 / (n_groups - 1)))
    total = later.reshape(-1, *draws.shape[2:]).var(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt(1 + np.maximum(excess, 0.0) / np.maximum(total - between, 0.0)))


def _by_function(
    statistic: Callable[[Array], Array], draws: Array, chains: IntArray | None = None
) -> Array:
    """A statistic of draws (chains, n, ...), of a few functions at a time if they are many.

    So it takes a few times the memory of these functions, and a signal is heard soon. With
    `chains` (chains, n), draws are (n, ...) and these are the numbers of the draws of each chain.
    """
    n_axes = 2 if chains is None else 1
    if draws.size <= _AT_ONCE or draws.ndim <= n_axes:
        return statistic(draws if chains is None else draws[chains])
    columns = draws.reshape(*draws.shape[:n_axes], -1)

    def of_column(i: int) -> Array:
        column = np.ascontiguousarray(columns[..., i])
        return statistic(column if chains is None else column[chains])

    found = _in_threads(of_column, range(columns.shape[-1]))
    return np.array(found, dtype=np.float64).reshape(draws.shape[n_axes:])


def _in_threads(work: Callable[[int], _Found], numbers: Sequence[int]) -> list[_Found]:
    """Results of `work` for all numbers. It takes a few times the memory of a function."""
    n_threads = min(_THREADS, os.cpu_count() or 1, len(numbers) // _FUNCTIONS_OF_A_THREAD)
    if n_threads <= 1:
        return [work(number) for number in numbers]
    threads = ThreadPoolExecutor(n_threads)
    try:
        return list(threads.map(work, numbers))
    finally:  # also after Ctrl-C
        threads.shutdown(cancel_futures=True)


def _halves(draws: Array) -> Array:
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _rank_normalised(draws: Array) -> Array:
    """Normal scores of the ranks among all chains (Blom 1958)."""
    flat = draws.reshape(-1, *draws.shape[2:])
    order, ordered = _sorted(flat)
    if np.all(ordered[1:] > ordered[:-1]):  # none are equal or NaN
        scores = ordered  # whose memory is used again
        in_order = _scores_in_order(len(flat)).reshape(-1, *(1,) * (flat.ndim - 1))
        np.put_along_axis(scores, order, in_order, axis=0)
    else:
        scores = _scores(_ranks(flat, order, ordered), len(flat))
    return scores.reshape(draws.shape)


def _sorted(values: Array) -> tuple[IntArray, Array]:
    """The order that sorts values along the first axis, and the values in this order."""
    order = np.argsort(values, axis=0)
    return order, np.take_along_axis(values, order, axis=0)


@lru_cache(maxsize=1)
def _scores_in_order(n: int) -> Array:
    return _scores(np.arange(1.0, n + 1), n)


def _scores(ranks: Array, n: int) -> Array:
    """Normal scores of ranks among n, in place."""
    ranks -= 0.375
    ranks /= n + 0.25
    return np.asarray(ndtri(ranks, out=ranks))


def _ranks(values: Array, order: IntArray, ordered: Array) -> Array:
    """Ranks from 1 along the first axis. Equal values share the mean of their ranks.

    Same as `scipy.stats.rankdata`, whose import would dominate the import time of quorate.
    `order` sorts the values, and `ordered` are the values in this order.
    """
    places = np.arange(1, len(values) + 1).reshape(-1, *(1,) * (values.ndim - 1))
    differs = ordered[1:] != ordered[:-1]
    end = np.ones_like(ordered[:1], dtype=np.bool_)
    first = np.maximum.accumulate(np.where(np.concatenate([end, differs]), places, 1))
    is_last = np.concatenate([differs, end])
    last = np.minimum.accumulate(np.where(is_last, places, len(values))[::-1])[::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first + last) / 2, axis=0)
    return np.where(np.isnan(values).any(axis=0), np.nan, ranks)


def _variances(draws: Array) -> tuple[Array, Array]:
    """Variance within chains (W), and the posterior's as estimated by all chains (var⁺)."""
    n = draws.shape[1]
    within = draws.var(axis=1, ddof=1).mean(axis=0)
    between = draws.mean(axis=1).var(axis=0, ddof=1)
    return within, within * (n - 1) / n + between


def _rhat(draws: Array) -> Array:
    within, total = _variances(draws)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt(total / within))


def _ess(draws: Array) -> Array:
    n_chains, n = draws.shape[:2]
    within, total = _variances(draws)
    moving = total > 0  # a constant coordinate has no ESS
    for covariance in _growing_autocovariances(draws):
        time, is_complete = _time(1 - (within - covariance) / np.where(moving, total, 1.0))
        if is_complete:
            break
    return np.where(moving, n_chains * n / np.maximum(time, 1 / np.log10(n_chains * n)), np.nan)


def _time(correlation: Array) -> tuple[Array, bool]:
    """-1 + 2 Σ of Geyer's (1992) initial monotone sequence, from correlations (n, ...).

    The second result says whether no sequence goes on after the last of the correlations.
    """
    correlation[0] = 1.0
    n_pairs = max((len(correlation) - 1) // 2, 1)
    even, odd = correlation[: 2 * n_pairs : 2], correlation[1 : 2 * n_pairs : 2]
    pairs = even + odd
    initial = np.logical_and.accumulate(pairs > 0, axis=0)
    initial[0] = True
    monotone = np.minimum.accumulate(np.where(initial, pairs, np.inf), axis=0)
    sums = np.sum(np.where(initial, monotone, 0.0), axis=0)
    # One more even lag where the sequence stops, which helps antithetic chains
    end = initial.sum(axis=0)
    padded = np.concatenate([even, np.zeros_like(even[:1])])
    last = np.take_along_axis(padded, end[None], axis=0)[0]
    return np.asarray(-1 + 2 * sums + np.maximum(last, 0.0)), bool(np.all(end < n_pairs))


def _growing_autocovariances(draws: Array) -> Iterator[Array]:
    """Autocovariances of chains, their mean: the first lags if draws are many, at last all lags.

    For 10⁶ draws, all lags by FFT take thirty times as long as the first ones.
    """
    if draws.ndim == 2 and draws.size > _AT_ONCE:
        yield from _first_autocovariances(draws)
    yield _autocovariances(draws).mean(axis=0)


def _first_autocovariances(draws: Array) -> Iterator[Array]:
    n = draws.shape[1]
    gaps = draws - draws.mean(axis=1, keepdims=True)
    for n_lags in _FIRST_LAGS:
        if n_lags < n:
            sums = [np.einsum("cn,cn->", gaps[:, k:], gaps[:, : n - k]) for k in range(n_lags)]
            yield np.array(sums) / draws.size


def _autocovariances(draws: Array) -> Array:
    """Autocovariances of each chain, divided by n at every lag, by FFT."""
    n = draws.shape[1]
    size = next_fast_len(2 * n, real=True)
    spectrum = rfft(draws - draws.mean(axis=1, keepdims=True), size, axis=1)
    return np.asarray(irfft(np.abs(spectrum) ** 2, size, axis=1)[:, :n] / n)
