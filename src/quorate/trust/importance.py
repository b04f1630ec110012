"""Pareto-smoothed importance weights of the posterior."""

import numpy as np

from quorate._types import Array
from quorate.numerics.importance import Weighted
from quorate.numerics.pareto import pareto_smoothed

_FLOOR = -700.0  # smallest log ratio, relative to the largest


def smoothed(points: Array, log_posterior: Array, log_proposal: Array) -> tuple[Weighted, float]:
    """Smoothed weights of `points` (n, d), and k̂.

    Both log densities (n,) are known up to a constant, and -inf where the density is 0. k̂ is
    infinite if too few points have any weight to fit a tail.
    """
    ratios = log_posterior - log_proposal
    ratios = np.maximum(ratios - ratios.max(), _FLOOR)
    log_weights, k_hat = pareto_smoothed(ratios)
    return Weighted.of(points, log_weights), k_hat
