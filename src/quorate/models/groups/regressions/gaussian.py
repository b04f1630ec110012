"""The integrated likelihood of linear regressions with groups, in closed form.

Given φ, the parameters z of a group are normal: with residuals r = y - Xβ and Σ⁻¹ = K, their
precision is H = ZᵀZ/σ² + K and their mean H⁻¹ Zᵀr/σ². A shard is reduced to ZᵀZ, ZᵀX and Zᵀy of
each group and the triangle of a QR factorisation of (X, y). So an evaluation costs as much as there
are groups, however many rows they have.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from quorate._types import Array, IntArray
from quorate.models import many_points
from quorate.models.groups.levels import LevelUniforms, Moments
from quorate.models.groups.quadrature import coloured, covariance_of, solved, spread
from quorate.models.groups.regressions.integrals import Prior
from quorate.models.groups.regressions.kernels import parts
from quorate.models.groups.regressions.numbering import numbered
from quorate.models.groups.regressions.points import Derivatives, Points, RoughFit, pooled
from quorate.models.observed import Observed
from quorate.models.regressions.families import Linear

_GROUPS = 4096  # at a time


class _Given(NamedTuple):
    """The normal distribution of z given φ, for some groups at some points."""

    groups: slice
    points: slice
    precision: Array  # 1/σ², (n_points,)
    pulls: Array  # Zᵀr, (q, n_points, g)
    mean: Array  # (q, n_points, g)
    upper: list[list[Array]]  # U, with the covariance U Uᵀ
    log_integrals: Array  # (n_points, g), without what does not depend on z

    @property
    def cov(self) -> Array:
        """Covariance (q, q, n_points, g)."""
        return covariance_of(self.upper)


@dataclass(frozen=True)
class ClosedForm:
    """A shard of a linear regression with groups, reduced."""

    codes: IntArray  # (n_groups,), in rising order
    rows: tuple[float, Array]  # sum of weights, and the triangle of (X, y)
    squares: Array  # ZᵀZ, (q, q, n_groups)
    by_column: Array  # ZᵀX, (q, p, n_groups)
    by_response: Array  # Zᵀy, (q, n_groups)
    fit: RoughFit | None = None

    @classmethod
    def of(cls, seen: Observed, varying: Array, group: IntArray) -> "ClosedForm":
        """Reduce rows with Z (n, q) and the code of each row's group (n,)."""
        codes, which = numbered(group)

        def summed(values: Array) -> Array:
            return np.bincount(which, weights=values, minlength=len(codes)).astype(np.float64)

        z, columns = seen.rooted(varying).T, seen.rooted(seen.columns)
        response = seen.rooted(seen.residual_response)
        return cls(
            codes,
            Linear().prepare(seen),
            np.array([[summed(first * second) for second in z] for first in z]),
            np.array([[summed(each * x) for x in columns.T] for each in z]),
            np.array([summed(each * response) for each in z]),
        )

    def pooled_fit(self, start: Array, log_sds: IntArray) -> RoughFit:
        """A fit without groups, by least squares; half of the variance is that of groups.

        `log_sds` are the coordinates of logarithms of standard deviations.
        """
        n_rows, triangle = self.rows
        columns, response = triangle[:, :-1], triangle[:, -1]
        information = columns.T @ columns + 1e-9 * np.eye(columns.shape[1])
        beta = np.asarray(np.linalg.solve(information, columns.T @ response), dtype=np.float64)
        residual = response - columns @ beta
        variance = 0.5 * float(residual @ residual) / max(n_rows, 1) + 1e-300
        guess = start.copy()
        guess[log_sds] = 0.5 * np.log(variance)
        return pooled(beta, information / variance, guess)

    def log_likelihoods(self, points: Points) -> Array:
        """Integrated log-likelihood of each point, (n,)."""
        totals = self.of_rows(points, gradient=False).log_likelihoods
        for given in self._given(points):
            totals[given.points] += given.log_integrals.sum(axis=1)
        return totals

    def log_likelihoods_and_gradients(self, points: Points) -> tuple[Array, Derivatives]:
        """Integrated log-likelihood of each point, and its derivatives."""
        rows = self.of_rows(points, gradient=True)
        totals, by_beta, by_scale = rows.log_likelihoods, rows.coefficients, rows.log_scales
        assert by_beta is not None
        assert by_scale is not None
        moments = np.zeros_like(points.covs[0])  # Σ E[z zᵀ]
        for given in self._given(points):
            at, mean = given.points, given.mean
            second = given.cov + mean[:, None] * mean
            totals[at] += given.log_integrals.sum(axis=1)
            some = self.of_groups(given.groups)
            pulls, misfits = some.expectations(given.pulls, mean, second)
            by_beta[at] -= given.precision[:, None] * pulls
            by_scale[at] += given.precision * misfits
            moments[at] += np.moveaxis(second.sum(axis=3), -1, 0)
        slopes = Prior.of(points.covs[0]).slopes(moments, len(self.codes))
        return totals, Derivatives(by_beta, by_scale, (slopes,))

    def moments(self, points: Points) -> tuple[Moments]:
        """Moments of z of all groups, summed over the points, about 0."""
        sums = np.zeros((3, *self.by_response.shape))
        for given in self._given(points):
            var = np.einsum("iipg->ipg", given.cov)
            sums[:, :, given.groups] += normal_moments(given.mean, var).sum(axis=2)
        return (Moments(self.codes, np.zeros_like(self.by_response.T), np.moveaxis(sums, 1, 2)),)

    def draws(
        self, points: Points, codes: IntArray, uniforms: LevelUniforms
    ) -> tuple[tuple[IntArray, Array]]:
        """A draw of z of some groups for each point, with the codes of the groups."""
        some = self.of_groups(np.searchsorted(self.codes, codes))
        normals = np.moveaxis(ndtri(uniforms(0, codes)), 2, 0)  # (q, n, m)
        draws = np.empty_like(normals)
        for given in some._given(points):
            at = (slice(None), given.points, given.groups)
            draws[at] = given.mean + np.stack(coloured(given.upper, normals[at]))
        return ((codes, np.moveaxis(draws, 0, 2)),)

    def group_integrals(self, points: Points, codes: IntArray) -> Array:
        """Logarithms of the integrals of some groups, (n, m), without what is outside."""
        integrals = np.empty((len(points.betas), len(codes)))
        for given in self.of_groups(np.searchsorted(self.codes, codes))._given(points):
            integrals[given.points, given.groups] = given.log_integrals
        return integrals

    def of_groups(self, which: IntArray | slice) -> "ClosedForm":
        """Some groups, by their positions."""
        return replace(
            self,
            codes=self.codes[which],
            squares=self.squares[..., which],
            by_column=self.by_column[..., which],
            by_response=self.by_response[..., which],
        )

    def expectations(self, pulls: Array, mean: Array, second: Array) -> tuple[Array, Array]:
        """E XᵀZz (n_points, p) and E |r - Zz|² - |r|² (n_points,), summed over groups.

        `pulls` are Zᵀr, `mean` is E z, both (q, n_points, g), and `second` is E zzᵀ.
        """
        misfits = np.einsum("ijg,ijpg->p", self.squares, second)
        misfits -= 2 * np.einsum("ipg,ipg->p", pulls, mean)
        return np.einsum("ipg,icg->pc", mean, self.by_column), misfits

    def pulls(self, betas: Array) -> Array:
        """Zᵀr of each group at each point, (q, n_points, n_groups)."""
        return np.asarray(self.by_response[:, None] - betas @ self.by_column)

    def of_rows(self, points: Points, *, gradient: bool) -> many_points.Values:
        """The log-likelihood of the rows if all parameters of groups were 0."""
        return many_points.linear(*self.rows, points.betas, points.log_scales, gradient)

    def _given(self, points: Points) -> Iterator[_Given]:
        prior = Prior.of(points.covs[0])
        q = len(self.by_response)
        log_root = prior.log_constant + 0.5 * q * np.log(2 * np.pi)
        precision = np.exp(-2 * points.log_scales)
        for groups, at in self._parts(len(points.betas)):
            scale = precision[at, None]
            some = self.of_groups(groups)
            curvature = some.squares[:, :, None] * scale
            upper, log_det = spread(curvature + prior.precision[:, :, at, None])
            pulls = some.pulls(points.betas[at])
            mean = np.stack(solved(upper, pulls * scale))
            gain = 0.5 * scale * np.einsum("ipg,ipg->pg", mean, pulls)
            integrals = gain + log_det + log_root[at, None]
            yield _Given(groups, at, precision[at], pulls, mean, upper, integrals)

    def _parts(self, n_points: int) -> Iterator[tuple[slice, slice]]:
        """Slices of groups and points that fit into the cache together."""
        q, n_groups = self.by_response.shape
        for first in range(0, n_groups, _GROUPS):
            groups = slice(first, min(first + _GROUPS, n_groups))
            for at in parts(n_points, q * q * (groups.stop - groups.start)):
                yield groups, at


def normal_moments(mean: Array, var: Array) -> Array:
    """E z, E z² and E z³ of normal variables, stacked along a new first axis."""
    return np.stack([mean, mean**2 + var, mean**3 + 3 * mean * var])
