"""Monte Carlo errors of merged draws, where shards have unequal numbers of draws.

A global draw is Σ_s W_s θ_s, so the mean of global draws in which the draws of a shard are all used
equally often is Σ_s W_s θ̄_s, whatever the pairing, and its variance is Σ_s W_s Cov(θ̄_s) W_sᵀ.
Draws that are paired again and again do not add to that: global draws are dependent, by the draws
they share, and an ESS computed from them as if they were a chain would be far too high.
"""

import numpy as np

from quorate._types import Array


def merged_mcse(weights: Array, covs: Array, ess: Array) -> Array:
    """Monte Carlo standard error of the mean of the merged draws, shape (d,).

    It is that of the draws for given weights. Where weights are estimated from the same draws,
    their noise comes on top: an error of the rule, which every merged draw has in common.

    Parameters
    ----------
    weights
        W_s, shape (n_shards, d, d).
    covs
        C_s, shape (n_shards, d, d).
    ess
        Effective numbers of draws for the mean of each coordinate (`quorate.ess.mean_ess`, times
        `quorate.pairing.usage_efficiency`), shape (n_shards, d); summed over the chains of a shard.
    """
    per_root = 1 / np.sqrt(ess)
    of_means = covs * per_root[:, :, None] * per_root[:, None, :]
    return np.asarray(np.sqrt(_merged_variances(weights, of_means)))


def merged_ess(weights: Array, covs: Array, ess: Array) -> Array:
    """How many independent draws of the posterior would have this error in the mean, shape (d,).

    An average of the shards' numbers, harmonic, by their parts in the posterior's variance: never
    below the least of a shard's, nor above the most if all coordinates of a shard have one ESS.
    """
    return _merged_variances(weights, covs) / merged_mcse(weights, covs, ess) ** 2


def _merged_variances(weights: Array, covs: Array) -> Array:
    """Diagonal of Σ_s W_s C_s W_sᵀ."""
    return np.asarray(np.einsum("sij,sjk,sik->i", weights, covs, weights))
