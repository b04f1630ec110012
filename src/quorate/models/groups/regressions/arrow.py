"""Normal distributions of the parameters of two levels of groups that nest.

Let z be u of an outer group and v_b of the inner groups within it, and its log density
gᵀz - zᵀHz/2. The inner groups know of each other only through u, so H has the form of an arrow.
With W_b = H_vv⁻¹ H_vu of inner group b,

    v_b given u ~ N(H_vv⁻¹ g_v - W_b u, H_vv⁻¹),
    u ~ N(C (g_u - Σ_b W_bᵀ g_v), C),    C⁻¹ = H_uu - Σ_b H_uv W_b.
"""

from typing import Any, NamedTuple

import numpy as np

from quorate._types import Array, BoolArray
from quorate.models.groups.nesting import Nesting
from quorate.models.groups.quadrature import length_of, newton_step, solved, spread
from quorate.models.groups.regressions.integrals import Prior, put


class Side(NamedTuple):
    """One level. The inner groups are integrated out of that of the outer ones."""

    slopes: list[Array]  # g, (n_points, groups) each
    distance: Array  # of the centre from 0, in standard deviations, (n_points, groups)
    upper: list[list[Array]]  # U with U Uᵀ = H⁻¹
    log_det: Array  # log det U

    def step(self, longest: float) -> tuple[Array, Array]:
        """A Newton step, at most so many standard deviations long, or as far as it is to 0.

        Also how long it is at each point at most, before it is shortened, (n_points,).
        """
        step, length = newton_step(self.upper, self.slopes, np.maximum(longest, self.distance))
        return np.stack(step), np.asarray(length.max(axis=1))

    def put(self, points: BoolArray, nearer: "Side") -> None:
        """Replace what places nodes at some of the points."""
        put(self.upper, points, nearer.upper)
        self.log_det[points] = nearer.log_det


class Arrow(NamedTuple):
    """Blocks of both levels, and the block that connects them."""

    nesting: Nesting
    outer: Side
    inner: Side
    tilts: Array  # W, (q of the inner level, q of the outer, n_points, n_inner)

    def tilted(self, outer: Array) -> Array:
        """-W u, for u (q, ..., n_points, n_outer): how it moves the means of inner groups."""
        moved = np.einsum("ijpb,j...pb->i...pb", self.tilts, self.nesting.repeated(outer))
        return np.asarray(-moved)

    def step(self, longest: float) -> tuple[Array, Array, Array]:
        """A Newton step in u and in v, and its length. For `longest` see `Side.step`."""
        outer, length = self.outer.step(longest)
        inner, own = self.inner.step(longest)
        return outer, inner + self.tilted(outer), np.maximum(length, own)

    def put(self, points: BoolArray, nearer: "Arrow") -> None:
        """Replace what places nodes at some of the points."""
        self.outer.put(points, nearer.outer)
        self.inner.put(points, nearer.inner)
        self.tilts[:, :, points] = nearer.tilts


def arrow(
    slopes: Any,
    curvatures: Any,
    nesting: Nesting,
    priors: tuple[Prior, Prior],
    centres: tuple[Array, Array],
) -> Arrow:
    """Eliminate the inner groups.

    Parameters
    ----------
    slopes, curvatures
        Of the log-likelihood of the rows of each inner group, in u and v together: `slopes[i]` and
        `curvatures[i][j]`, of which only i >= j is read, are (n_points, n_inner).
    priors
        Of both levels, outer level first.
    centres
        Where slopes are taken: u (q, n_points, n_outer) and v (q, n_points, n_inner).
    """
    of_outer, of_inner = (prior.precision[..., None] for prior in priors)
    u, v = centres
    q, q_inner = len(of_outer), len(of_inner)
    lower = [row[q:] for row in curvatures[q:]]
    cross = [row[:q] for row in curvatures[q:]]
    inner = _side([slopes[q + i] for i in range(q_inner)], lower, of_inner, v)
    columns = [solved(inner.upper, [row[j] for row in cross]) for j in range(q)]
    tilts = np.array([[columns[j][i] for j in range(q)] for i in range(q_inner)])

    def left(i: int, values: Array, others: list[Array]) -> Array:
        gone = sum(tilts[k, i] * others[k] for k in range(q_inner))
        return nesting.summed(values - gone)

    outer_slopes = [left(i, slopes[i], inner.slopes) for i in range(q)]
    outer_curvatures = [
        [left(i, curvatures[i][j], [row[j] for row in cross]) for j in range(i + 1)]
        for i in range(q)
    ]
    return Arrow(nesting, _side(outer_slopes, outer_curvatures, of_outer, u), inner, tilts)


def _side(slopes: list[Array], curvatures: Any, precision: Array, centre: Array) -> Side:
    """Add the prior to the log-likelihood of one level."""
    q = len(precision)
    pulled = [slopes[i] - sum(precision[i, j] * centre[j] for j in range(q)) for i in range(q)]
    bent = [[curvatures[i][j] + precision[i, j] for j in range(i + 1)] for i in range(q)]
    return Side(pulled, length_of(bent, centre), *spread(bent))
