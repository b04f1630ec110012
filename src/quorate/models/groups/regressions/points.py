"""Points of a regression with groups, taken apart, and derivatives in their parts."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag

from quorate._types import Array, BoolArray, IntArray

_UNKNOWN = 0.3  # rough standard deviation of logarithms and correlations
_WIDEST = 3.0  # standard deviation of a coefficient of which a shard knows little


class Points(NamedTuple):
    """Points φ of a regression with groups."""

    betas: Array  # (n, p)
    log_scales: Array  # (n,), 0 if the family has no scale
    covs: tuple[Array, ...]  # Σ of each level, outer level first, (n, q, q)

    def part(self, which: slice | BoolArray | IntArray) -> "Points":
        """Some of the points."""
        covs = tuple(cov[which] for cov in self.covs)
        return Points(self.betas[which], self.log_scales[which], covs)

    def of_inner(self, n_times: int) -> "Points":
        """All points, repeated `n_times`, with the covariances of the inner level only."""
        return Points(
            np.tile(self.betas, (n_times, 1)),
            np.tile(self.log_scales, n_times),
            (np.tile(self.covs[-1], (n_times, 1, 1)),),
        )


class Derivatives(NamedTuple):
    """Derivatives of log-likelihoods in the parts of `Points`."""

    betas: Array
    log_scales: Array
    covs: tuple[Array, ...]


class RoughFit(NamedTuple):
    """About where a posterior lies."""

    mode: Array  # (d,)
    cov: Array  # (d, d)


def pooled(mode: Array, information: Array, start: Array) -> RoughFit:
    """A start from coefficients without groups, with the information on them.

    The other coordinates are those of `start`.
    """
    p = len(mode)
    bends, axes = np.linalg.eigh(information)
    cov = axes / np.maximum(bends, _WIDEST**-2) @ axes.T
    rest = np.eye(len(start) - p) * _UNKNOWN**2
    return RoughFit(np.concatenate([mode, start[p:]]), block_diag(cov, rest))
