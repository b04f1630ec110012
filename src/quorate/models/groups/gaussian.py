"""The integrated likelihood of linear regressions with groups, in closed form.

Given φ, the parameters z of a group are normal: with residuals r = y - Xβ and Σ⁻¹ = K, their
precision is H = ZᵀZ/σ² + K and their mean H⁻¹ Zᵀr/σ². A shard is reduced to ZᵀZ, ZᵀX and Zᵀy of
each group and the triangle of a QR factorisation of (X, y). So an evaluation costs as much as there
are groups, however many rows they have.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from quorate._types import Array, IntArray
from quorate.models import many_points
from quorate.models.families import Linear
from quorate.models.groups.integrals import Prior, chunks
from quorate.models.groups.points import Derivatives, Points
from quorate.models.groups.quadrature import newton_step, spread


class _Given(NamedTuple):
    """The normal distribution of z given φ, for some groups at some points."""

    groups: slice
    points: slice
    precision: Array  # 1/σ², (n_points,)
    pulls: Array  # Zᵀr, (q, g, n_points)
    mean: Array  # (q, g, n_points)
    upper: list[list[Array]]  # U, with the covariance U Uᵀ
    log_integrals: Array  # (g, n_points), without what does not depend on z

    @property
    def cov(self) -> Array:
        """Covariance (q, q, g, n_points)."""
        q = len(self.mean)
        zero = np.zeros_like(self.mean[0])
        upper = np.array([[self.upper[i][j] + zero for j in range(q)] for i in range(q)])
        return np.asarray(np.einsum("ikgp,jkgp->ijgp", upper, upper))


@dataclass(frozen=True)
class ClosedForm:
    """A shard of a linear regression with groups, reduced."""

    codes: IntArray  # (n_groups,), in rising order
    rows: tuple[int, Array]  # number of rows, and the triangle of (X, y)
    squares: Array  # ZᵀZ, (q, q, n_groups)
    by_column: Array  # ZᵀX, (q, n_groups, p)
    by_response: Array  # Zᵀy, (q, n_groups)

    @classmethod
    def of(cls, columns: Array, varying: Array, response: Array, group: IntArray) -> "ClosedForm":
        """Reduce X (n, p), Z (n, q), y (n,), with the code of each row's group (n,)."""
        codes, which = np.unique(group, return_inverse=True)

        def summed(values: Array) -> Array:
            return np.bincount(which, weights=values, minlength=len(codes)).astype(np.float64)

        z = varying.T
        return cls(
            np.asarray(codes),
            Linear().prepare(columns, response),
            np.array([[summed(first * second) for second in z] for first in z]),
            np.array([np.column_stack([summed(each * x) for x in columns.T]) for each in z]),
            np.array([summed(each * response) for each in z]),
        )

    @property
    def centres(self) -> Array:
        """Where moments are taken about, (q, n_groups)."""
        return np.zeros_like(self.by_response)

    def log_likelihoods(self, points: Points) -> Array:
        """Integrated log-likelihood of each point, (n,)."""
        totals = self._of_rows(points, gradient=False).log_likelihoods
        for given in self._given(points):
            totals[given.points] += given.log_integrals.sum(axis=0)
        return totals

    def log_likelihoods_and_gradients(self, points: Points) -> tuple[Array, Derivatives]:
        """Integrated log-likelihood of each point, and its derivatives."""
        rows = self._of_rows(points, gradient=True)
        totals, by_beta, by_scale = rows.log_likelihoods, rows.coefficients, rows.log_scales
        assert by_beta is not None
        assert by_scale is not None
        moments = np.zeros_like(points.covs)  # Σ E[z zᵀ]
        for given in self._given(points):
            at, mean = given.points, given.mean
            second = given.cov + mean[:, None] * mean
            totals[at] += given.log_integrals.sum(axis=0)
            pull = np.einsum("igp,igc->pc", mean, self.by_column[:, given.groups])
            by_beta[at] -= given.precision[:, None] * pull
            misfit = np.einsum("ijg,ijgp->p", self.squares[:, :, given.groups], second)
            misfit -= 2 * np.einsum("igp,igp->p", given.pulls, mean)
            by_scale[at] += given.precision * misfit
            moments[at] += np.moveaxis(second.sum(axis=2), -1, 0)
        slopes = Prior.of(points.covs).slopes(moments, len(self.codes))
        return totals, Derivatives(by_beta, by_scale, slopes)

    def moments(self, points: Points) -> Array:
        """Sums over points of E z, E z² and E z³ of each group, (3, n_groups, q)."""
        sums = np.zeros((3, *self.by_response.shape))
        for given in self._given(points):
            mean, var = given.mean, np.einsum("iigp->igp", given.cov)
            for k, moment in enumerate((mean, mean**2 + var, mean**3 + 3 * mean * var)):
                sums[k, :, given.groups] += moment.sum(axis=-1)
        return np.moveaxis(sums, 1, 2)

    def draws(self, points: Points, codes: IntArray, uniforms: Array) -> Array:
        """A draw of z of some groups for each point, (n, m, q), from uniforms (n, m, q)."""
        which = np.searchsorted(self.codes, codes)
        some = ClosedForm(
            codes,
            self.rows,
            self.squares[..., which],
            self.by_column[:, which],
            self.by_response[:, which],
        )
        normals = np.moveaxis(ndtri(uniforms), 0, -1)  # (m, q, n)
        draws = np.empty((uniforms.shape[2], len(codes), len(uniforms)))
        for given in some._given(points):
            at = normals[given.groups, :, given.points]
            for i in range(len(draws)):
                noise = sum(given.upper[i][j] * at[:, j] for j in range(i, len(draws)))
                draws[i, given.groups, given.points] = given.mean[i] + noise
        return np.moveaxis(draws, (0, 1, 2), (2, 1, 0))

    def _of_rows(self, points: Points, *, gradient: bool) -> many_points.Values:
        return many_points.linear(*self.rows, points.betas, points.log_scales, gradient)

    def _given(self, points: Points) -> Iterator[_Given]:
        prior = Prior.of(points.covs)
        q, n_groups = self.by_response.shape
        log_root = prior.log_constant + 0.5 * q * np.log(2 * np.pi)
        precision = np.exp(-2 * points.log_scales)
        for groups, at in chunks(n_groups, 1, len(points.betas), q * q):
            scale, squares = precision[at], self.squares[:, :, groups, None]
            curvature = squares * scale + prior.precision[:, :, None, at]
            upper, log_det = spread(curvature)
            fitted = self.by_column[:, groups] @ points.betas[at].T
            pulls = self.by_response[:, groups, None] - fitted
            mean = np.stack(newton_step(upper, pulls * scale, np.inf))
            gain = 0.5 * np.einsum("igp,igp->gp", mean, pulls * scale)
            yield _Given(groups, at, scale, pulls, mean, upper, gain + log_det + log_root[at])
