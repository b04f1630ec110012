"""SwISS: every draw of every shard, moved and stretched to the posterior's mean and covariance.

θ' = A_s (θ - μ_s) + m, where A_s C_s A_sᵀ = V (Vyner, Nemeth & Sherlock 2023). Of all such
matrices, A_s = (V C_s⁻¹)^½ moves draws least in the metric of C_s⁻¹, and also in that of V⁻¹. So
the result does not depend on the coordinates.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from quorate._types import Array
from quorate.merging.combined import Combined
from quorate.merging.shard_draws import ShardDraws

_ASSUMES = (
    "The posterior has the shape of the subposteriors, and the mean and covariance that it would "
    "have if they were Gaussian."
)


def swiss(draws: Sequence[ArrayLike] | ShardDraws, *, seed: int = 1) -> Combined:
    """Moved draws of all shards, one shard after the other. Nothing is random; `seed` is unused."""
    shards = ShardDraws.of(draws)
    del seed
    mean, cov = shards.product_mean, shards.product_cov
    moved = [
        mean + (values - centre) @ optimal_map(own_cov, cov).T
        for values, centre, own_cov in zip(shards.scaled, shards.means, shards.covs, strict=True)
    ]
    return shards.combined(np.concatenate(moved), "swiss", _ASSUMES, mean, cov)


def optimal_map(source: Array, target: Array) -> Array:
    """A = (V C⁻¹)^½ for covariances C = `source` and V = `target`, so that A C Aᵀ = V."""
    sds = np.sqrt(np.diagonal(source))
    lower = sds[:, None] * np.linalg.cholesky(source / (sds * sds[:, None]))
    whitened = np.linalg.solve(lower, np.linalg.solve(lower, target).T)
    values, vectors = np.linalg.eigh((whitened + whitened.T) / 2)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return np.asarray(np.linalg.solve(lower.T, (lower @ root).T).T)
