"""Points of a regression with groups, taken apart, and derivatives in their parts."""

from typing import NamedTuple

from quorate._types import Array


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
