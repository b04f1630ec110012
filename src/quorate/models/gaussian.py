"""Gaussian subposteriors, which can be drawn from exactly: eq. (2) under CMC's assumption.

They also form a model whose rows are the subposteriors themselves, so whatever runs on data runs on
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import toeplitz

from quorate._types import Array, IntArray
from quorate._words import do_not_fill
from quorate.errors import require
from quorate.models.protocol import Shard
from quorate.numerics.linalg import spd_inverse, spd_solve
from quorate.numerics.streams import Lane, Streams

ROWS = "subposterior"


@dataclass(frozen=True, eq=False)
class GaussianSubposteriors:
    """N(μ_s, C_s) for every shard s: `means` is (n_shards, d), `covs` (n_shards, d, d).

    It is a `quorate.models.protocol.Model` of the data `rows()`; each of n_shards shards gets one
    row.
    """

    means: Array
    covs: Array

    @property
    def n_shards(self) -> int:
        """Number of shards K."""
        return len(self.means)

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return len(self.means[0])

    def draws(self, streams: Streams, lanes: Sequence[Lane], first: int, n: int) -> Array:
        """Draws `first` to `first + n - 1` of each (shard, chain), shape (len(lanes), n, d)."""
        shards = [shard for shard, _ in lanes]
        normals = streams.normals(lanes, first, n, self.dim)
        spread = normals @ np.swapaxes(self._lower[shards], -1, -2)
        return np.asarray(self.means[shards, None, :] + spread)

    def posterior(self) -> tuple[Array, Array]:
        """Mean and covariance of eq. (1), the product of the subposteriors."""
        cov = spd_inverse(self._precisions.sum(axis=0))
        return cov @ np.einsum("sij,sj->i", self._precisions, self.means), cov

    def posterior_second_moment(self) -> Array:
        """E[θθᵀ] under the posterior: the expectation of the test functions of §VI."""
        mean, cov = self.posterior()
        return cov + np.outer(mean, mean)

    def rows(self) -> dict[str, IntArray]:
        """The data of the model: the index of the subposterior that each row stands for."""
        return {ROWS: np.arange(self.n_shards)}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"theta[{i}]" for i in range(self.dim))

    def initial(self) -> Array:
        return np.zeros(self.dim)

    def log_prior(self, x: Array) -> float:
        return 0.0  # the subposteriors include it

    def log_likelihood(self, x: Array, shard: Shard) -> float:
        return self.log_likelihood_and_gradient(x, shard)[0]

    def log_prior_and_gradient(self, x: Array) -> tuple[float, Array]:
        return 0.0, np.zeros(self.dim)

    def log_likelihood_and_gradient(self, x: Array, shard: Shard) -> tuple[float, Array]:
        which = shard[ROWS]
        gaps = x - self.means[which]
        pulls = -np.einsum("sij,sj->si", self._precisions[which], gaps)
        return float(np.sum(pulls * gaps) / 2), np.asarray(pulls.sum(axis=0))

    def log_prior_many(self, points: Array) -> Array:
        return np.zeros(len(points))

    def log_likelihood_many(self, points: Array, shard: Shard) -> Array:
        return self.log_likelihood_and_gradient_many(points, shard)[0]

    def log_prior_and_gradient_many(self, points: Array) -> tuple[Array, Array]:
        return np.zeros(len(points)), np.zeros((len(points), self.dim))

    def log_likelihood_and_gradient_many(self, points: Array, shard: Shard) -> tuple[Array, Array]:
        values, gradients = self.log_prior_and_gradient_many(points)
        for which in shard[ROWS]:
            gaps = points - self.means[which]
            pulls = -gaps @ self._precisions[which].T
            values += np.einsum("ni,ni->n", pulls, gaps) / 2
            gradients += pulls
        return values, gradients

    def constrain(self, draws: Array) -> dict[str, Array]:
        return {"theta": draws}

    @cached_property
    def _lower(self) -> Array:
        return np.asarray(np.linalg.cholesky(self.covs))

    @cached_property
    def _precisions(self) -> Array:
        return spd_inverse(self.covs)


def paper_subposteriors(n_shards: int, dim: int = 5) -> GaussianSubposteriors:
    """Subposteriors of §VI: mean 0, C_s Toeplitz with first column ρ^0, …, ρ^(d-1), ρ = (s-1)/K."""
    require(n_shards >= 1, f"n_shards must be at least 1, not {n_shards}.")
    covs = [toeplitz((shard / n_shards) ** np.arange(dim)) for shard in range(n_shards)]
    return GaussianSubposteriors(np.zeros((n_shards, dim)), np.array(covs))


def gaussian_mean_model(
    rows: Array, n_shards: int, noise_cov: Array, prior_cov: Array
) -> GaussianSubposteriors:
    """Subposteriors of the mean of Gaussian rows, eq. (2), in closed form.

    The model is z | θ ~ N(θ, `noise_cov`) and θ ~ N(0, `prior_cov`). A shard of n rows has
    p(θ)^(1/K) Π p(z|θ), Gaussian with precision Σ_prior⁻¹/K + n Σ_noise⁻¹, the inverses of
    `prior_cov` and `noise_cov`.

    Parameters
    ----------
    rows
        The data, shape (n_rows, d), cut into shards in the order given.
    n_shards
        K. Shards have sizes that differ by at most 1; K need not divide the number of rows.
    """
    require(n_shards >= 1, f"n_shards must be at least 1, not {n_shards}.")
    require(len(rows) >= n_shards, do_not_fill(len(rows), "row", n_shards))
    shards = np.array_split(rows, n_shards)
    noise_precision, prior_precision = spd_inverse(noise_cov), spd_inverse(prior_cov)
    sizes = np.array([len(shard) for shard in shards])
    precisions = prior_precision / n_shards + sizes[:, None, None] * noise_precision
    sums = np.array([shard.sum(axis=0) for shard in shards]) @ noise_precision
    return GaussianSubposteriors(
        means=spd_solve(precisions, sums[..., None])[..., 0], covs=spd_inverse(precisions)
    )
