"""The parametric rule: draws of the product of Gaussians fitted to the subposteriors.

The product of N(μ_s, C_s) is N(m, V) with V = (Σ C_s⁻¹)⁻¹ and m = V Σ C_s⁻¹ μ_s (the parametric
estimator of Neiswanger, Wang & Xing 2014). Only two moments of each shard are used.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from quorate.merging.combined import Combined
from quorate.merging.shard_draws import ShardDraws

_ASSUMES = "Every subposterior is Gaussian, and so is the posterior."


def gaussian(
    draws: Sequence[ArrayLike] | ShardDraws, *, seed: int = 1, n_draws: int | None = None
) -> Combined:
    """New draws of N(m, V): `n_draws` of them, or as many as the largest shard has."""
    shards = ShardDraws.of(draws)
    rng = np.random.default_rng(seed)
    normals = rng.standard_normal((n_draws or max(shards.counts), shards.dim))
    mean, cov = shards.product_mean, shards.product_cov
    found = mean + normals @ np.linalg.cholesky(cov).T
    return shards.combined(found, "gaussian", _ASSUMES, mean, cov)
