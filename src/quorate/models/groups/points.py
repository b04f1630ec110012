"""Points of a regression with groups, taken apart, and derivatives in their parts."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag

from quorate._types import Array

_UNKNOWN = 0.3  # rough standard deviation of logarithms and correlations
_WIDEST = 3.0  # standard deviation of a coefficient of which a shard knows little


class Points(NamedTuple):
    """Points φ of a regression with groups."""

    betas: Array  # (n, p)
    log_scales: Array  # (n,), 0 if the family has no scale
    covs: Array  # (n, q, q), Σ

    def part(self, which: slice) -> "Points":
        """Some of them."""
        return Points(self.betas[which], self.log_scales[which], self.covs[which])


class Derivatives(NamedTuple):
    """Derivatives of log-likelihoods in the parts of `Points`."""

    betas: Array
    log_scales: Array
    covs: Array


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
