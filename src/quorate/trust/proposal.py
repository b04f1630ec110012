"""Where the posterior is looked at: a mixture of t distributions whose density is known exactly.

Most points lie around the merge. A share of them lies where each shard has its own draws or another
mode, and another is spread widely around the merge, so that mass which the merge knows nothing of
shows as large weights ("defensive" importance sampling, Hesterberg 1995).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv, gammaln, logsumexp, ndtri

from quorate._types import Array
from quorate.errors import SingularCovarianceError
from quorate.numerics.streams import Purpose, Streams

_FREEDOM = 7.0  # degrees of; tails heavier than a Gaussian's, at 0.56 of its efficiency for d = 31
_WIDE, _SHARDS = 0.1, 0.2  # shares of points


@dataclass(frozen=True, eq=False)
class Proposal:
    """Σ_c shares[c] t_7(means[c], lowers[c] lowers[c]ᵀ): `means` is (C, d), `lowers` (C, d, d)."""

    shares: Array
    means: Array
    lowers: Array

    @classmethod
    def around(
        cls, mean: Array, cov: Array, shards: Sequence[tuple[Array, Array]], n_shards: int
    ) -> "Proposal":
        """Around a mean and a covariance, and places and covariances known from shards.

        The wide part has n_shards times the covariance: that of a shard, where all are alike.
        """
        lower = _lower(cov)
        lowers = [lower, lower * np.sqrt(n_shards), *(_lower(of) for _, of in shards)]
        shares = np.full(len(lowers), _SHARDS / max(len(shards), 1))
        shares[1] = _WIDE
        shares[0] = 1 - shares[1:].sum()
        return cls(shares, np.stack([mean, mean, *(at for at, _ in shards)]), np.stack(lowers))

    @property
    def dim(self) -> int:
        """d."""
        return len(self.means[0])

    def points(self, streams: Streams, n: int) -> Array:
        """The first `n` points of a run, shape (n, d): any number of first ones is a fair set."""
        uniforms = streams.uniforms(Purpose.POINTS, [(0, 0)], 0, n, self.dim + 2)[0]
        which = np.searchsorted(np.cumsum(self.shares)[:-1], uniforms[:, 0])
        chi_square = 2 * gammaincinv(_FREEDOM / 2, uniforms[:, 1])
        z = ndtri(uniforms[:, 2:]) / np.sqrt(chi_square / _FREEDOM)[:, None]
        return np.asarray(self.means[which] + np.einsum("nij,nj->ni", self.lowers[which], z))

    def log_density(self, points: Array) -> Array:
        """Of `points` (n, d), constants and all: shape (n,)."""
        gaps = points[None] - self.means[:, None]
        z = np.linalg.solve(self.lowers, np.swapaxes(gaps, -1, -2))
        volume = np.log(np.diagonal(self.lowers, axis1=-2, axis2=-1)).sum(axis=-1)
        half = (_FREEDOM + self.dim) / 2
        constant = gammaln(half) - gammaln(_FREEDOM / 2) - self.dim / 2 * np.log(_FREEDOM * np.pi)
        log_t = constant - volume[:, None] - half * np.log1p((z**2).sum(axis=1) / _FREEDOM)
        return np.asarray(logsumexp(log_t, axis=0, b=self.shares[:, None]))

    def log_gaussian(self, points: Array) -> Array:
        """Of the Gaussian with the first mean and covariance, up to a constant: shape (n,)."""
        z = np.linalg.solve(self.lowers[0], (points - self.means[0]).T)
        return np.asarray(-0.5 * (z**2).sum(axis=0))


def _lower(cov: Array) -> Array:
    """The Cholesky factor, by way of correlations: units do not matter."""
    sds = np.sqrt(np.diagonal(cov))
    if not sds.all():
        raise SingularCovarianceError
    try:
        return np.asarray(sds[:, None] * np.linalg.cholesky(cov / np.outer(sds, sds)))
    except np.linalg.LinAlgError:
        raise SingularCovarianceError from None
