"""A program with local parameters, and its integrals as functions of one point."""

from functools import partial
from typing import Any, Protocol, cast

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array, IntArray
from quorate.models.arrays import AnyArray
from quorate.models.groups.levels import Level
from quorate.models.groups.programs.backends import Backend
from quorate.models.groups.programs.integral import (
    Arguments,
    Joint,
    expectations,
    gradient,
    log_det,
    log_integrals,
    placed,
    searched,
)
from quorate.models.groups.programs.nested import OuterProgram
from quorate.models.protocol import Shard
from quorate.models.rows import Ability, Seeds


class Program(Protocol):
    """A log joint density of global parameters x (d,), local ones z (m, q), and rows.

    z are unconstrained. `inputs` is the shard in the form that the program takes: any tree of
    arrays, with rows sorted by group.
    """

    @property
    def within(self) -> "RowProgram | None":
        """The program of groups within these, whose point is x followed by z; None if none are."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the unconstrained global parameters."""

    @property
    def local_dim(self) -> int:
        """q."""

    @property
    def level(self) -> Level:
        """The groups, and the names of the r parameters of a group on their natural scale."""

    def log_prior(self, x: AnyArray, backend: Backend) -> AnyArray:
        """Log prior of x, Jacobian included."""

    def joint(self, x: AnyArray, z: AnyArray, inputs: Any, backend: Backend) -> AnyArray:
        """log p(z_g | x) + Σ over rows of g of log p(row | x, z_g), Jacobian included, (m,)."""

    def lacks(self, ability: Ability) -> str:
        """What is missing for something that a result asks for; empty if nothing is."""

    def natural(self, x: AnyArray, z: AnyArray, inputs: Any, backend: Backend) -> AnyArray:
        """Parameters of groups on their natural scale, (m, r)."""

    def prepared(self, shard: Shard) -> tuple[Any, IntArray]:
        """Inputs of a shard, and the codes of its groups in rising order."""

    def row_codes(self, shard: Shard) -> IntArray:
        """The code of the group of each row."""

    def constrain(self, draws: Array) -> dict[str, Array]:
        """Parameters by name on their natural scale, from unconstrained draws (n, d)."""


class RowProgram(Program, Protocol):
    """A program of groups with no groups within them, so that it has rows."""

    def row_densities(self, x: AnyArray, z: AnyArray, inputs: Any, backend: Backend) -> AnyArray:
        """log p(row | x, z) of each row, (n_rows,), sorted by group."""

    def responses(self, points: Array, z: Array, inputs: Any, seeds: Seeds) -> dict[str, Array]:
        """Draws of what is observed, (n_points, n_rows, ...), rows sorted by group.

        `z` is (n_points, m, q).
        """

    def simulated(self, points: Array, inputs: Any, seeds: Seeds) -> dict[str, Array]:
        """Draws of what is observed, with groups drawn from their prior; see `lacks`."""

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        """Draws of the unconstrained global parameters from their prior, (n, d); see `lacks`."""

    def observed(self, inputs: Any) -> dict[str, Array]:
        """What was observed, (n_rows, ...), sorted by group. Other arrays may be there, too."""

    def row_order(self, shard: Shard) -> IntArray:
        """The order that sorts the rows of a shard as `prepared` does."""


class AtPoint:
    """Functions of one point x (d,), for a backend to compile and to map over points."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def prior(self, x: AnyArray, _: None, backend: Backend) -> AnyArray:
        """The log prior."""
        return self._program.log_prior(x, backend)

    def prior_and_gradient(self, x: AnyArray, _: None, backend: Backend) -> Any:
        """The log prior and its gradient, under JAX."""
        return jax_in_float64().value_and_grad(self.prior)(x, None, backend)

    def value(self, x: AnyArray, given: Arguments, backend: Backend) -> AnyArray:
        """The log-likelihood of a shard, with local parameters integrated out."""
        return self.of_groups(x, given, backend).sum()

    def of_groups(self, x: AnyArray, given: Arguments, backend: Backend) -> AnyArray:
        """The integrated log-likelihood of each group, (m,)."""
        joint = self._joint(x, given, backend)
        centres, spreads = placed(joint, given, backend)
        totals = log_integrals(joint, centres, spreads, given, backend)
        return totals + log_det(spreads, backend)

    def value_and_gradient(self, x: AnyArray, given: Arguments, backend: Backend) -> Any:
        """The integrated log-likelihood and its gradient, under JAX."""
        joint = self._joint(x, given, backend)
        centres, spreads = placed(joint, given, backend)
        totals = log_integrals(joint, centres, spreads, given, backend)
        of_both = partial(self._program.joint, inputs=given.inputs, backend=backend)
        slope = gradient(of_both, x, centres, spreads, totals, given)
        return (totals + log_det(spreads, backend)).sum(), slope

    def modes(self, x: AnyArray, given: Arguments, backend: Backend) -> Any:
        """Modes of local parameters, and their spreads; `Anchors` of two levels."""
        if isinstance(self._program, OuterProgram):
            return self._program.modes(x, given, backend)
        return searched(self._joint(x, given, backend), given, backend)

    def spread(self, x: AnyArray, given: Arguments, backend: Backend) -> AnyArray:
        """First and second moments of z - anchor: (m, q + q²)."""

        def powers(z: AnyArray) -> AnyArray:
            offset = z - given.anchors
            products = (offset[:, :, None] * offset[:, None, :]).reshape(len(offset), -1)
            return backend.xp.concatenate([offset, products], axis=1)

        return expectations(self._joint(x, given, backend), powers, given, backend)

    def moments(self, x: AnyArray, arguments: tuple[Arguments, Array], backend: Backend) -> Any:
        """Moments 1 to 3 of natural values about their centres: (m, 3, r)."""
        return self._moments(x, arguments, backend).reshape(len(arguments[1]), 3, -1)

    def moments_within(
        self, x: AnyArray, arguments: tuple[Arguments, Array], backend: Backend
    ) -> Any:
        """Moments of groups within these, of which centres are given."""
        given, centres = arguments
        assert self._program.within is not None
        inner, at = given.inputs, AtPoint(self._program.within)

        def of_inner(z: AnyArray) -> AnyArray:
            point = backend.xp.concatenate([x, z.reshape(-1)])
            return at._moments(point, (inner, centres), backend)

        joint, within = self._joint(x, given, backend), inner.inputs.within
        found = expectations(joint, of_inner, given, backend, within)
        return found.reshape(len(centres), 3, -1)

    def _moments(self, x: AnyArray, arguments: tuple[Arguments, Array], backend: Backend) -> Any:
        given, centres = arguments

        def powers(z: AnyArray) -> AnyArray:
            offset = self._program.natural(x, z, given.inputs, backend) - centres
            return backend.xp.concatenate([offset, offset**2, offset**3], axis=1)

        return expectations(self._joint(x, given, backend), powers, given, backend)

    def joint(self, both: AnyArray, given: Arguments, backend: Backend) -> AnyArray:
        """Log joint densities (m,) of x and z, which are one vector here."""
        x, z = self._apart(both, given)
        return self._joint(x, given, backend)(z)

    def natural(self, both: AnyArray, given: Arguments, backend: Backend) -> AnyArray:
        """Natural values (m, r) of x and z, which are one vector here."""
        x, z = self._apart(both, given)
        return self._program.natural(x, z, given.inputs, backend)

    def of_rows(self, both: AnyArray, given: Arguments, backend: Backend) -> AnyArray:
        """Log densities (n_rows,) of rows at x and z, which are one vector here."""
        x, z = self._apart(both, given)
        return cast(RowProgram, self._program).row_densities(x, z, given.inputs, backend)

    def _apart(self, both: AnyArray, given: Arguments) -> tuple[AnyArray, AnyArray]:
        m, q = given.anchors.shape
        return both[: len(both) - m * q], both[len(both) - m * q :].reshape(m, q)

    def _joint(self, x: AnyArray, given: Arguments, backend: Backend) -> Joint:
        return lambda z: self._program.joint(x, z, given.inputs, backend)
