"""The integrated likelihood of groups, by nodes that are placed for every group and point.

At a point φ, some Newton steps lead from an anchor, which depends on the shard only, to the centre
of the nodes of each group. So the result is a function of φ and the shard, whoever computes it. Its
gradient is the mean of the gradient at the nodes (differentiation under the integral).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quorate._types import Array
from quorate.models.groups.accuracy import Effort
from quorate.models.groups.kernels import Rows
from quorate.models.groups.quadrature import Rule, gauss_hermite, newton_step, spread

_ENTRIES = 65_536  # of groups, rows, nodes and points at a time: half a megabyte
_LONGEST_STEP = 4.0  # standard deviations


class Prior(NamedTuple):
    """Normal priors of the parameters of a group, at each point."""

    precision: Array  # (q, q, n_points)
    log_constant: Array  # (n_points,), of the density

    @classmethod
    def of(cls, cov: Array) -> "Prior":
        """From covariances (n_points, q, q)."""
        q = cov.shape[1]
        upper, log_det = spread(np.moveaxis(cov, 0, -1))
        zero = np.zeros(len(cov))
        whole = np.array([[upper[i][j] + zero for j in range(q)] for i in range(q)])
        precision = np.einsum("ikp,jkp->ijp", whole, whole)
        return cls(precision, log_det - 0.5 * q * np.log(2 * np.pi))

    def slopes(self, moments: Array, n_groups: int) -> Array:
        """Derivatives in Σ of Σ_g E log p(z_g|Σ), where `moments` are Σ_g E[z zᵀ].

        Both are (n_points, q, q).
        """
        inverse = np.moveaxis(self.precision, -1, 0)
        return np.asarray(0.5 * (inverse @ moments @ inverse - n_groups * inverse))


@dataclass(frozen=True)
class Nodes:
    """Nodes of some groups at some points, with the joint log density there."""

    local: Array  # (q, g, m, n_points)
    log_terms: Array  # (g, m, n_points), whose exponentials sum to the integral

    @property
    def log_integrals(self) -> Array:
        """log ∫ of each group at each point, (g, n_points)."""
        top = self._top
        return np.asarray(top[:, 0] + np.log(np.exp(self.log_terms - top).sum(axis=1)))

    @property
    def shares(self) -> Array:
        """Share of each node in its integral, (g, m, n_points): the posterior of z given φ."""
        terms = np.exp(self.log_terms - self._top)
        return np.asarray(terms / terms.sum(axis=1, keepdims=True))

    @property
    def _top(self) -> Array:
        top = self.log_terms.max(axis=1, keepdims=True)
        return np.asarray(np.where(np.isfinite(top), top, 0.0))


def nodes(rows: Rows, prior: Prior, anchors: Array, effort: Effort) -> Nodes:
    """Place nodes for groups whose anchors are (q, g), and evaluate the joint density there."""
    rule = gauss_hermite(effort.n_nodes, len(anchors))
    centre, upper, log_det = placed(rows, prior, anchors, effort.n_steps)
    local = _at_nodes(centre, upper, rule)
    terms = log_joint(rows, prior, local)
    terms += log_det[:, None] + rule.log_weights[:, None]
    return Nodes(local, terms)


def placed(
    rows: Rows, prior: Prior, anchors: Array, n_steps: int
) -> tuple[Array, list[list[Array]], Array]:
    """Centres (q, g, n_points) after some Newton steps, and U with log det U (g, n_points)."""
    n_points = prior.log_constant.shape[0]
    centre = np.repeat(anchors[:, :, None], n_points, axis=2)
    for _ in range(n_steps):
        slopes, curvatures = _derivatives(rows, prior, centre)
        upper, log_det = spread(curvatures)
        centre = centre + np.stack(newton_step(upper, slopes, _LONGEST_STEP))
    return centre, upper, log_det


def log_joint(rows: Rows, prior: Prior, local: Array) -> Array:
    """log p(z|φ) p(rows|z, φ) at `local` (q, g, m, n_points), without terms linear in Xβ."""
    values = -rows.sums(local)
    for i, by_parameter in enumerate(rows.response_by_parameter()):
        pull = by_parameter[:, None, None] - 0.5 * prior.precision[i, i] * local[i]
        for j in range(i):
            pull -= prior.precision[i, j] * local[j]
        values += pull * local[i]
    values += prior.log_constant
    return values


def _derivatives(rows: Rows, prior: Prior, centre: Array) -> tuple[list[Array], list[list[Array]]]:
    """Gradient and curvature of the joint log density in z, at `centre` (q, g, n_points)."""
    row_slopes, row_curvatures = rows.slopes_and_curvatures(centre)
    q, varying = len(centre), rows.varying
    slopes, curvatures = [], []
    for i in range(q):
        pull = sum(prior.precision[i, j] * centre[j] for j in range(q))
        slopes.append(_over_rows(row_slopes, None if varying is None else varying[:, :, i]) - pull)
        weights = [
            None if varying is None else varying[:, :, i] * varying[:, :, j] for j in range(i + 1)
        ]
        curvatures.append(
            [
                _over_rows(row_curvatures, weight) + prior.precision[i, j]
                for j, weight in enumerate(weights)
            ]
        )
    return slopes, curvatures


def _over_rows(values: Array, weights: Array | None) -> Array:
    """Sums over the rows of each group, of values (g, size, n_points)."""
    if weights is None:
        return np.asarray(values.sum(axis=1))
    return np.asarray(np.einsum("gsp,gs->gp", values, weights))


def _at_nodes(centre: Array, upper: list[list[Array]], rule: Rule) -> Array:
    """z at the nodes, (q, g, m, n_points)."""
    q = len(centre)
    local = np.repeat(centre[:, :, None], len(rule.nodes), axis=2)
    for i in range(q):
        for j in range(i, q):
            local[i] += upper[i][j][:, None] * rule.nodes[:, j, None]
    return local


def chunks(n_groups: int, size: int, n_points: int, n_nodes: int) -> Iterator[tuple[slice, slice]]:
    """Slices of groups and of points that fit into the cache together."""
    points_at_once = max(1, min(n_points, _ENTRIES // (size * n_nodes)))
    groups_at_once = max(1, _ENTRIES // (size * n_nodes * points_at_once))
    for point in range(0, n_points, points_at_once):
        for group in range(0, n_groups, groups_at_once):
            yield slice(group, group + groups_at_once), slice(point, point + points_at_once)
