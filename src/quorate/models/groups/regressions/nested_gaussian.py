"""The integrated likelihood of linear regressions with groups within groups, in closed form.

As in the module `gaussian`, sums over the rows of each inner group are all that is kept of a shard.
Given φ, the coefficients of both levels are normal, and the inner ones are eliminated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from quorate._types import Array, IntArray
from quorate.models.groups.levels import LevelUniforms, Moments
from quorate.models.groups.nesting import Nesting
from quorate.models.groups.quadrature import coloured, covariance_of, solved, whitened
from quorate.models.groups.regressions.arrow import Arrow, Side, arrow
from quorate.models.groups.regressions.gaussian import ClosedForm, normal_moments
from quorate.models.groups.regressions.integrals import Prior
from quorate.models.groups.regressions.kernels import parts
from quorate.models.groups.regressions.points import Derivatives, Points, RoughFit
from quorate.models.groups.regressions.tables import Tables

_GROUPS = 4096  # of the inner level, at a time


class _Part(NamedTuple):
    """Some outer groups, with what lies within them."""

    outer: IntArray  # positions of the groups
    inner: IntArray
    nesting: Nesting
    form: ClosedForm


class _Given(NamedTuple):
    """The normal distribution of u and v given φ, for some groups at some points."""

    part: _Part
    points: slice
    precision: Array  # 1/σ², (n_points,)
    pulls: Array  # Zᵀr of both levels, (q + q_inner, n_points, n_inner)
    arrow: Arrow
    log_integrals: Array  # (n_points, n_outer), without what depends on neither u nor v

    @property
    def means(self) -> tuple[Array, Array]:
        """E u (q, n_points, n_outer) and E v (q_inner, n_points, n_inner)."""
        outer, inner = (np.stack(solved(s.upper, s.slopes)) for s in self.arrow[1:3])
        return outer, inner + self.arrow.tilted(outer)

    @property
    def covs(self) -> tuple[Array, Array]:
        """Covariance of u, and that of u and v of each inner group together."""
        of_outer = covariance_of(self.arrow.outer.upper)
        own = covariance_of(self.arrow.inner.upper)
        each = self.arrow.nesting.repeated(of_outer)
        cross = -np.einsum("ikpb,kjpb->ijpb", self.arrow.tilts, each)
        own -= np.einsum("ikpb,jkpb->ijpb", cross, self.arrow.tilts)
        upper = np.concatenate([each, np.swapaxes(cross, 0, 1)], axis=1)
        return of_outer, np.concatenate([upper, np.concatenate([cross, own], axis=1)])


@dataclass(frozen=True)
class NestedClosedForm:
    """A shard of a linear regression with groups within groups, reduced."""

    nesting: Nesting
    form: ClosedForm  # of the inner groups, with the columns of both levels

    @classmethod
    def of(cls, tables: Tables) -> "NestedClosedForm":
        """Reduce the rows of a shard."""
        nesting, place = Nesting.of_rows(*tables.groups)
        varying = np.hstack(tables.varying)
        return cls(nesting, ClosedForm.of(tables.seen, varying, place))

    @property
    def fit(self) -> None:
        """None: the fit is made when it is asked for."""

    def pooled_fit(self, start: Array, log_sds: IntArray) -> RoughFit:
        """A fit without groups; see `ClosedForm.pooled_fit`."""
        return self.form.pooled_fit(start, log_sds)

    @property
    def codes(self) -> IntArray:
        """Codes of the groups of the outer level, in rising order."""
        return self.nesting.outer

    def log_likelihoods(self, points: Points) -> Array:
        """Integrated log-likelihood of each point, (n,)."""
        totals = self.form.of_rows(points, gradient=False).log_likelihoods
        for given in self._given(points):
            totals[given.points] += given.log_integrals.sum(axis=1)
        return totals

    def log_likelihoods_and_gradients(self, points: Points) -> tuple[Array, Derivatives]:
        """Integrated log-likelihood of each point, and its derivatives."""
        rows = self.form.of_rows(points, gradient=True)
        totals, by_beta, by_scale = rows.log_likelihoods, rows.coefficients, rows.log_scales
        assert by_beta is not None
        assert by_scale is not None
        squares = [np.zeros_like(cov) for cov in points.covs]  # Σ E uuᵀ and Σ E vvᵀ
        for given in self._given(points):
            at, (u, v), (of_outer, of_both) = given.points, given.means, given.covs
            both = np.concatenate([given.arrow.nesting.repeated(u), v])
            second = of_both + both[:, None] * both
            totals[at] += given.log_integrals.sum(axis=1)
            pulls, misfits = given.part.form.expectations(given.pulls, both, second)
            by_beta[at] -= given.precision[:, None] * pulls
            by_scale[at] += given.precision * misfits
            own = second[len(u) :, len(u) :]
            for sums, found in zip(squares, (of_outer + u[:, None] * u, own), strict=True):
                sums[at] += np.moveaxis(found.sum(axis=3), -1, 0)
        sizes = (self.nesting.n_outer, self.nesting.n_inner)
        levels = zip(points.covs, squares, sizes, strict=True)
        slopes = tuple(Prior.of(cov).slopes(sums, size) for cov, sums, size in levels)
        return totals, Derivatives(by_beta, by_scale, slopes)

    def moments(self, points: Points) -> tuple[Moments, Moments]:
        """Moments of the coefficients of all groups, summed over the points, about 0."""
        q, q_inner = (cov.shape[1] for cov in points.covs)
        outer = np.zeros((3, q, self.nesting.n_outer))
        inner = np.zeros((3, q_inner, self.nesting.n_inner))
        for given in self._given(points):
            (u, v), (of_outer, of_both) = given.means, given.covs
            var, var_inner = (np.einsum("iipg->ipg", cov) for cov in (of_outer, of_both[q:, q:]))
            outer[..., given.part.outer] += normal_moments(u, var).sum(axis=2)
            inner[..., given.part.inner] += normal_moments(v, var_inner).sum(axis=2)
        return self.nesting.moments(np.moveaxis(outer, 1, 2), np.moveaxis(inner, 1, 2))

    def draws(
        self, points: Points, codes: IntArray, uniforms: LevelUniforms
    ) -> tuple[tuple[IntArray, Array], ...]:
        """A draw for each point of u of some groups, and of v of all groups within them."""
        some = self._of_groups(codes)
        nesting = some.nesting
        normals = [
            np.moveaxis(ndtri(uniforms(i, level)), 2, 0)
            for i, level in enumerate((nesting.outer, nesting.inner))
        ]
        draws = [np.empty_like(numbers) for numbers in normals]
        for given in some._given(points):
            places = [
                (slice(None), given.points, of) for of in (given.part.outer, given.part.inner)
            ]
            noise = [numbers[at] for numbers, at in zip(normals, places, strict=True)]
            for drawn, at, found in zip(draws, places, _drawn(given, *noise), strict=True):
                drawn[at] = found
        u, v = (np.moveaxis(drawn, 0, 2) for drawn in draws)
        return (nesting.outer, u), (nesting.inner, v)

    def group_integrals(self, points: Points, codes: IntArray) -> Array:
        """Logarithms of the integrals of some outer groups, (n, m), without what is outside."""
        integrals = np.empty((len(points.betas), len(codes)))
        for given in self._of_groups(codes)._given(points):
            integrals[given.points, given.part.outer] = given.log_integrals
        return integrals

    def _of_groups(self, codes: IntArray) -> "NestedClosedForm":
        outer = np.searchsorted(self.nesting.outer, np.sort(codes))
        inner = self.nesting.inner_of(outer)
        return NestedClosedForm(self.nesting.of_outer(outer), self.form.of_groups(inner))

    @cached_property
    def _parts(self) -> list[_Part]:
        """Outer groups, as many at a time as fit into the cache with what lies within them."""
        weights = np.ones(self.nesting.n_inner)
        return [
            _Part(
                outer,
                inner := self.nesting.inner_of(outer),
                self.nesting.of_outer(outer),
                self.form.of_groups(inner),
            )
            for outer in self.nesting.parts(weights, _GROUPS)
        ]

    def _given(self, points: Points) -> Iterator[_Given]:
        for part in self._parts:
            for at in parts(len(points.betas), part.form.squares.size):
                yield _given(part, points, at)


def _given(part: _Part, points: Points, at: slice) -> _Given:
    form, precision = part.form, np.exp(-2 * points.log_scales[at])
    pulls, scale = form.pulls(points.betas[at]), precision[:, None]
    first, second = (Prior.of(cov[at]) for cov in points.covs)
    zeros = np.zeros((len(first.precision), 1, 1)), np.zeros((len(second.precision), 1, 1))
    curvatures = form.squares[:, :, None] * scale
    found = arrow(pulls * scale, curvatures, part.nesting, (first, second), zeros)
    within = part.nesting.summed(_log_integrals(found.inner, second))
    integrals = _log_integrals(found.outer, first) + within
    return _Given(part, at, precision, pulls, found, integrals)


def _log_integrals(side: Side, prior: Prior) -> Array:
    """log ∫ exp(gᵀz - zᵀHz/2) p(z) dz over one level, (n_points, groups), without zᵀΣ⁻¹z."""
    gain = 0.5 * sum(part**2 for part in whitened(side.upper, side.slopes))
    log_root = prior.log_constant + 0.5 * len(prior.precision) * np.log(2 * np.pi)
    return np.asarray(gain + side.log_det + log_root[:, None])


def _drawn(given: _Given, outer_noise: Array, inner_noise: Array) -> tuple[Array, Array]:
    """Draws of u, and of v given u, from normal numbers."""
    (u, v), found = given.means, given.arrow
    moved = np.stack(coloured(found.outer.upper, outer_noise))
    own = np.stack(coloured(found.inner.upper, inner_noise))
    return u + moved, v + found.tilted(moved) + own


def in_closed_form(tables: Tables) -> ClosedForm | NestedClosedForm:
    """A shard of a linear regression with one level of groups or two, reduced."""
    seen, varying, groups = tables
    if len(groups) > 1:
        return NestedClosedForm.of(tables)
    return ClosedForm.of(seen, varying[0], groups[0])
