"""Consensus: draws averaged with weights. Eqs (5), (6), (8) and (10).

Exact where subposteriors are Gaussian (Scott et al. 2016). `consensus` is the rule for draws at
hand; `consensus_weights` and `merge`, of which schemes are made, take leading axes, so that many
runs, or many moments of one run, are combined at once.
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
        (n_s, d) for each shard. Where all have as many, the l-th go together; else every shard's
        draws are used equally often, in random order, up to the largest count.
    seed
        Of that order.
    weights
        `full` for eq. (6), W_s = (Σ C⁻¹)⁻¹ C_s⁻¹, from sample covariances; `diagonal` for the same
        from variances alone; `uniform` for W_s = I/K.
    """
    shards = ShardDraws.of(draws)
    require(weights in _ASSUMES, "weights", weights, f"choose one of {', '.join(_ASSUMES)}")
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
        `[..., s, :, :]` is W_s = (Σ C⁻¹)⁻¹ C_s⁻¹; over shards they sum to I.
    """
    precisions = spd_inverse(covs)
    posterior_cov = spd_inverse(precisions.sum(axis=-3))
    return np.asarray(posterior_cov[..., None, :, :] @ precisions)


def merge(weights: Array, draws: Array) -> Array:
    """Global draws θ^l = Σ_s W_s θ_s^l of eqs (5), (8) and (10), all in one matrix product.

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
    """One draw of each shard side by side, shape (n_draws, n_shards, d)."""
    n_draws = max(shards.counts)
    if min(shards.counts) == n_draws:
        return np.stack(shards.scaled, axis=1)
    orders = every_draw(np.array(shards.counts), Streams(seed))[:, :n_draws]
    return np.stack([x[order] for x, order in zip(shards.scaled, orders, strict=True)], axis=1)
