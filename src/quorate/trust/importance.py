"""Points weighted by how much more the posterior has of them than their proposal.

Weights are smoothed by a Pareto distribution fitted to the largest, whose shape k̂ says how far
they can be relied on (Vehtari, Simpson, Gelman, Yao & Gabry 2024, "Pareto smoothed importance
sampling").
"""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from scipy.special import logsumexp

from quorate._types import Array, IntArray
from quorate.numerics.streams import Purpose, Streams

_NOTHING = -700.0  # logarithm of a weight beside the largest that is none


@dataclass(frozen=True, eq=False)
class Weighted:
    """Points (n, d) with normalised log weights (n,), and what is known of these.

    Parameters
    ----------
    k_hat
        Shape of the tail of the weights: infinite where there are too few of any weight to tell.
    """

    points: Array
    log_weights: Array
    k_hat: float

    @classmethod
    def of(cls, points: Array, log_posterior: Array, log_proposal: Array) -> "Weighted":
        """Smoothed weights; both densities are up to a constant, -inf where there is none."""
        ratios = log_posterior - log_proposal
        ratios = np.maximum(ratios - ratios.max(), _NOTHING)
        smoothed, k_hat = _psis(ratios)
        log_weights = np.asarray(smoothed - logsumexp(smoothed))
        return cls(points, log_weights, float(k_hat) if np.isfinite(k_hat) else np.inf)

    @cached_property
    def weights(self) -> Array:
        """They sum to 1."""
        return np.asarray(np.exp(self.log_weights))

    @property
    def ess(self) -> float:
        """Effective number of points."""
        return effective_number(self.log_weights)

    def mean(self, values: Array) -> Array:
        """Of `values` (n, ...) at the points."""
        return np.asarray(np.tensordot(self.weights, values, axes=1))

    def sd(self, values: Array) -> Array:
        """Likewise."""
        return np.asarray(np.sqrt(self.mean((values - self.mean(values)) ** 2)))

    def error(self, values: Array) -> Array:
        """Standard error of the mean of `values`, by the delta method."""
        gaps = values - self.mean(values)
        return np.asarray(np.sqrt(np.tensordot(self.weights**2, gaps**2, axes=1)))

    def quantile(self, values: Array, share: float) -> float:
        """The smallest of `values` (n,) that has so much weight up to it."""
        order = np.argsort(values)
        place = np.searchsorted(np.cumsum(self.weights[order]), share)
        return float(values[order[min(int(place), len(order) - 1)]])

    def some(self) -> "Weighted":
        """Those points that have any weight to speak of; the others may be anywhere."""
        told = self.log_weights > self.log_weights.max() + _NOTHING / 10
        return Weighted(self.points[told], self.log_weights[told], self.k_hat)

    def resampled(self, streams: Streams, n: int) -> IntArray:
        """Which points to take, as often as their weights say, for `n` draws in random order."""
        start = streams.uniforms(Purpose.RESAMPLING, [(0, 0)], 0, 1, 1)[0, 0, 0]
        steps = (np.arange(n) + start) / n
        places = np.searchsorted(np.cumsum(self.weights), steps)
        order = streams.permutation(Purpose.RESAMPLED_ORDER, n)
        return np.asarray(np.minimum(places, len(self.weights) - 1)[order])


def effective_number(log_weights: Array) -> float:
    """Of draws with these weights, which need not be normalised: (Σw)² / Σw² (Kish 1965)."""
    return float(np.exp(2 * logsumexp(log_weights) - logsumexp(2 * log_weights)))


def _psis(log_ratios: Array) -> tuple[Array, float]:
    """ArviZ's; imported only here, because SciPy's statistics come with it."""
    array_stats: Any = import_module("arviz_stats.base").array_stats
    with np.errstate(all="ignore"):  # ties among the largest ratios, whose k̂ is then infinite
        smoothed, k_hat = array_stats.psislw(-log_ratios)
    if not np.all(np.isfinite(smoothed)):  # nothing to smooth: all weight is on a few points
        return log_ratios - np.logaddexp.reduce(log_ratios), np.inf
    return np.asarray(smoothed), float(k_hat)
