"""Consensus weights: eqs (5), (6), (8) and (10).

Exact where subposteriors are Gaussian (Scott et al. 2016). Every function takes leading axes, so
that many runs, or many moments of one run, are combined at once.
"""

import numpy as np

from quorate._types import Array
from quorate.linalg import spd_inverse


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
