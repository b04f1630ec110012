"""Pareto-smoothed importance weights of the posterior.

A Pareto distribution is fitted to the largest weights and smooths them. Its shape k̂ says how far
the weights can be relied on (Vehtari, Simpson, Gelman, Yao & Gabry 2024, "Pareto smoothed
importance sampling").
"""

from importlib import import_module
from typing import Any

import numpy as np

from quorate._types import Array
from quorate.numerics.importance import Weighted

_FLOOR = -700.0  # smallest log ratio, relative to the largest


def smoothed(points: Array, log_posterior: Array, log_proposal: Array) -> tuple[Weighted, float]:
    """Smoothed weights of `points` (n, d), and k̂.

    Both log densities (n,) are known up to a constant, and -inf where the density is 0. k̂ is
    infinite if too few points have any weight to fit a tail.
    """
    ratios = log_posterior - log_proposal
    ratios = np.maximum(ratios - ratios.max(), _FLOOR)
    log_weights, k_hat = _psis(ratios)
    return Weighted.of(points, log_weights), k_hat if np.isfinite(k_hat) else np.inf


def _psis(log_ratios: Array) -> tuple[Array, float]:
    """ArviZ's PSIS, imported here because it brings SciPy's statistics with it."""
    array_stats: Any = import_module("arviz_stats.base").array_stats
    with np.errstate(all="ignore"):  # ties among the largest ratios make k̂ infinite
        log_weights, k_hat = array_stats.psislw(-log_ratios)
    if not np.all(np.isfinite(log_weights)):  # all weight is on a few points: nothing to smooth
        return log_ratios, np.inf
    return np.asarray(log_weights), float(k_hat)
