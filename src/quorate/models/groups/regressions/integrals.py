"""The integrated likelihood of groups, by nodes that are placed for every group and point.

At a point φ, some Newton steps lead from an anchor, which depends on the shard only, to the centre
of the nodes of each group. So the result is a function of φ and the shard alone. Its
gradient is the mean of the gradient at the nodes (differentiation under the integral).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from quorate._types import Array, BoolArray
from quorate.models.groups.accuracy import Effort
from quorate.models.groups.quadrature import (
    Places,
    length_of,
    newton_step,
    rule_of,
    spread,
    whitened,
)
from quorate.models.groups.regressions.kernels import Rows

LONGEST_STEP = 4.0  # standard deviations; if it is further to 0, the centre of the prior, that far
SHORT_STEP = 1.0  # after which the centre is near enough for nodes
MOST_STEPS = 40
_FREE_STEPS, _DAMPING = 20, 0.7
_NO_STEP = 1e-9  # after which the next one is lost in rounding


class Prior(NamedTuple):
    """Normal priors of the parameters of a group, at each point."""

    precision: Array  # (q, q, n_points)
    log_constant: Array  # (n_points,), of the density

    @classmethod
    def of(cls, cov: Array) -> "Prior":
        """Priors with covariances (n_points, q, q)."""
        q = cov.shape[1]
        upper, log_det = spread(np.moveaxis(cov, 0, -1))
        zero = np.zeros(len(cov))
        whole = np.array([[upper[i][j] + zero for j in range(q)] for i in range(q)])
        precision = np.einsum("ikp,jkp->ijp", whole, whole)
        return cls(precision, log_det - 0.5 * q * np.log(2 * np.pi))

    def at(self, points: slice | BoolArray) -> "Prior":
        """Priors at some of the points."""
        return Prior(self.precision[..., points], self.log_constant[points])

    def slopes(self, moments: Array, n_groups: int) -> Array:
        """Derivatives in Σ of Σ_g E log p(z_g|Σ), where `moments` are Σ_g E[z zᵀ].

        Both are (n_points, q, q).
        """
        inverse = np.moveaxis(self.precision, -1, 0)
        return np.asarray(0.5 * (inverse @ moments @ inverse - n_groups * inverse))


@dataclass(frozen=True)
class Nodes:
    """Nodes of some groups at some points, with the joint log density there."""

    places: Places
    log_terms: Array  # (m, n_points, g), whose exponentials sum to the integral

    @cached_property
    def local(self) -> Array:
        """z at the nodes, (q, m, n_points, g)."""
        return self.places.local

    @property
    def log_integrals(self) -> Array:
        """log ∫ of each group at each point, (n_points, g)."""
        terms, top = self._terms
        return np.asarray(top + np.log(terms.sum(axis=0)))

    @property
    def shares(self) -> Array:
        """Share of each node in its integral, (m, n_points, g): the posterior of z given φ."""
        terms, _ = self._terms
        return np.asarray(terms / terms.sum(axis=0))

    @cached_property
    def _terms(self) -> tuple[Array, Array]:
        """Terms that sum to the integrals, divided by the largest, and the logarithm of that."""
        top = self.log_terms.max(axis=0)
        top = np.where(np.isfinite(top), top, 0.0)
        terms = self.log_terms - top
        return np.exp(terms, out=terms), top


def nodes(rows: Rows, prior: Prior, anchors: Array, effort: Effort) -> Nodes:
    """Place nodes for groups, and evaluate the joint density there.

    Anchors are (q, n_points, g), or (q, 1, g) if they are the same for all points.
    """
    centre, upper, log_det = placed(rows, prior, anchors, effort.n_steps)
    places = Places(centre, upper, rule_of(effort.n_nodes, len(anchors)))
    terms = _quadratic(prior, rows.response_by_parameter, places, log_det)
    terms -= rows.sums(rows.at_places(places))
    return Nodes(places, terms)


def _quadratic(prior: Prior, response: Array, places: Places, log_det: Array) -> Array:
    """Terms of nodes (m, n_points, g) but for those of rows: log w + log p(z|φ) + Zᵀy z.

    They are a quadratic function of t, where z = c + Ut; `response` is Zᵀy (q, g).
    """
    centre, upper, rule = places
    q = len(centre)
    precision = prior.precision[..., None]
    pulls = [response[i] - sum(precision[i, j] * centre[j] for j in range(q)) for i in range(q)]
    level = prior.log_constant[:, None] + log_det
    for c, by_parameter, pull in zip(centre, response, pulls, strict=True):
        level = level + 0.5 * c * (by_parameter + pull)
    bends = []
    for i, column in enumerate(_columns(upper)):
        along = [sum(precision[k, j] * column[j] for j in range(i + 1)) for k in range(q)]
        for j, other in enumerate(_columns(upper)):
            if j >= i:
                bend = sum(other[k] * along[k] for k in range(j + 1))
                bends.append(-0.5 * bend if i == j else -bend)
    coefficients = np.stack([np.ones_like(level), level, *whitened(upper, pulls), *bends])
    values = rule.basis @ coefficients.reshape(len(coefficients), -1)
    return np.asarray(values.reshape(len(values), *level.shape))


def _columns(upper: list[list[Array]]) -> list[list[Array]]:
    """The columns of U above its diagonal, with it."""
    return [[upper[i][j] for i in range(j + 1)] for j in range(len(upper))]


def placed(
    rows: Rows, prior: Prior, anchors: Array, n_steps: int
) -> tuple[Array, list[list[Array]], Array]:
    """Centres (q, n_points, g) after some Newton steps, and U with log det U (n_points, g).

    Groups whose last step was long take more of them. Nodes in the wrong place would make the
    integral of a point far out too large as well as too small.
    """
    centre = anchors
    for _ in range(n_steps):
        centre, upper, log_det, length = _stepped(rows, prior, centre)
        if length.max(initial=0.0) < _NO_STEP:
            break
    far = length > SHORT_STEP
    for step in range(MOST_STEPS):
        at = np.asarray(far.any(axis=1))
        if not at.any():
            break
        moving = far[at]
        nearer, tighter, new_log_det, length = _stepped(
            rows.at(at), prior.at(at), centre[:, at], damping(step)
        )
        centre[:, at] = np.where(moving, nearer, centre[:, at])
        log_det[at] = np.where(moving, new_log_det, log_det[at])
        put(upper, at, tighter, moving)
        far[at] = moving & (length > SHORT_STEP)
    return centre, upper, log_det


def damping(step: int) -> float:
    """What the longest step is multiplied by, after `step` additional ones.

    Far from its mode, a group of few rows is as flat as its prior: Newton steps of full length
    would jump to and fro over the mode.
    """
    return float(_DAMPING ** max(step - _FREE_STEPS, 0))


def put(
    upper: list[list[Array]],
    points: BoolArray,
    nearer: list[list[Array]],
    groups: BoolArray | bool = True,
) -> None:
    """Replace U at some of the points, for all groups or some at each point."""
    for i, row in enumerate(nearer):
        for j in range(i, len(nearer)):
            upper[i][j][points] = np.where(groups, row[j], upper[i][j][points])


def _stepped(
    rows: Rows, prior: Prior, centre: Array, factor: float = 1.0
) -> tuple[Array, list[list[Array]], Array, Array]:
    """Centres after a Newton step, with U and log det U before it, and the length of the step."""
    slopes, curvatures = _derivatives(rows, prior, centre)
    upper, log_det = spread(curvatures)
    longest = factor * np.maximum(LONGEST_STEP, length_of(curvatures, centre))
    step, length = newton_step(upper, slopes, longest)
    return centre + np.stack(step), upper, log_det, length


def log_joint(rows: Rows, prior: Prior, local: Array) -> Array:
    """log p(z|φ) p(rows|z, φ) at `local` (q, m, n_points, g), without terms linear in Xβ."""
    values = prior.log_constant[:, None] - rows.sums(rows.at_local(local))
    return add_quadratic(values, prior, rows.response_by_parameter, local)


def add_quadratic(values: Array, prior: Prior, response: Array, local: Array) -> Array:
    """Add Zᵀy z - zᵀΣ⁻¹z/2 to `values` in place, at `local` (q, m, n_points, g).

    `response` is Zᵀy (q, g).
    """
    for i, by_parameter in enumerate(response):
        pull = by_parameter - (0.5 * prior.precision[i, i][:, None]) * local[i]
        for j in range(i):
            pull -= prior.precision[i, j][:, None] * local[j]
        pull *= local[i]
        values += pull
    return values


def _derivatives(rows: Rows, prior: Prior, centre: Array) -> tuple[list[Array], list[list[Array]]]:
    """Gradient and curvature of the joint log density in z, at `centre` (q, n_points, g)."""
    slopes, curvatures = over_rows(rows.slopes_and_curvatures(centre), rows.varying, len(centre))
    precision = prior.precision[..., None]
    for i, row in enumerate(curvatures):
        slopes[i] = slopes[i] - sum(precision[i, j] * centre[j] for j in range(len(centre)))
        for j in range(i + 1):
            row[j] = row[j] + precision[i, j]
    return slopes, curvatures


def over_rows(
    derivatives: tuple[Array, Array], varying: Array | None, q: int
) -> tuple[list[Array], list[list[Array]]]:
    """Gradient and curvature in the parameters of groups, from those of each row in η.

    Derivatives are (size, n_points, g), and `varying` (size, q, g) is None for a single column of
    ones. Results are (n_points, g); of the curvature only the lower triangle.
    """
    slopes, curvatures = derivatives
    return (
        [_summed(slopes, varying, i) for i in range(q)],
        [[_summed(curvatures, varying, i, j) for j in range(i + 1)] for i in range(q)],
    )


def _summed(values: Array, varying: Array | None, *parameters: int) -> Array:
    """Sums of values (size, n_points, g) over rows, each times its columns of Z: (n_points, g)."""
    if varying is None:
        return np.asarray(values.sum(axis=0))
    first, *others = (varying[:, j] for j in parameters)
    weights = first * others[0] if others else first
    return np.asarray(np.einsum("spg,sg->pg", values, weights))
