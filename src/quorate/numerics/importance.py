"""Importance sampling from mixtures of multivariate Student-t distributions."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from scipy.special import gammaincinv, ndtri

from quorate._types import Array, IntArray
from quorate.numerics.streams import Purpose, Streams

_NEGLIGIBLE = -70.0  # log of a weight, relative to the largest, that contributes nothing


def student_points(uniforms: Array, scale_uniforms: Array, degrees: float) -> Array:
    """Standard Student-t points (n, d), by inversion of `uniforms` (n, d).

    `scale_uniforms` (n,) give each point its scale, the root of degrees / chi-squared.
    """
    scales = np.sqrt(degrees / 2 / gammaincinv(degrees / 2, scale_uniforms))
    return np.asarray(ndtri(uniforms) * scales[:, None])


@dataclass(frozen=True, eq=False)
class StudentMixture:
    """Σ_c shares[c] t_ν(means[c], lowers[c] lowers[c]ᵀ), where ν is `degrees`.

    Parameters
    ----------
    shares
        Shape (C,). They need not sum to 1.
    means, lowers
        Shapes (C, d) and (C, d, d). Each `lowers[c]` is lower triangular.
    """

    degrees: float
    shares: Array
    means: Array
    lowers: Array

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return int(self.means.shape[1])

    def points(self, choices: Array, uniforms: Array, scale_uniforms: Array) -> Array:
        """Points (n, d) from uniforms, of which `choices` (n,) select the component."""
        which = np.searchsorted(np.cumsum(self.shares)[:-1], choices)
        z = student_points(uniforms, scale_uniforms, self.degrees)
        points = np.empty_like(z)
        for c in np.unique(which):  # a triangle for each point would take n d² numbers
            chosen = which == c
            points[chosen] = self.means[c] + np.einsum("ij,nj->ni", self.lowers[c], z[chosen])
        return points

    def log_density(self, points: Array) -> Array:
        """Log density at `points` (n, d), without the constant of a standard t: shape (n,)."""
        components = zip(self.shares, self.means, self.lowers, strict=True)
        parts = [self._part(points, *component) for component in components]
        return np.asarray(np.logaddexp.reduce(parts, axis=0))

    def _part(self, points: Array, share: float, mean: Array, lower: Array) -> Array:
        z = np.linalg.solve(lower, (points - mean).T)
        height = log(share) - np.log(np.diag(lower)).sum()
        fall = (self.degrees + self.dim) / 2 * np.log1p(np.sum(z**2, axis=0) / self.degrees)
        return np.asarray(height - fall)


@dataclass(frozen=True, eq=False)
class Weighted:
    """Points (n, d) with importance weights (n,) that sum to 1."""

    points: Array
    weights: Array

    @classmethod
    def of(cls, points: Array, log_weights: Array) -> "Weighted":
        """Normalise `log_weights`. If all are -inf, the first point gets all the weight."""
        if not np.isfinite(log_weights).any():
            return cls(points, np.eye(len(points))[0])
        weights = np.exp(log_weights - log_weights.max())
        return cls(points, weights / weights.sum())

    @property
    def ess(self) -> float:
        """Effective number of points, 1 / Σ w² (Kish 1965)."""
        return float(1 / np.sum(self.weights**2))

    @property
    def covariance(self) -> Array:
        """Weighted covariance of the points, shape (d, d)."""
        gaps = self.points - self.mean(self.points)
        return np.asarray((gaps * self.weights[:, None]).T @ gaps)

    def mean(self, values: Array) -> Array:
        """Weighted mean of `values` (n, ...) at the points."""
        return np.asarray(self.weights @ values)

    def sd(self, values: Array) -> Array:
        """Weighted standard deviation of `values` (n, ...) at the points."""
        return np.asarray(np.sqrt(self.mean((values - self.mean(values)) ** 2)))

    def error(self, values: Array) -> Array:
        """Standard error of the weighted mean of `values`, by the delta method."""
        gaps = values - self.mean(values)
        return np.asarray(np.sqrt(self.weights**2 @ gaps**2))

    def quantiles(self, values: Array, shares: Sequence[float]) -> list[float]:
        """Smallest of `values` (n,) up to which the weights sum to at least each share."""
        order = np.argsort(values)
        places = np.searchsorted(np.cumsum(self.weights[order]), shares)
        return [float(x) for x in values[order[np.minimum(places, len(order) - 1)]]]

    def without_negligible(self) -> "Weighted":
        """The points whose weight counts. The others may be anywhere, infinity included."""
        counts = self.weights > self.weights.max() * np.exp(_NEGLIGIBLE)
        return Weighted(self.points[counts], self.weights[counts])

    def resampled(self, streams: Streams, n: int) -> IntArray:
        """Indices of `n` points in random order, each as often as its weight says."""
        start = streams.uniforms(Purpose.RESAMPLING, [(0, 0)], 0, 1, 1)[0, 0, 0]
        steps = (np.arange(n) + start) / n
        places = np.searchsorted(np.cumsum(self.weights), steps)
        order = streams.permutation(Purpose.RESAMPLED_ORDER, n)
        return np.asarray(np.minimum(places, len(self.weights) - 1)[order])
