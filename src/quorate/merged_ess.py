"""Monte Carlo errors of merged draws, where shards have unequal numbers of draws.

A global draw is Σ_s W_s θ_s, so the mean of global draws in which the draws of a shard are all used
equally often is Σ_s W_s θ̄_s, whatever the pairing, and its variance is Σ_s Var(W_s θ̄_s): shards are
independent. To pair the same draws again adds nothing to that. Global draws depend on each other by
the draws they share, so an ESS computed from them as if they were a chain would be far too high.
"""

from collections.abc import Sequence

import numpy as np

from quorate._types import Array
from quorate.ess import mean_ess, split_rhat

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
        (`quorate.ledger.Ledger.chains`), for the ESS of W_s θ_s to be found.
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


def ess_and_rhat(
    values: Array, draws: Array, weights: Array, shard_draws: Sequence[Array]
) -> tuple[float, float]:
    """Effective draws for the mean of a function of the parameters, and the worst R-hat behind it.

    The function is taken as linear where its least-squares line explains most of it, and told by
    what shards contribute along that line; else by the worst of all coordinates.

    Parameters
    ----------
    values
        Of the function at the merged draws, shape (n_draws,).
    draws
        The merged draws, (n_draws, d).
    """
    lines = _lines(values, draws)
    parts = [of @ (weight.T @ lines) for weight, of in zip(weights, shard_draws, strict=True)]
    variances = np.array([part.var(axis=0, ddof=1) for part in parts])
    ess = np.array([mean_ess(part[None]) for part in parts])
    merged = variances.sum(axis=0) / (variances / ess).sum(axis=0)
    return float(merged.min()), max(float(np.max(split_rhat(part[None]))) for part in parts)


def _lines(values: Array, draws: Array) -> Array:
    """Directions to look along, shape (d, n_directions)."""
    centred, wanted = draws - draws.mean(axis=0), values - values.mean()
    slopes, *_ = np.linalg.lstsq(centred, wanted, rcond=None)
    is_line = np.var(wanted - centred @ slopes) < _MOSTLY * np.var(wanted)
    return slopes[:, None] if is_line else np.eye(draws.shape[1])


def _parts(weights: Array, shard_draws: Sequence[Array]) -> tuple[Array, Array]:
    """Variances of the coordinates of W_s θ_s, and their ESS, both (n_shards, d)."""
    parts = [draws @ weight.T for weight, draws in zip(weights, shard_draws, strict=True)]
    variances = np.array([part.var(axis=0, ddof=1) for part in parts])
    return variances, np.array([mean_ess(part[None]) for part in parts])
