"""Effective sample size (ESS) and R-hat of merged draws.

A global draw is Σ_s W_s θ_s. If every draw of a shard is used equally often, the mean of the
global draws is Σ_s W_s θ̄_s, whatever the pairing. Shards are independent, so its variance is
Σ_s Var(W_s θ̄_s), and pairing the same draws again does not reduce it. Global draws share draws of
shards: treating them as a chain would overstate their ESS by far. Where
`quorate.merging.centres` shifts the draws, errors of means are smaller than this ESS implies.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from quorate._types import Array, BoolArray, IntArray
from quorate.numerics.ess import bulk_ess, mean_ess, split_rhat

_FEWEST_OF_A_SHARD = 4  # draws of a shard from which an ESS can be computed
_UNEXPLAINED = 0.5  # share of a function's variance that its best line may leave unexplained
_TIES = 0.01  # share of neighbours that rounding may make equal
_FIRST_LOOK = 100  # draws that rule out most pairs of function and coordinate


def fewest_draws(dim: int) -> int:
    """Number of global draws in `dim` dimensions below which weights and ESS mean nothing."""
    return 2 * dim + 8


def are_enough(n_draws: int, counts: Iterable[int], dim: int) -> bool:
    """Whether an ESS can be told of global draws, and of the numbers of draws of shards."""
    return n_draws >= fewest_draws(dim) and min(counts, default=n_draws) >= _FEWEST_OF_A_SHARD


def effective_draws(draws: Array, weights: Array | None, shard_draws: Sequence[Array]) -> Array:
    """Effective number of global draws of every unconstrained coordinate, shape (d,).

    It is `merged_ess` if the weights are known. For a coded run, which has none, it is the bulk
    ESS of the global draws as one chain.

    Parameters
    ----------
    draws
        The global draws, (n_draws, d).
    weights, shard_draws
        As for `merged_ess`; None and nothing for a coded run.

    Returns
    -------
    Array
        NaN along all coordinates if there are fewer than `fewest_draws`, or fewer than four draws
        of some shard.
    """
    dim = draws.shape[1]
    if not are_enough(len(draws), () if weights is None else map(len, shard_draws), dim):
        return np.full(dim, np.nan)
    return bulk_ess(draws[None]) if weights is None else merged_ess(weights, shard_draws)


def merged_ess(weights: Array, shard_draws: Sequence[Array]) -> Array:
    """Number of independent posterior draws whose mean has the same error, shape (d,).

    This is the harmonic mean of the shards' ESS, weighted by their shares of the posterior's
    variance. It is never below the smallest of them. If one of four equal shards is behind, it is
    at most four times that shard's.

    Parameters
    ----------
    weights
        W_s, shape (n_shards, d, d).
    shard_draws
        All draws of each shard, (n_s, d) with n_s of at least 4, one chain after the other
        (`quorate.protocol.ledger.Ledger.shard_draws`).
    """
    return _judged(_parts(weights, shard_draws), with_r_hat=False)[0]


def ess_and_rhat(
    values: Array, draws: Array, weights: Array, shard_draws: Sequence[Array]
) -> tuple[Array, Array]:
    """ESS for the means of functions of the parameters, and the worst R-hat among shards.

    A rank-normalised ESS does not change under monotone transforms. So a function that rises or
    falls with one coordinate, as exp(x) does, gets that coordinate's `merged_ess` and R-hat. Any
    other function is approximated by its least-squares line, and by the worst coordinate if the
    line explains too little of it.

    Parameters
    ----------
    values
        Values of the functions at the merged draws, shape (n_draws, n_functions).
    draws
        The merged draws, (n_draws, d).
    weights, shard_draws
        As for `merged_ess`.
    """
    coordinate_ess, coordinate_r_hat = _judged(_parts(weights, shard_draws))
    which = _coordinates(values, draws)
    ess, r_hat = coordinate_ess[which], coordinate_r_hat[which]
    other = np.flatnonzero(which < 0)
    if len(other):
        lines, is_line = _lines(values[:, other], draws)
        with np.errstate(invalid="ignore"):  # lines of length 0 have no ESS
            found = _judged(part @ lines for part in _parts(weights, shard_draws))
        ess[other] = np.where(is_line, found[0], coordinate_ess.min())
        r_hat[other] = np.where(is_line, found[1], coordinate_r_hat.max())
    return ess, r_hat


def _lines(values: Array, draws: Array) -> tuple[Array, BoolArray]:
    """Least-squares lines of functions of the draws, (d, m), and whether they explain enough."""
    centred, wanted = draws - draws.mean(axis=0), values - values.mean(axis=0)
    lines, *_ = np.linalg.lstsq(centred, wanted, rcond=None)
    is_line = np.var(wanted - centred @ lines, axis=0) < _UNEXPLAINED * np.var(wanted, axis=0)
    return lines, is_line


def _coordinates(values: Array, draws: Array) -> IntArray:
    """The coordinate that each function is a monotone function of; -1 if there is none."""
    found = np.full(values.shape[1], -1)
    for j, coordinate in enumerate(draws.T):
        first_rises = _rises(values[:_FIRST_LOOK], coordinate[:_FIRST_LOOK])
        likely = np.flatnonzero(_have_one_sign(first_rises))
        rises = _rises(values[:, likely], coordinate)
        n_rises, n_different = np.count_nonzero(rises, axis=0), len(np.unique(coordinate)) - 1
        is_strict = (n_rises > (1 - _TIES) * n_different) & (n_rises <= n_different)
        found[likely[_have_one_sign(rises) & is_strict]] = j
    return found


def _rises(values: Array, coordinate: Array) -> Array:
    """Differences of neighbours among `values` (n, m), in the order of a coordinate (n,)."""
    return np.diff(values[np.argsort(coordinate)], axis=0)


def _have_one_sign(rises: Array) -> Array:
    return np.asarray((rises >= 0).all(axis=0) | (rises <= 0).all(axis=0))


def _parts(weights: Array, shard_draws: Sequence[Array]) -> Iterator[Array]:
    """W_s θ_s for all draws of each shard, (n_s, d) each, one shard after the other."""
    return (draws @ weight.T for weight, draws in zip(weights, shard_draws, strict=True))


def _judged(parts: Iterable[Array], *, with_r_hat: bool = True) -> tuple[Array, Array]:
    """ESS of the mean of sums over shards, and the largest R-hat of any shard: shapes (m,).

    `parts` are the terms (n_s, m) of each shard.
    """
    variances, ess, r_hats = [], [], []
    for part in parts:
        variances.append(part.var(axis=0, ddof=1))
        ess.append(mean_ess(part[None]))
        r_hats.append(split_rhat(part[None]) if with_r_hat else np.zeros(part.shape[1]))
    shares = np.array(variances)
    total = shares.sum(axis=0) / (shares / np.array(ess)).sum(axis=0)
    return np.asarray(total), np.asarray(np.max(r_hats, axis=0))
