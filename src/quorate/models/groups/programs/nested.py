"""Programs with two levels of groups that nest: integrals within an integral.

Let u be the parameters of an outer group, and v_b those of the inner groups b within it. Then

    p(rows | x) = ∫ p(u | x) Π_b [ ∫ p(v_b | u, x) p(rows of b | u, v_b, x) dv_b ] du.

Given u, the inner groups are a single level, whose global parameters are x and u (`InnerProgram`).
The outer groups are a single level, too, whose log joint density adds up the logarithms of the
inner integrals (`OuterProgram`). Inner nodes are placed anew at every u. Their anchors move with u:
the unconstrained parameters of `InnerProgram` are w, where v = w + T (u - u₀).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array, IntArray
from quorate.models.arrays import AnyArray
from quorate.models.groups.levels import Level
from quorate.models.groups.nesting import Nesting
from quorate.models.groups.programs.anchors import unanchored
from quorate.models.groups.programs.backends import Backend
from quorate.models.groups.programs.integral import (
    Arguments,
    gradient,
    log_det,
    log_integrals,
    placed,
    searched,
)
from quorate.models.protocol import Shard
from quorate.models.rows import Ability, Seeds


class TwoLevels(Protocol):
    """A log joint density of x (d,), u (m, q) of outer groups, v (k, q') of inner ones, and rows.

    u and v are unconstrained. Rows are sorted by inner group, and inner groups by outer group.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the unconstrained global parameters."""

    @property
    def local_dims(self) -> tuple[int, int]:
        """q and q'."""

    @property
    def levels(self) -> tuple[Level, Level]:
        """Both levels, with names of parameters on their natural scale."""

    def log_prior(self, x: AnyArray, backend: Backend) -> AnyArray:
        """Log prior of x, Jacobian included."""

    def densities(
        self, x: AnyArray, u: AnyArray, v: AnyArray, inputs: Any, backend: Backend
    ) -> tuple[AnyArray, AnyArray]:
        """log p(u | x) of outer groups (m,); log p(v, rows | x, u) of inner ones (k,).

        Jacobians are included. The first does not depend on v.
        """

    def row_densities(
        self, x: AnyArray, u: AnyArray, v: AnyArray, inputs: Any, backend: Backend
    ) -> AnyArray:
        """log p(row | x, u, v) of each row, (n_rows,)."""

    def natural(
        self, x: AnyArray, u: AnyArray, v: AnyArray, inputs: Any, backend: Backend
    ) -> tuple[AnyArray, AnyArray]:
        """Parameters of groups on their natural scale, (m, r) and (k, r').

        The first does not depend on v.
        """

    def lacks(self, ability: Ability) -> str:
        """What is missing for something that a result asks for; empty if nothing is."""

    def responses(
        self, points: Array, u: Array, v: Array, inputs: Any, seeds: Seeds
    ) -> dict[str, Array]:
        """Draws of what is observed at points (n, d), u (n, m, q), v (n, k, q')."""

    def simulated(self, points: Array, inputs: Any, seeds: Seeds) -> dict[str, Array]:
        """Draws of what is observed, with groups drawn from their prior; see `lacks`."""

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        """Draws of the unconstrained global parameters from their prior, (n, d); see `lacks`."""

    def observed(self, inputs: Any) -> dict[str, Array]:
        """What was observed, (n_rows, ...). Other arrays may be there, too."""

    def prepared(self, shard: Shard) -> tuple[Any, Nesting]:
        """Inputs of a shard, and its groups."""

    def row_codes(self, shard: Shard) -> IntArray:
        """The code of the outer group of each row."""

    def row_order(self, shard: Shard) -> IntArray:
        """The order that sorts rows as `prepared` does."""

    def constrain(self, draws: Array) -> dict[str, Array]:
        """Parameters by name on their natural scale, from unconstrained draws (n, d)."""


class InnerInputs(NamedTuple):
    """The inner groups of a shard."""

    inputs: Any  # as `TwoLevels` takes them
    within: IntArray  # (k,), the position of each inner group's outer group
    codes: IntArray  # (k,)
    origin: AnyArray  # u₀, (m, q)
    tilts: AnyArray  # T: `tilts[i]` (k, q') are derivatives of v along coordinate i of u

    def moved(self, u: AnyArray) -> AnyArray:
        """T (u - u₀), (k, q')."""
        by = (u - self.origin)[self.within]
        return sum(by[:, i, None] * tilt for i, tilt in enumerate(self.tilts))


class Anchors(NamedTuple):
    """Where nodes of both levels start from: u and its spreads, v there and its, and T."""

    outer: AnyArray
    outer_spreads: AnyArray
    inner: AnyArray
    inner_spreads: AnyArray
    tilts: AnyArray

    def put(self, given: Arguments) -> Arguments:
        """The arguments of the outer level with these anchors."""
        at, spreads, inner_at, inner_spreads, tilts = map(np.asarray, self)
        moved = given.inputs.inputs._replace(origin=at, tilts=tilts)
        inner = given.inputs._replace(inputs=moved, anchors=inner_at, spreads=inner_spreads)
        return given._replace(inputs=inner, anchors=at, spreads=spreads)


@dataclass(frozen=True)
class InnerProgram:
    """Inner groups given u: a `Program` of one level, whose point is x followed by u."""

    two: TwoLevels

    within = None

    @property
    def names(self) -> tuple[str, ...]:
        return self.two.names

    @property
    def local_dim(self) -> int:
        return self.two.local_dims[1]

    @property
    def level(self) -> Level:
        return self.two.levels[1]

    def log_prior(self, x: AnyArray, backend: Backend) -> AnyArray:
        return self.two.log_prior(x[: len(self.names)], backend)

    def joint(self, x: AnyArray, z: AnyArray, inputs: InnerInputs, backend: Backend) -> AnyArray:
        return self.two.densities(*self._apart(x, z, inputs), inputs.inputs, backend)[1]

    def row_densities(
        self, x: AnyArray, z: AnyArray, inputs: InnerInputs, backend: Backend
    ) -> AnyArray:
        return self.two.row_densities(*self._apart(x, z, inputs), inputs.inputs, backend)

    def natural(self, x: AnyArray, z: AnyArray, inputs: InnerInputs, backend: Backend) -> AnyArray:
        return self.two.natural(*self._apart(x, z, inputs), inputs.inputs, backend)[1]

    def lacks(self, ability: Ability) -> str:
        return self.two.lacks(ability)

    def responses(
        self, points: Array, z: Array, inputs: InnerInputs, seeds: Seeds
    ) -> dict[str, Array]:
        parts = [self._apart(x, at, inputs) for x, at in zip(points, z, strict=True)]
        x, u, v = (np.array(part) for part in zip(*parts, strict=True))
        return self.two.responses(x, u, v, inputs.inputs, seeds)

    def simulated(self, points: Array, inputs: InnerInputs, seeds: Seeds) -> dict[str, Array]:
        return self.two.simulated(points, inputs.inputs, seeds)

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        return self.two.prior_draws(n, rng)

    def observed(self, inputs: InnerInputs) -> dict[str, Array]:
        return self.two.observed(inputs.inputs)

    def prepared(self, shard: Shard) -> tuple[InnerInputs, IntArray]:
        inputs, nesting = self.two.prepared(shard)
        dims = self.two.local_dims
        origin = np.zeros((nesting.n_outer, dims[0]))
        tilts = np.zeros((dims[0], nesting.n_inner, dims[1]))
        return InnerInputs(inputs, nesting.within, nesting.inner, origin, tilts), nesting.outer

    def row_codes(self, shard: Shard) -> IntArray:
        return self.two.row_codes(shard)

    def row_order(self, shard: Shard) -> IntArray:
        return self.two.row_order(shard)

    def constrain(self, draws: Array) -> dict[str, Array]:
        return self.two.constrain(draws)

    def _apart(self, x: Any, z: Any, inputs: InnerInputs) -> tuple[AnyArray, AnyArray, AnyArray]:
        """x, u and v of a point and w."""
        dim = len(self.names)
        u = x[dim:].reshape(inputs.origin.shape)
        return x[:dim], u, z + inputs.moved(u)


@dataclass(frozen=True)
class OuterProgram:
    """Outer groups, with inner ones integrated out: a `Program` of one level, for JAX.

    Its inputs are the `Arguments` of the inner integrals, whose inputs are `InnerInputs`.
    """

    two: TwoLevels

    @property
    def within(self) -> InnerProgram:
        return InnerProgram(self.two)

    @property
    def names(self) -> tuple[str, ...]:
        return self.two.names

    @property
    def local_dim(self) -> int:
        return self.two.local_dims[0]

    @property
    def level(self) -> Level:
        return self.two.levels[0]

    def log_prior(self, x: AnyArray, backend: Backend) -> AnyArray:
        return self.two.log_prior(x, backend)

    def joint(self, x: AnyArray, z: AnyArray, inputs: Arguments, backend: Backend) -> AnyArray:
        """log p(u | x) plus the logarithms of the inner integrals, (m,).

        Its derivatives are taken under the inner integrals, whose nodes stay where they are: JAX
        does not differentiate loops of unknown length backwards.
        """
        jax = jax_in_float64()
        integrated = jax.custom_vjp(lambda x, u, given: self._integrated(x, u, given, backend)[0])

        def forward(x: AnyArray, u: AnyArray, given: Arguments) -> Any:
            value, found = self._integrated(x, u, given, backend)
            return value, (x, u, given, found)

        integrated.defvjp(forward, partial(self._pulled, backend))
        return integrated(x, z, inputs)

    def _integrated(self, x: AnyArray, u: AnyArray, given: Arguments, backend: Backend) -> Any:
        """The joint density, and centres, spreads and logarithms of the inner integrals."""
        stop, within = jax_in_float64().lax.stop_gradient, given.inputs.within
        centres, spreads = placed(self._inner(stop(x), stop(u), given, backend), given, backend)
        joint = self._inner(x, u, given, backend)
        totals = log_integrals(joint, centres, spreads, given, backend)
        sums = backend.sum_by_group(totals + log_det(spreads, backend), within, len(u))
        return self._own(x, u, given, backend) + sums, (centres, spreads, totals)

    def _pulled(self, backend: Backend, kept: Any, cotangents: AnyArray) -> Any:
        """Derivatives in x and u of the densities of outer groups, summed with weights (m,)."""
        jax = jax_in_float64()
        x, u, given, (centres, spreads, totals) = kept
        _, pull = jax.vjp(lambda x, u: self._own(x, u, given, backend), x, u)
        joint = partial(self.within.joint, inputs=given.inputs, backend=backend)
        point, weights = _joined(x, u, jax.numpy), cotangents[given.inputs.within]
        slope = gradient(joint, point, centres, spreads, totals, given, weights)
        by_x, by_u = pull(cotangents)
        return by_x + slope[: len(x)], by_u + slope[len(x) :].reshape(u.shape), None

    def _inner(self, x: AnyArray, u: AnyArray, given: Arguments, backend: Backend) -> Any:
        point = _joined(x, u, backend.xp)
        return lambda z: self.within.joint(point, z, given.inputs, backend)

    def _own(self, x: AnyArray, u: AnyArray, given: Arguments, backend: Backend) -> AnyArray:
        inner = given.inputs
        return self.two.densities(x, u, given.anchors, inner.inputs, backend)[0]

    def modes(self, x: AnyArray, given: Arguments, backend: Backend) -> Anchors:
        """Modes of u with v integrated out, modes of v there, and how these follow u."""
        xp = jax_in_float64().numpy

        def best(u: AnyArray, inner: Arguments) -> tuple[AnyArray, AnyArray]:
            inner = inner._replace(n_steps=given.n_steps)
            w, spreads = searched(self._inner(x, u, inner, backend), inner, backend)
            return w + inner.inputs.moved(u), spreads

        inner = given.inputs
        v, spreads = best(given.anchors, inner)
        offset = inner.inputs.moved(given.anchors)
        inner = inner._replace(anchors=v - offset, spreads=spreads)
        u, outer_spreads = searched(lambda u: self.joint(x, u, inner, backend), given, backend)
        sds = xp.sqrt((outer_spreads**2).sum(axis=1))  # (q, m)
        moves = sds[:, :, None] * xp.eye(len(sds))[:, None]
        around = xp.concatenate([u[None], u + moves, u - moves])
        at_each, spreads = jax_in_float64().vmap(lambda u: best(u, inner))(around)
        ups, downs = at_each[1 : 1 + len(sds)], at_each[1 + len(sds) :]
        tilts = (ups - downs) / (2 * sds[:, inner.inputs.within, None])
        tilts = xp.where(xp.isfinite(tilts), tilts, 0.0)
        return Anchors(u, outer_spreads, at_each[0], spreads[0], tilts)

    def natural(self, x: AnyArray, z: AnyArray, inputs: Arguments, backend: Backend) -> AnyArray:
        return self.two.natural(x, z, inputs.anchors, inputs.inputs.inputs, backend)[0]

    def prepared(self, shard: Shard) -> tuple[Arguments, IntArray]:
        inner, codes = self.within.prepared(shard)
        return unanchored(inner, len(inner.within), self.two.local_dims[1]), codes

    def of_part(self, given: Arguments, shard: Shard, groups: IntArray) -> Arguments:
        """Inputs of a shard with some of the groups of another one, from the inputs of that one.

        `groups` are the positions of its outer groups.
        """
        inner, _ = self.within.prepared(shard)
        places = np.flatnonzero(np.isin(given.inputs.within, groups))
        origin, tilts = np.asarray(given.inputs.origin), np.asarray(given.inputs.tilts)
        return given._replace(
            inputs=inner._replace(origin=origin[groups], tilts=tilts[:, places]),
            anchors=np.asarray(given.anchors)[places],
            spreads=np.asarray(given.spreads)[:, :, places],
        )

    def row_codes(self, shard: Shard) -> IntArray:
        return self.two.row_codes(shard)

    def constrain(self, draws: Array) -> dict[str, Array]:
        return self.two.constrain(draws)

    def lacks(self, ability: Ability) -> str:
        return self.two.lacks(ability)


def _joined(x: AnyArray, u: AnyArray, xp: Any) -> AnyArray:
    return xp.concatenate([x, u.reshape(-1)])
