"""Integrated likelihoods of regressions that are not Gaussian, group by group, by nodes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from quorate._types import Array, IntArray
from quorate.models.families import Family, Logistic, NegativeBinomial, Poisson
from quorate.models.groups.accuracy import Effort
from quorate.models.groups.integrals import Prior, log_joint, nodes, parts, placed
from quorate.models.groups.kernels import Rows, offsets_of
from quorate.models.groups.local import independence_draws
from quorate.models.groups.points import Derivatives, Points, RoughFit, pooled
from quorate.models.groups.quadrature import gauss_hermite
from quorate.models.groups.rows import Bundle, GroupedRows
from quorate.models.many_points import rising

_POOLED_STEPS = 6
_LONGEST_POOLED_STEP = 3.0  # in any coefficient
_LEAST_INFORMATION = 1e-2


class Chunk(NamedTuple):
    """Rows of some groups at some points."""

    bundle: Bundle
    rows: Rows
    prior: Prior
    anchors: Array  # (q, g)
    points: slice


@dataclass(frozen=True)
class ByNodes:
    """The rows of a shard, with what places the nodes of its groups.

    Parameters
    ----------
    constant, above
        See `quorate.models.families.Family.constants`.
    anchors
        Where Newton steps start, (q, n_groups).
    fit
        About the mode and covariance of the prior times the likelihood of the shard.
    """

    family: Family
    rows: GroupedRows
    constant: float
    above: Array | None
    anchors: Array
    effort: Effort
    fit: RoughFit | None = None

    def log_likelihoods(self, points: Points) -> Array:
        """Integrated log-likelihood of each point, (n,)."""
        totals = self._constants(points)[0]
        for chunk in self.chunks(points):
            found = nodes(chunk.rows, chunk.prior, chunk.anchors, self.effort)
            totals[chunk.points] += found.log_integrals.sum(axis=1)
        return totals

    def log_likelihoods_and_gradients(self, points: Points) -> tuple[Array, Derivatives]:
        """Integrated log-likelihood of each point, and its derivatives."""
        totals, by_scale = self._constants(points)
        by_beta = np.tile(self.rows.response_by_column, (len(totals), 1))
        moments = np.zeros_like(points.covs)  # Σ E[z zᵀ]
        for chunk in self.chunks(points):
            found = nodes(chunk.rows, chunk.prior, chunk.anchors, self.effort)
            shares, at = found.shares, chunk.points
            totals[at] += found.log_integrals.sum(axis=1)
            pulls, terms = chunk.rows.expectations(found.local, shares)
            by_beta[at] -= np.tensordot(pulls, chunk.bundle.columns, axes=((0, 2), (0, 2)))
            phi = np.exp(points.log_scales[at])
            by_scale[at] += pulls.sum(axis=(0, 2))
            by_scale[at] -= phi * np.einsum("spg,sg->p", terms, chunk.bundle.counts)
            moments[at] += np.einsum("impg,jmpg,mpg->pij", found.local, found.local, shares)
        slopes = Prior.of(points.covs).slopes(moments, self.rows.n_groups)
        return totals, Derivatives(by_beta, by_scale, slopes)

    @property
    def codes(self) -> IntArray:
        """Codes of the groups, in rising order."""
        return self.rows.codes

    @property
    def centres(self) -> Array:
        """Where moments are taken about, (q, n_groups)."""
        return self.anchors

    def moments(self, points: Points) -> Array:
        """Sums over points of E (z - centre)^k for k = 1, 2, 3, of each group, (3, n_groups, q)."""
        q, n_groups = self.anchors.shape
        sums = np.zeros((3, n_groups, q))
        for chunk in self.chunks(points):
            found = nodes(chunk.rows, chunk.prior, chunk.anchors, self.effort)
            away = found.local - chunk.anchors[:, None, None]
            weighted = np.broadcast_to(found.shares, away.shape)
            for k in range(3):
                weighted = weighted * away
                sums[k, chunk.bundle.which] += weighted.sum(axis=(1, 2)).T
        return sums

    def pooled_fit(self, start: Array) -> RoughFit:
        """A fit without groups, by a few steps of Newton's method from `start` (d,)."""
        p = len(self.rows.response_by_column)
        q = len(self.anchors)
        covs, scales = np.eye(q)[None], np.zeros(1)
        beta, information = start[:p], np.eye(p)
        for _ in range(_POOLED_STEPS):
            slope, information = np.zeros(p), _LEAST_INFORMATION * np.eye(p)
            for chunk in self.chunks(Points(beta[None], scales, covs)):
                nothing = np.zeros((q, 1, len(chunk.bundle.which)))
                slopes, bends = chunk.rows.slopes_and_curvatures(nothing)
                columns = chunk.bundle.columns
                slope += np.einsum("sg,spg->p", slopes[:, 0], columns)
                information += np.einsum(
                    "spg,sg,srg->pr", columns, bends[:, 0], columns, optimize=True
                )
            step = np.linalg.solve(information, slope)
            beta = beta + step * min(1.0, _LONGEST_POOLED_STEP / np.abs(step).max(initial=1e-300))
        return pooled(beta, information, start)

    def centres_at(self, points: Points, n_steps: int) -> Array:
        """Modes of z of all groups at one point, after so many Newton steps, (q, n_groups)."""
        centres = np.empty_like(self.anchors)
        for chunk in self.chunks(points):
            centre, _, _ = placed(chunk.rows, chunk.prior, chunk.anchors, n_steps)
            centres[:, chunk.bundle.which] = centre[:, 0]
        return centres

    def draws(self, points: Points, codes: IntArray, uniforms: Array) -> Array:
        """A draw of z of some groups for each point, (n, m, q), from uniforms (n, m, k)."""
        anchors = self.anchors[:, np.searchsorted(self.codes, codes)]
        some = replace(self, rows=self.rows.of_groups(codes), anchors=anchors)
        draws = np.empty((*uniforms.shape[:2], len(anchors)))
        for chunk in some.chunks(points):
            at = (chunk.points, chunk.bundle.which)
            draws[at] = _drawn(chunk, self.effort, uniforms[at])
        return draws

    def chunks(self, points: Points) -> Iterator[Chunk]:
        """All groups at all points, as many at a time as fit into the cache."""
        n_nodes = len(gauss_hermite(self.effort.n_nodes, len(self.anchors)).nodes)
        prior = Prior.of(points.covs)
        for bundle in self.rows.bundles:
            for at in parts(len(points.betas), bundle.counts.size * n_nodes):
                yield Chunk(
                    bundle,
                    self._rows(bundle, points.part(at)),
                    Prior(prior.precision[..., at], prior.log_constant[at]),
                    self.anchors[:, bundle.which],
                    at,
                )

    def _rows(self, bundle: Bundle, points: Points) -> Rows:
        return _KERNELS[type(self.family)](bundle, points, self.rows.is_intercept)

    def _constants(self, points: Points) -> tuple[Array, Array]:
        """The part of log-likelihoods without parameters of groups, and its slope in log φ."""
        values, slopes = np.zeros((2, len(points.betas)))
        if self.above is not None:
            values, slopes = rising(self.above, points.log_scales)
        return values + self.constant + points.betas @ self.rows.response_by_column, slopes


def _drawn(chunk: Chunk, effort: Effort, uniforms: Array) -> Array:
    """Draws (n_points, g, q) from the posterior of z given φ."""
    found = nodes(chunk.rows, chunk.prior, chunk.anchors, effort)
    mean = np.einsum("impg,mpg->pgi", found.local, found.shares)
    away = found.local - np.moveaxis(mean, 2, 0)[:, None]
    cov = np.einsum("impg,jmpg,mpg->pgij", away, away, found.shares)
    floor = 1e-12 * np.einsum("pgii->pg", cov)[..., None, None] * np.eye(cov.shape[-1])

    def joint(z: Array) -> Array:
        return np.asarray(log_joint(chunk.rows, chunk.prior, np.moveaxis(z, 2, 0)[:, None])[0])

    return independence_draws(joint, mean, np.linalg.cholesky(cov + floor), uniforms)


def _logistic(bundle: Bundle, points: Points, is_intercept: bool) -> Rows:
    offsets = offsets_of(bundle, points.betas)
    return Rows(
        "softplus",
        offsets,
        _for_each(offsets, bundle.counts),
        bundle.response,
        None if is_intercept else bundle.varying,
        count_once=bool((bundle.counts <= 1).all()),
    )


def _poisson(bundle: Bundle, points: Points, is_intercept: bool) -> Rows:
    offsets = offsets_of(bundle, points.betas)
    return Rows(
        "exponential",
        offsets,
        _for_each(offsets, bundle.counts),
        bundle.response,
        None if is_intercept else bundle.varying,
    )


def _negative_binomial(bundle: Bundle, points: Points, is_intercept: bool) -> Rows:
    phi = np.exp(points.log_scales)[:, None]
    return Rows(
        "softplus",
        offsets_of(bundle, points.betas) - points.log_scales[:, None],
        bundle.response[:, None] + bundle.counts[:, None] * phi,
        bundle.response,
        None if is_intercept else bundle.varying,
    )


def _for_each(offsets: Array, counts: Array) -> Array:
    """The counts of rows, repeated for each point."""
    return np.repeat(counts[:, None], offsets.shape[1], axis=1)


_KERNELS: Mapping[type, Callable[[Bundle, Points, bool], Rows]] = {
    Logistic: _logistic,
    Poisson: _poisson,
    NegativeBinomial: _negative_binomial,
}
