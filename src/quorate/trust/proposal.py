"""Where the check evaluates the posterior: points from a mixture of t distributions.

Most points lie around the merge. Some lie where each shard has its draws or another mode, and some
spread widely around the merge. So posterior mass that the merge misses shows as large weights
("defensive" importance sampling, Hesterberg 1995).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quorate._types import Array
from quorate.errors import SingularCovarianceError
from quorate.numerics.importance import StudentMixture
from quorate.numerics.streams import Purpose, Streams

_DEGREES = 7.0  # of freedom: heavier tails than a Gaussian, at 0.56 of its efficiency for d = 31
_WIDE, _SHARDS = 0.1, 0.2  # shares of points


@dataclass(frozen=True, eq=False)
class Proposal:
    """A Student-t mixture. Its first component is the merge, its second the merge made wider."""

    mixture: StudentMixture

    @classmethod
    def around(
        cls, mean: Array, cov: Array, places: Sequence[tuple[Array, Array]], n_shards: int
    ) -> "Proposal":
        """Proposal around the mean and covariance of a merge.

        `places` are means and covariances that shards add. The wide component has n_shards times
        the covariance of the merge, which is a shard's own covariance if all shards are alike.
        """
        lower = _lower(cov)
        lowers = [lower, lower * np.sqrt(n_shards), *(_lower(of) for _, of in places)]
        shares = np.full(len(lowers), _SHARDS / max(len(places), 1))
        shares[1] = _WIDE
        shares[0] = 1 - shares[1:].sum()
        means = np.stack([mean, mean, *(at for at, _ in places)])
        return cls(StudentMixture(_DEGREES, shares, means, np.stack(lowers)))

    def points(self, streams: Streams, n: int) -> Array:
        """The first `n` points of a run, shape (n, d). A longer set begins with a shorter one."""
        uniforms = streams.uniforms(Purpose.POINTS, [(0, 0)], 0, n, self.mixture.dim + 2)[0]
        return self.mixture.points(uniforms[:, 0], uniforms[:, 2:], uniforms[:, 1])

    def log_density(self, points: Array) -> Array:
        """Log density at `points` (n, d), up to a constant: shape (n,)."""
        return self.mixture.log_density(points)

    def log_gaussian(self, points: Array) -> Array:
        """Log density of the merge as a Gaussian, up to a constant: shape (n,)."""
        z = np.linalg.solve(self.mixture.lowers[0], (points - self.mixture.means[0]).T)
        return np.asarray(-0.5 * (z**2).sum(axis=0))


def _lower(cov: Array) -> Array:
    """Cholesky factor of `cov`, computed from correlations so that units do not matter."""
    sds = np.sqrt(np.diagonal(cov))
    if not sds.all():
        raise SingularCovarianceError
    try:
        return np.asarray(sds[:, None] * np.linalg.cholesky(cov / np.outer(sds, sds)))
    except np.linalg.LinAlgError:
        raise SingularCovarianceError from None
