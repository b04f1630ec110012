"""Log-likelihoods of the rows of groups, for families that are not Gaussian.

For all families here log p(y|η) is y η - w b(η - s), up to what does not depend on η. b is
log(1 + exp) or exp; w and the shift s depend on the row and on the scale parameter. Arrays have the
axes (rows, nodes, points, groups).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from quorate._types import Array, BoolArray
from quorate.models.families import Logistic, NegativeBinomial, Poisson
from quorate.models.family import Family
from quorate.models.groups.regressions.points import Points
from quorate.models.groups.regressions.rows import Bundle

Shape = Literal["softplus", "exponential"]
FURTHEST = 350.0  # of a linear predictor, so that products of exponentials stay finite
LARGEST = np.exp(FURTHEST)
_LOG_LARGEST = 700.0


@dataclass(frozen=True)
class Rows:
    """Rows of some groups at some points.

    Parameters
    ----------
    shape
        The function b.
    offsets
        Xβ - s, (size, n_points, g); -inf in rows that count nothing.
    weights
        w, (size, n_points, g).
    response
        y, (size, g).
    varying
        Z, (size, q, g); None if it is a single column of ones.
    has_ones
        Whether the first column of Z is one of ones, in rows that count.
    count_once
        Whether all weights are 0 or 1.
    """

    shape: Shape
    offsets: Array
    weights: Array
    response: Array
    varying: Array | None
    has_ones: bool = False
    count_once: bool = False

    def at(self, points: BoolArray) -> "Rows":
        """The same rows at some of the points."""
        return replace(self, offsets=self.offsets[:, points], weights=self.weights[:, points])

    def response_by_parameter(self) -> Array:
        """Zᵀy of each group, (q, g)."""
        if self.varying is None:
            return np.asarray(self.response.sum(axis=0)[None])
        return np.asarray(np.einsum("sjg,sg->jg", self.varying, self.response))

    def sums(self, local: Array) -> Array:
        """Σ w b(η) over rows, (m, n_points, g), at `local` (q, m, n_points, g)."""
        if self.shape == "exponential" and self.varying is None:
            return np.asarray((self.weights * self._near).sum(axis=0) * np.exp(local[0]))
        if self.shape == "softplus" and self.varying is None and not self._is_moderate(local):
            return self._weighted(np.logaddexp(0.0, self.offsets[:, None] + local[0]))
        odds = self._exponentials(local)
        if self.shape == "exponential":
            return self._weighted(odds)
        if self.count_once and len(odds) * np.log1p(odds.max()) < _LOG_LARGEST:
            odds += 1
            return np.asarray(np.log(np.multiply.reduce(odds, axis=0)))
        return self._weighted(np.log1p(odds, out=odds))

    def _is_moderate(self, local: Array) -> bool:
        """Whether products of exponentials of offsets and of `local` are finite."""
        return bool(self.offsets.max() <= FURTHEST and np.abs(local).max() <= FURTHEST)

    def _weighted(self, terms: Array) -> Array:
        return np.asarray(np.einsum("smpg,spg->mpg", terms, self.weights))

    def slopes_and_curvatures(self, local: Array) -> tuple[Array, Array]:
        """Derivatives y - w b'(η) and w b''(η) of each row at `local` (q, n_points, g)."""
        odds = self._exponentials(np.clip(local, -FURTHEST, FURTHEST)[:, None])[:, 0]
        np.minimum(odds, LARGEST, out=odds)
        if self.shape == "exponential":
            pulls = curvatures = self.weights * odds
        else:
            plus = 1 + odds
            pulls = self.weights * odds / plus
            curvatures = pulls / plus
        return self.response[:, None] - pulls, curvatures

    def expectations(self, local: Array, shares: Array) -> tuple[Array, Array]:
        """Means over nodes of w b'(η), and of b(η), in each row: (size, n_points, g) each.

        `local` is (q, m, n_points, g), and `shares` (m, n_points, g) are the nodes' weights.
        """
        odds = self._exponentials(local)
        np.minimum(odds, LARGEST, out=odds)
        if self.shape == "exponential":
            means = np.einsum("smpg,mpg->spg", odds, shares)
            return self.weights * means, means
        terms = np.einsum("smpg,mpg->spg", np.log1p(odds), shares)
        odds /= 1 + odds
        return self.weights * np.einsum("smpg,mpg->spg", odds, shares), terms

    def _exponentials(self, local: Array) -> Array:
        """exp η, (size, m, n_points, g), at `local` (q, m, n_points, g)."""
        if self.varying is None:
            return np.asarray(self._near[:, None] * np.exp(np.minimum(local[0], FURTHEST)))
        eta = self.varying[:, -1, None, None] * local[-1]
        eta += self.offsets[:, None]
        for j in range(len(local) - 1):
            eta += (
                local[j] if j == 0 and self.has_ones else self.varying[:, j, None, None] * local[j]
            )
        return np.asarray(np.exp(eta, out=eta))

    @cached_property
    def _near(self) -> Array:
        """exp of the offsets."""
        return np.asarray(np.exp(np.minimum(self.offsets, FURTHEST)))


def rows_of(family: Family, bundle: Bundle, points: Points, has_ones: bool) -> Rows:
    """The rows of a bundle at some points. `has_ones`: whether Z starts with a column of ones."""
    is_intercept = has_ones and bundle.varying.shape[1] == 1
    rows = _FAMILIES[type(family)](bundle, points, None if is_intercept else bundle.varying)
    return replace(rows, has_ones=has_ones)


def _logistic(bundle: Bundle, points: Points, varying: Array | None) -> Rows:
    offsets = _offsets(bundle, points.betas)
    return Rows(
        "softplus",
        offsets,
        _for_each(offsets, bundle.counts),
        bundle.response,
        varying,
        count_once=bool(np.isin(bundle.counts, (0.0, 1.0)).all()),
    )


def _poisson(bundle: Bundle, points: Points, varying: Array | None) -> Rows:
    offsets = _offsets(bundle, points.betas)
    return Rows(
        "exponential",
        offsets,
        _for_each(offsets, bundle.counts),
        bundle.response,
        varying,
    )


def _negative_binomial(bundle: Bundle, points: Points, varying: Array | None) -> Rows:
    phi = np.exp(points.log_scales)[:, None]
    return Rows(
        "softplus",
        _offsets(bundle, points.betas) - points.log_scales[:, None],
        bundle.response[:, None] + bundle.counts[:, None] * phi,
        bundle.response,
        varying,
    )


def _offsets(bundle: Bundle, betas: Array) -> Array:
    """Xβ of every row, and its offset, (size, n_points, g); -inf in rows that count nothing."""
    offsets = betas @ bundle.columns
    if bundle.offset.shape[1]:
        offsets += bundle.offset[:, :1]
    np.copyto(offsets, -np.inf, where=(bundle.counts == 0)[:, None])
    return np.asarray(offsets)


def _for_each(offsets: Array, counts: Array) -> Array:
    """The counts of rows, repeated for each point."""
    return np.repeat(counts[:, None], offsets.shape[1], axis=1)


_FAMILIES: Mapping[type, Callable[[Bundle, Points, Array | None], Rows]] = {
    Logistic: _logistic,
    Poisson: _poisson,
    NegativeBinomial: _negative_binomial,
}
