"""Rows of groups at points, as many at a time as fit into the cache, and sums over them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from quorate._types import Array
from quorate.models.groups.accuracy import Effort
from quorate.models.groups.local import independence_draws
from quorate.models.groups.quadrature import rule_of
from quorate.models.groups.regressions.integrals import Nodes, Prior, log_joint, nodes
from quorate.models.groups.regressions.kernels import Rows, parts
from quorate.models.groups.regressions.points import Points
from quorate.models.groups.regressions.rows import Bundle, GroupedRows
from quorate.models.groups.regressions.rows_at_points import rows_of
from quorate.models.many_points import rising
from quorate.models.observed import Observed
from quorate.models.regressions.family import Family


class Chunk(NamedTuple):
    """Rows of some groups at some points."""

    bundle: Bundle
    rows: Rows
    prior: Prior
    anchors: Array  # (q, n_points, g), or (q, 1, g) if they are the same for all points
    points: slice

    def nodes(self, effort: Effort) -> Nodes:
        """Nodes of these groups, with the joint density there."""
        return nodes(self.rows, self.prior, self.anchors, effort)

    def draws(self, effort: Effort, uniforms: Array) -> Array:
        """Draws (n_points, g, q) of z given φ, from uniforms (n_points, g, k)."""

        def joint(z: Array) -> Array:
            return np.asarray(log_joint(self.rows, self.prior, np.moveaxis(z, 2, 0)[:, None])[0])

        return independence_draws(joint, *mean_and_factor(self.nodes(effort)), uniforms)


class Outside(NamedTuple):
    """What log-likelihoods have beside the integrals: terms without parameters of groups.

    `constant` and `above` are those of `quorate.models.regressions.families.Family.constants`.
    """

    constant: float
    above: Array | None
    response_by_column: Array  # (p,), Xᵀy

    @classmethod
    def of(cls, family: Family, seen: Observed) -> "Outside":
        """Terms of the rows, whose responses are checked."""
        (constant, above), response = family.constants(seen), seen.weighted_response
        if seen.offset is not None:
            constant += float(response @ seen.offset)
        return cls(constant, above, response @ seen.columns)

    def values_and_slopes(self, points: Points) -> tuple[Array, Array]:
        """Sum of the terms at each point, and its slope in the log scale, (n,) each."""
        values, slopes = np.zeros((2, len(points.betas)))
        if self.above is not None:
            values, slopes = rising(self.above, points.log_scales)
        return values + self.constant + points.betas @ self.response_by_column, slopes


@dataclass(frozen=True)
class Sums:
    """Expectations over nodes that gradients are made of, at each of n points."""

    points: Points
    by_beta: Array  # (n, p)
    by_scale: Array  # (n,)
    squares: Array  # Σ E[z zᵀ], (n, q, q)

    @classmethod
    def none(cls, points: Points) -> "Sums":
        """Sums over no groups."""
        betas, scales, covs = points
        return cls(points, np.zeros_like(betas), np.zeros_like(scales), np.zeros_like(covs[-1]))

    def add(self, chunk: Chunk, nodes: Nodes, shares: Array) -> None:
        """Add some groups, from their nodes and the shares of these (m, n_points, g)."""
        at, rows = chunk.points, chunk.rows
        pulls, terms = rows.expectations(rows.at_places(nodes.places), shares)
        self.by_beta[at] -= np.tensordot(pulls, chunk.bundle.columns, axes=((0, 2), (0, 2)))
        if terms is not None:
            phi = np.exp(self.points.log_scales[at])
            self.by_scale[at] += pulls.sum(axis=(0, 2))
            self.by_scale[at] -= phi * np.einsum("spg,sg->p", terms, chunk.bundle.counts)
        self.squares[at] += squares(nodes.local, shares)


def chunks(
    family: Family,
    rows: GroupedRows,
    points: Points,
    anchors: Array,
    n_nodes: int,
    shifts: Array | None = None,
) -> Iterator[Chunk]:
    """All groups at all points, as many at a time as fit into the cache.

    Parameters
    ----------
    points
        They hold the covariances of the level of these groups only.
    anchors
        Shape (q, n_points, n_groups), or (q, 1, n_groups) if they are the same for all points.
    n_nodes
        In each dimension.
    shifts
        Parameters of the outer group that each group lies in, (q of the outer level, n_points,
        n_groups).
    """
    m = len(rule_of(n_nodes, len(anchors)).nodes)
    prior = Prior.of(points.covs[0])
    for bundle in rows.bundles:
        which = bundle.which
        for at in parts(len(points.betas), max(m, len(bundle.counts)) * len(which)):
            some = rows_of(family, bundle, points.part(at), rows.has_ones)
            yield Chunk(
                bundle,
                some if shifts is None else _shifted(some, bundle, shifts[:, at][..., which]),
                prior.at(at),
                (anchors if anchors.shape[1] == 1 else anchors[:, at])[..., which],
                at,
            )


def _shifted(rows: Rows, bundle: Bundle, shifts: Array) -> Rows:
    """The rows, with the parameters (q, n_points, g) of their outer groups in the offsets."""
    offsets = rows.offsets + sum(bundle.outer[:, j, None] * shift for j, shift in enumerate(shifts))
    return replace(rows, offsets=offsets)


def squares(local: Array, shares: Array) -> Array:
    """Σ E[z zᵀ] over groups, (n_points, q, q), from nodes (q, m, n_points, g) and their shares."""
    return np.asarray(np.einsum("impg,jmpg->pij", local * shares, local))


def mean_and_factor(found: Nodes) -> tuple[Array, Array]:
    """Means (n_points, g, q) of z given φ, and a factor of its covariances."""
    shares = found.shares
    mean = np.einsum("impg,mpg->pgi", found.local, shares)
    away = found.local - np.moveaxis(mean, 2, 0)[:, None]
    cov = np.einsum("impg,jmpg,mpg->pgij", away, away, shares)
    floor = 1e-12 * np.einsum("pgii->pg", cov)[..., None, None] * np.eye(cov.shape[-1])
    return mean, np.linalg.cholesky(cov + floor)


def summed_powers(found: Nodes, shares: Array, centres: Array) -> Array:
    """Sums over points of E (z - centre)^k for k = 1, 2, 3, (3, g, q); centres are (q, g)."""
    sums = np.empty((3, *centres.T.shape))
    for i, (local, centre) in enumerate(zip(found.local, centres, strict=True)):
        away = local - centre
        weighted = shares * away
        sums[0, :, i] = weighted.sum(axis=(0, 1))
        sums[1, :, i] = np.einsum("mpg,mpg->g", weighted, away)
        weighted *= away
        sums[2, :, i] = np.einsum("mpg,mpg->g", weighted, away)
    return sums
