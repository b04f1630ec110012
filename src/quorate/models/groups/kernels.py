"""Log-likelihoods of the rows of groups, for families that are not Gaussian.

For all families here log p(y|η) is y η - w b(η - s), up to what does not depend on η. b is
log(1 + exp) or exp; w and the shift s depend on the row and on the scale parameter. Arrays have the
axes (groups, rows, nodes, points).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from quorate._types import Array
from quorate.models.groups.rows import Bucket

Shape = Literal["softplus", "exponential"]
_FURTHEST = 350.0  # of a linear predictor, so that products of exponentials stay finite
_LOG_LARGEST = 700.0


@dataclass(frozen=True)
class Rows:
    """Rows of some groups at some points.

    Parameters
    ----------
    shape
        The function b.
    offsets
        Xβ - s, (g, size, n_points); -inf in rows that count nothing.
    weights
        w, (g, size, 1) or (g, size, n_points).
    response
        y, (g, size, 1).
    varying
        Z, (g, size, q); None if it is a single column of ones.
    count_once
        Whether all weights are 0 or 1.
    """

    shape: Shape
    offsets: Array
    weights: Array
    response: Array
    varying: Array | None
    count_once: bool = False

    def response_by_parameter(self) -> Array:
        """Zᵀy of each group, (q, g)."""
        if self.varying is None:
            return np.asarray(self.response[:, :, 0].sum(axis=1)[None])
        return np.asarray(np.einsum("gsj,gs->jg", self.varying, self.response[:, :, 0]))

    def sums(self, local: Array) -> Array:
        """Σ w b(η) over the rows of each group, at `local` (q, g, m, n_points)."""
        return self._summed(self._exponentials(local))

    def _summed(self, odds: Array) -> Array:
        if self.shape == "exponential":
            return self._weighted(odds)
        if self.count_once and odds.shape[1] * np.log1p(odds.max()) < _LOG_LARGEST:
            odds += 1
            return np.asarray(np.log(np.multiply.reduce(odds, axis=1)))
        return self._weighted(np.log1p(odds, out=odds))

    def _weighted(self, terms: Array) -> Array:
        if self.weights.shape[2] == 1:
            return np.asarray(np.einsum("gsmp,gs->gmp", terms, self.weights[:, :, 0]))
        return np.asarray(np.einsum("gsmp,gsp->gmp", terms, self.weights))

    def slopes_and_curvatures(self, local: Array) -> tuple[Array, Array]:
        """Derivatives y - w b'(η) and w b''(η) of each row at `local` (q, g, n_points)."""
        odds = self._exponentials(np.clip(local, -_FURTHEST, _FURTHEST)[:, :, None])[:, :, 0]
        np.minimum(odds, np.exp(_FURTHEST), out=odds)
        if self.shape == "exponential":
            pulls = curvatures = self.weights * odds
        else:
            shares = odds / (1 + odds)
            pulls = self.weights * shares
            curvatures = pulls / (1 + odds)
        return self.response - pulls, curvatures

    def expectations(self, local: Array, shares: Array) -> tuple[Array, Array]:
        """Means over nodes of w b'(η), and of b(η), in each row: (g, size, n_points) each.

        `local` is (q, g, m, n_points), and `shares` (g, m, n_points) are the nodes' weights.
        """
        odds = self._exponentials(local)
        np.minimum(odds, np.exp(_FURTHEST), out=odds)
        if self.shape == "exponential":
            means = np.einsum("gsmp,gmp->gsp", odds, shares)
            return self.weights * means, means
        terms = np.einsum("gsmp,gmp->gsp", np.log1p(odds), shares)
        odds /= 1 + odds
        return self.weights * np.einsum("gsmp,gmp->gsp", odds, shares), terms

    def _exponentials(self, local: Array) -> Array:
        """exp η, (g, size, m, n_points), at `local` (q, g, m, n_points)."""
        offsets = self.offsets[:, :, None]
        if self.varying is None:
            near = np.exp(np.minimum(offsets, _FURTHEST))
            return np.asarray(near * np.exp(np.minimum(local[0], _FURTHEST))[:, None])
        eta = self.varying[:, :, 0, None, None] * local[0][:, None]
        for column, coefficient in zip(self.varying.T[1:], local[1:], strict=True):
            eta += column.T[:, :, None, None] * coefficient[:, None]
        eta += offsets
        return np.asarray(np.exp(eta, out=eta))


def offsets_of(bucket: Bucket, betas: Array) -> Array:
    """Xβ of every row, (g, size, n_points); -inf in rows that count nothing."""
    offsets = bucket.columns @ betas.T
    offsets[bucket.counts == 0] = -np.inf
    return np.asarray(offsets)
