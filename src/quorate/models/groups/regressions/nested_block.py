"""Some outer groups with the groups within them: their integrals by nodes within nodes.

At a point φ, Newton steps in u and v together lead from anchors to a centre. Nodes u_k are placed
there by the curvature that is left when v is integrated out. Given u_k, the inner groups are
independent of each other, so each has nodes of its own, whose Newton steps start from the centre as
u_k moves it. A pair of a node u_k and a point is thus one more point for the inner groups.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from quorate._types import Array, IntArray
from quorate.models.groups.accuracy import Effort
from quorate.models.groups.local import independence_draws
from quorate.models.groups.nesting import Nesting
from quorate.models.groups.quadrature import Places, rule_of
from quorate.models.groups.regressions.arrow import Arrow, arrow
from quorate.models.groups.regressions.chunks import Chunk, chunks, mean_and_factor
from quorate.models.groups.regressions.integrals import (
    LONGEST_STEP,
    MOST_STEPS,
    SHORT_STEP,
    Nodes,
    Prior,
    add_quadratic,
    damping,
    over_rows,
)
from quorate.models.groups.regressions.points import Points
from quorate.models.groups.regressions.rows import GroupedRows
from quorate.models.regressions.family import Family


class Centre(NamedTuple):
    """Where nodes are placed, for each group at each point."""

    outer: Array  # u, (q, n_points, n_outer)
    inner: Array  # v, (q_inner, n_points, n_inner)
    arrow: Arrow


Inner = Iterator[tuple[Chunk, Nodes]]  # nodes of some inner groups at some pairs of node and point


@dataclass(frozen=True)
class Block:
    """The rows of some outer groups, arranged by inner group."""

    family: Family
    nesting: Nesting
    rows: GroupedRows  # `codes` are positions in `nesting.inner`
    by_response: Array  # Zᵀy of outer groups, (q, n_outer)
    anchors: tuple[Array, Array]  # where Newton steps start, (q, n_outer) and (q_inner, n_inner)

    def of_outer(self, outer: IntArray) -> "Block":
        """Outer groups at these positions, in rising order, and what lies within them."""
        inner = self.nesting.inner_of(outer)
        some = self.rows.of_groups(inner)
        return replace(
            self,
            nesting=self.nesting.of_outer(outer),
            rows=replace(some, codes=np.arange(len(inner))),
            by_response=self.by_response[:, outer],
            anchors=(self.anchors[0][:, outer], self.anchors[1][:, inner]),
        )

    def anchored_at(self, point: Points, n_steps: int) -> "Block":
        """A copy of this block with anchors at the modes of groups at one point."""
        found = self.centre(point, n_steps)
        return replace(self, anchors=(found.outer[:, 0], found.inner[:, 0]))

    def centre(self, points: Points, n_steps: int) -> Centre:
        """The joint mode of u and v, after some Newton steps from the anchors.

        As for one level, more steps follow at points where the last one was long.
        """
        u, v = (np.repeat(each[:, None], len(points.betas), axis=1) for each in self.anchors)
        for _ in range(n_steps):
            u, v, found, length = self._stepped(points, u, v)
        far = length > SHORT_STEP
        for step in range(MOST_STEPS):
            if not far.any():
                break
            u[:, far], v[:, far], nearer, length = self._stepped(
                points.part(far), u[:, far], v[:, far], damping(step)
            )
            found.put(far, nearer)
            far[far] = length > SHORT_STEP
        return Centre(u, v, found)

    def _stepped(
        self, points: Points, u: Array, v: Array, factor: float = 1.0
    ) -> tuple[Array, Array, Arrow, Array]:
        """u and v after a Newton step, the curvature before it, and its length (n_points,)."""
        priors = Prior.of(points.covs[0]), Prior.of(points.covs[1])
        slopes, curvatures = self._derivatives(points, u, v)
        found = arrow(slopes, curvatures, self.nesting, priors, (u, v))
        outer, inner, length = found.step(factor * LONGEST_STEP)
        return u + outer, v + inner, found, length

    def _derivatives(self, points: Points, u: Array, v: Array) -> tuple[Array, Array]:
        """Slopes (Q, n_points, n_inner) and curvatures (Q, Q, n_points, n_inner) of rows."""
        q_all, shape = len(u) + len(v), v.shape[1:]
        slopes, curvatures = np.empty((q_all, *shape)), np.empty((q_all, q_all, *shape))
        shifts, flat = self.nesting.repeated(u), points.of_inner(1)
        for chunk in chunks(self.family, self.rows, flat, v, 1, shifts):
            bundle, at = chunk.bundle, chunk.points
            both = np.concatenate([bundle.outer, bundle.varying], axis=1)
            of_rows = chunk.rows.slopes_and_curvatures(chunk.anchors)
            some, bends = over_rows(of_rows, both, q_all)
            for i in range(q_all):
                slopes[i][at, bundle.which] = some[i]
                for j in range(i + 1):
                    curvatures[i, j][at, bundle.which] = bends[i][j]
        return slopes, curvatures

    def outer_nodes(self, centre: Centre, n_nodes: int) -> tuple[Places, Array]:
        """Where the nodes u are, and logarithms of their weights, (m, n_points, n_outer)."""
        side = centre.arrow.outer
        rule = rule_of(n_nodes, len(centre.outer))
        log_weights = side.log_det + rule.log_weights[:, None, None]
        return Places(centre.outer, side.upper, rule), log_weights

    def inner_nodes(self, points: Points, centre: Centre, u: Array, effort: Effort) -> Inner:
        """Nodes of all inner groups, given u (q, m, n_points, n_outer) of the outer ones.

        Pairs of a node u_k and a point are the points of these chunks, node by node.
        """
        for chunk in self.chunks(points, centre, u, effort):
            yield chunk, chunk.nodes(effort)

    def chunks(self, points: Points, centre: Centre, u: Array, effort: Effort) -> Iterator[Chunk]:
        """The rows of all inner groups at all pairs of a node u_k and a point."""
        n_pairs = u.shape[1] * u.shape[2]
        moved = centre.arrow.tilted(u - centre.outer[:, None])
        anchors = (centre.inner[:, None] + moved).reshape(len(moved), n_pairs, -1)
        shifts = self.nesting.repeated(u).reshape(len(u), n_pairs, -1)
        pairs = points.of_inner(u.shape[1])
        return chunks(self.family, self.rows, pairs, anchors, effort.n_nodes, shifts)

    def log_joint(self, points: Points, u: Array, inner: Inner) -> Array:
        """log p(u|φ) p(rows|u, φ) at u (q, m, n_points, n_outer), from the inner nodes there."""
        shape = u.shape[1:]
        within = np.empty((shape[0] * shape[1], self.nesting.n_inner))
        for chunk, nodes in inner:
            within[chunk.points, chunk.bundle.which] = nodes.log_integrals
        prior = Prior.of(points.covs[0])
        values = self.nesting.summed(within).reshape(shape) + prior.log_constant[:, None]
        return add_quadratic(values, prior, self.by_response, u)

    def draws(
        self, points: Points, effort: Effort, uniforms: Array, of_inner: Array
    ) -> tuple[Array, Array]:
        """Draws of u, with v integrated out, and of v given u: (n_points, groups, q) each."""
        centre = self.centre(points, effort.n_steps)
        outer_places, log_weights = self.outer_nodes(centre, effort.n_nodes)
        u = outer_places.local
        terms = self.log_joint(points, u, self.inner_nodes(points, centre, u, effort))

        def joint(z: Array) -> Array:
            at = np.moveaxis(z, 2, 0)[:, None]
            inner = self.inner_nodes(points, centre, at, effort)
            return np.asarray(self.log_joint(points, at, inner)[0])

        placed = mean_and_factor(Nodes(outer_places, terms + log_weights))
        outer = independence_draws(joint, *placed, uniforms)
        inner = np.empty((*of_inner.shape[:2], len(centre.inner)))
        for chunk in self.chunks(points, centre, np.moveaxis(outer, 2, 0)[:, None], effort):
            at = (chunk.points, chunk.bundle.which)
            inner[at] = chunk.draws(effort, of_inner[at])
        return outer, inner
