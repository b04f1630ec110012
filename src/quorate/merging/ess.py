"""Monte Carlo errors of merged draws, where shards have unequal numbers of draws.

A global draw is Σ_s W_s θ_s, so the mean of global draws in which the draws of a shard are all used
equally often is Σ_s W_s θ̄_s, whatever the pairing, and its variance is Σ_s Var(W_s θ̄_s): shards are
independent. To pair the same draws again adds nothing to that. Global draws depend on each other by
the draws they share, so an ESS computed from them as if they were a chain would be far too high.
Where `quorate.merging.centres` shifts them, errors of means are smaller than told here.
"""

from collections.abc import Sequence

import numpy as np

from quorate._types import Array
from quorate.numerics.ess import bulk_ess, mean_ess, split_rhat

_MOSTLY = 0.5  # of a function's variance, that a line may leave unexplained


def merged_mcse(weights: Array, shard_draws: Sequence[Array]) -> Array:
    """Monte Carlo standard error of the mean of the merged draws, shape (d,).

    It is that of the draws for given weights. Where weights are estimated from the same draws,
    their noise comes on top: an error of the rule, which all merged draws have in common.

    Parameters
    ----------
    weights
        W_s, shape (n_shards, d, d).
    shard_draws
        All draws of each shard, (n_s, d) with n_s of at least 4; one chain after the other
        (`quorate.protocol.ledger.Ledger.chains`), for the ESS of W_s θ_s to be found.
    """
    variances, ess = _parts(weights, shard_draws)
    return np.asarray(np.sqrt((variances / ess).sum(axis=0)))


def merged_ess(weights: Array, shard_draws: Sequence[Array]) -> Array:
    """How many independent draws of the posterior would have this error in the mean, shape (d,).

    The harmonic mean of the shards' ESS, each with its share of the posterior's variance for its
    weight: never below the least of them, and no more than four times it where one of four equal
    shards is behind.
    """
    variances, ess = _parts(weights, shard_draws)
    return np.asarray(variances.sum(axis=0) / (variances / ess).sum(axis=0))


def fewest_draws(dim: int) -> int:
    """Global draws below which weights, and so an ESS, mean nothing."""
    return 2 * dim + 8


def effective_draws(draws: Array, weights: Array | None, shard_draws: Sequence[Array]) -> Array:
    """Effective number of draws of every unconstrained coordinate, shape (d,).

    That of `merged_ess` where weights are known; else that of the global draws as one chain. NaN
    where there are too few draws.
    """
    dim = draws.shape[-1]
    if len(draws) <= fewest_draws(dim):
        return np.full(dim, np.nan)
    return bulk_ess(draws[None]) if weights is None else merged_ess(weights, shard_draws)


def ess_and_rhat(
    values: Array, draws: Array, weights: Array, shard_draws: Sequence[Array]
) -> tuple[Array, Array]:
    """Effective draws for the means of functions of the parameters, and the worst R-hat behind.

    A function is taken as linear where its least-squares line explains most of it, and told by
    what shards contribute along that line; else by the worst of all coordinates.

    Parameters
    ----------
    values
        Of the functions at the merged draws, shape (n_draws, n_functions).
    draws
        The merged draws, (n_draws, d).
    """
    centred, wanted = draws - draws.mean(axis=0), values - values.mean(axis=0)
    lines, *_ = np.linalg.lstsq(centred, wanted, rcond=None)
    is_line = np.var(wanted - centred @ lines, axis=0) < _MOSTLY * np.var(wanted, axis=0)
    ess, r_hat = _along(lines, weights, shard_draws)
    if not is_line.all():
        of_coordinates = _along(np.eye(draws.shape[1]), weights, shard_draws)
        ess = np.where(is_line, ess, of_coordinates[0].min())
        r_hat = np.where(is_line, r_hat, of_coordinates[1].max())
    return ess, r_hat


def _along(lines: Array, weights: Array, shard_draws: Sequence[Array]) -> tuple[Array, Array]:
    """ESS of the merged mean along each line (d, n_lines), and the worst R-hat among shards."""
    parts = [of @ (weight.T @ lines) for weight, of in zip(weights, shard_draws, strict=True)]
    variances = np.array([part.var(axis=0, ddof=1) for part in parts])
    ess = np.array([mean_ess(part[None]) for part in parts])
    r_hats = np.array([split_rhat(part[None]) for part in parts])
    with np.errstate(invalid="ignore"):  # lines of length 0 have neither
        merged = variances.sum(axis=0) / (variances / ess).sum(axis=0)
    return np.asarray(merged), np.asarray(r_hats.max(axis=0))


def _parts(weights: Array, shard_draws: Sequence[Array]) -> tuple[Array, Array]:
    """Variances of the coordinates of W_s θ_s, and their ESS, both (n_shards, d)."""
    parts = [draws @ weight.T for weight, draws in zip(weights, shard_draws, strict=True)]
    variances = np.array([part.var(axis=0, ddof=1) for part in parts])
    return variances, np.array([mean_ess(part[None]) for part in parts])
