"""Consensus: weighted averages of draws. Eqs (5), (6), (8) and (10).

Exact for Gaussian subposteriors (Scott et al. 2016). `consensus` is the rule for given draws.
Schemes use `consensus_weights` and `merge`. Both accept leading axes, and so combine many runs, or
many moments of one run, at once.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from quorate._types import Array
from quorate.errors import require
from quorate.merging.combined import Combined
from quorate.merging.pairing import every_draw
from quorate.merging.shard_draws import ShardDraws
from quorate.numerics.linalg import spd_inverse
from quorate.numerics.streams import Streams

_ASSUMES = {
    "full": "Every subposterior is Gaussian.",
    "diagonal": "Every subposterior is Gaussian with independent coordinates.",
    "uniform": "Every subposterior is Gaussian, and all have the same covariance.",
}


def consensus(
    draws: Sequence[ArrayLike] | ShardDraws, *, seed: int = 1, weights: str = "full"
) -> Combined:
    """Averages of one draw from each shard: θ = Σ_s W_s θ_s.

    Parameters
    ----------
    draws
        (n_s, d) for each shard. If all shards have the same number, the l-th draws are averaged.
        Else each shard's draws are used equally often, in random order, up to the largest number.
    seed
        Seed of that order.
    weights
        `full` for eq. (6), W_s = (Σ C⁻¹)⁻¹ C_s⁻¹, from sample covariances; `diagonal` for eq. (6)
        from variances alone; `uniform` for W_s = I/K.
    """
    shards = ShardDraws.of(draws)
    known = ", ".join(_ASSUMES)
    require(weights in _ASSUMES, f"Unknown weights {weights!r}. Choose one of {known}.")
    found = merge(_weights(shards, weights), _paired(shards, seed))
    return shards.combined(found, "consensus", _ASSUMES[weights])


def consensus_weights(covs: Array) -> Array:
    """Weights of eq. (6).

    Parameters
    ----------
    covs
        `covs[..., s, :, :]` is C_s, shape (..., n_shards, d, d).

    Returns
    -------
    Array
        `[..., s, :, :]` is W_s = (Σ C⁻¹)⁻¹ C_s⁻¹. They sum to I over shards.
    """
    precisions = spd_inverse(covs)
    posterior_cov = spd_inverse(precisions.sum(axis=-3))
    return np.asarray(posterior_cov[..., None, :, :] @ precisions)


def merge(weights: Array, draws: Array) -> Array:
    """Global draws θ^l = Σ_s W_s θ_s^l of eqs (5), (8) and (10), in one matrix product.

    Parameters
    ----------
    weights
        Shape (..., n_shards, d, d).
    draws
        Shape (..., n_draws, n_shards, d).

    Returns
    -------
    Array
        Shape (..., n_draws, d).
    """
    n_shards, dim = draws.shape[-2:]
    side_by_side = draws.reshape(*draws.shape[:-2], n_shards * dim)
    stacked = np.swapaxes(weights, -1, -2).reshape(*weights.shape[:-3], n_shards * dim, dim)
    return np.asarray(side_by_side @ stacked)


def _weights(shards: ShardDraws, kind: str) -> Array:
    if kind == "full":
        return shards.weights
    if kind == "diagonal":
        precisions = 1 / shards.variances
    else:
        precisions = np.ones((len(shards.scaled), shards.dim))
    return np.asarray((precisions / precisions.sum(axis=0))[:, :, None] * np.eye(shards.dim))


def _paired(shards: ShardDraws, seed: int) -> Array:
    """One draw of each shard for every global draw, shape (n_draws, n_shards, d)."""
    n_draws = max(shards.counts)
    if min(shards.counts) == n_draws:
        return np.stack(shards.scaled, axis=1)
    orders = every_draw(np.array(shards.counts), Streams(seed))[:, :n_draws]
    return np.stack([x[order] for x, order in zip(shards.scaled, orders, strict=True)], axis=1)
