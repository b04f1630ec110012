"""Programs with a plate of groups: one form for NumPyro and PyMC.

A plate's program is a JAX function of global parameters, of local ones, and of rows. On a shard the
plate shrinks to the groups of the shard if the program lets it; otherwise the program runs on all
groups, and those of the shard are used.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array, IntArray
from quorate.errors import require
from quorate.models.arrays import AnyArray
from quorate.models.axes import Axes, Labels
from quorate.models.checks import call
from quorate.models.groups.levels import Level
from quorate.models.groups.programs import simulation
from quorate.models.groups.programs.backends import Backend, JaxBackend
from quorate.models.groups.programs.model import JaxProgramModel
from quorate.models.groups.programs.refusals import lacks_of_plates
from quorate.models.groups.programs.shards import codes_of, compact
from quorate.models.protocol import Shard
from quorate.models.rows import Ability, Seeds
from quorate.models.splitting import Split

Constants = Mapping[str, Any]  # what a program takes besides rows


class Plate(Protocol):
    """A program with a plate of any size. Its log densities are JAX functions."""

    def log_prior(self, x: AnyArray) -> AnyArray:
        """Log prior of the global parameters, Jacobian included."""

    def densities(
        self, x: AnyArray, z: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> tuple[AnyArray, AnyArray]:
        """Log densities (m,) of local parameters z (m, q), Jacobian included; (n,) of rows."""

    def reported(
        self, x: AnyArray, z: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> AnyArray:
        """Values that are reported of each group, on their natural scale: (m, r)."""

    def constrain(self, draws: Array) -> dict[str, Array]:
        """Global variables on their natural scale."""

    @property
    def shown(self) -> tuple[str, ...]:
        """Names of the variables that are reported of groups."""

    def axes(self, n_groups: int) -> Axes:
        """Dims and coords of global variables, and of what is reported of groups."""

    def group_axis(self, name: str) -> int:
        """The axis of groups of a variable that is reported of groups."""

    def group_names(self) -> Labels | None:
        """Names of the groups, in the order of their numbers; None if they have only numbers."""

    @property
    def observed_names(self) -> tuple[str, ...]:
        """Names of the variables that are observed of rows."""

    @property
    def example(self) -> tuple[Mapping[str, Any], Constants, int]:
        """Some rows, constants and the number of groups."""

    @property
    def roles(self) -> Mapping[str, str]:
        """Role of each factor: prior or likelihood."""

    def responses(
        self,
        x: AnyArray,
        z: AnyArray,
        rows: Mapping[str, Any],
        constants: Constants,
        key: AnyArray,
    ) -> dict[str, AnyArray]:
        """Draws of what is observed of rows, rows first."""

    def observed(
        self, x: AnyArray, z: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> dict[str, Array]:
        """What was observed of rows, rows first."""

    def simulated(
        self,
        x: AnyArray,
        known: Mapping[str, AnyArray],
        is_known: AnyArray,
        rows: Mapping[str, Any],
        constants: Constants,
        key: AnyArray,
    ) -> dict[str, AnyArray]:
        """Draws of what is observed, where variables of groups that are not known are drawn."""

    def prior_draw(self, key: AnyArray) -> AnyArray:
        """A draw of the unconstrained global parameters from their prior, (d,)."""

    def at_points(self, function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        """A function of one point that draws with this plate, for many points; as `ManyPoints`."""


@dataclass(frozen=True)
class PlateProgram:
    """The program of a plate, on shards.

    Parameters
    ----------
    plate
        The program.
    split
        The arrays that are cut.
    constants
        All other arguments, for all groups.
    shrinking
        Names of the constants that have one entry for each group, or hold their number, and shrink
        with the groups of a shard. None if the program has to run on all groups.
    n_groups
        J, the number of groups of all the data.
    names, level, local_dim
        As those of `at_point.Program`. The name of the level is that of the array with the group
        of each row.
    """

    plate: Plate
    split: Split
    constants: Constants
    shrinking: tuple[str, ...] | None
    n_groups: int
    names: tuple[str, ...]
    level: Level
    local_dim: int

    within = None

    def log_prior(self, x: AnyArray, backend: Backend) -> AnyArray:
        return self.plate.log_prior(x)

    def joint(self, x: AnyArray, z: AnyArray, inputs: Any, backend: Backend) -> AnyArray:
        placed, constants = self.placed(z, inputs, backend)
        rows = inputs["rows"]
        own, of_rows = call("model", self.plate.densities, x, placed, rows, constants)
        own = own if self.shrinking is not None else own[inputs["labels"]]
        return own + backend.sum_by_group(of_rows, inputs["index"], len(z))

    def row_densities(self, x: AnyArray, z: AnyArray, inputs: Any, backend: Backend) -> AnyArray:
        placed, constants = self.placed(z, inputs, backend)
        return call("model", self.plate.densities, x, placed, inputs["rows"], constants)[1]

    def lacks(self, ability: Ability) -> str:
        return lacks_of_plates(ability, self.plate.observed_names, self.plate.roles)

    def simulated(
        self, points: Array, inputs: Any, seeds: Seeds, known: simulation.KnownGroups | None = None
    ) -> dict[str, Array]:
        """Draws of what is observed; see `simulation.simulated`."""
        return simulation.simulated(self, points, inputs, seeds, known)

    def responses(self, points: Array, z: Array, inputs: Any, seeds: Seeds) -> dict[str, Array]:
        n_points, dim = points.shape
        both = np.concatenate([points, z.reshape(n_points, -1), seeds], axis=1)
        backend, (m, q) = JaxBackend(), z.shape[1:]

        def of_point(numbers: AnyArray, inputs: Any) -> dict[str, AnyArray]:
            local = numbers[dim:-2].reshape(m, q)
            placed, constants = self.placed(local, inputs, backend)
            key = numbers[-2:].astype(backend.xp.uint32)
            return self.plate.responses(numbers[:dim], placed, inputs["rows"], constants, key)

        found: dict[str, Array] = self.plate.at_points(of_point)(both, inputs, len(inputs["index"]))
        return found

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        return simulation.prior_draws(self.plate, n, rng)

    def observed(self, inputs: Any) -> dict[str, Array]:
        dim, m = len(self.names), len(inputs["labels"])
        placed, constants = self.placed(np.zeros((m, self.local_dim)), inputs, JaxBackend())
        return self.plate.observed(np.zeros(dim), placed, inputs["rows"], constants)

    def natural(self, x: AnyArray, z: AnyArray, inputs: Any, backend: Backend) -> AnyArray:
        placed, constants = self.placed(z, inputs, backend)
        values = self.plate.reported(x, placed, inputs["rows"], constants)
        return values if self.shrinking is not None else values[inputs["labels"]]

    def prepared(self, shard: Shard) -> tuple[Any, IntArray]:
        codes, index, order = compact(self.row_codes(shard))
        held = self.split.restored(shard)
        rows = {name: np.asarray(shard[name])[order] for name in held}
        column = rows[self.level.name]
        labels = column[np.searchsorted(index, np.arange(len(codes)))]
        same = bool((column == labels[index]).all()) and len(np.unique(labels)) == len(codes)
        require(same, f"The codes of groups do not agree with the array {self.level.name}.")
        known = bool(((labels >= 0) & (labels < self.n_groups)).all())
        require(
            known,
            f"{self.level.name} has entries up to {labels.max()}. The model was made for "
            f"{self.n_groups} groups, 0 to {self.n_groups - 1}.",
        )
        if self.shrinking is not None:
            rows[self.level.name] = index.astype(column.dtype)
        own = self.own(labels)
        return {"rows": rows, "index": index, "labels": labels, "own": own}, codes

    def row_codes(self, shard: Shard) -> IntArray:
        return codes_of(shard, self.level.name)

    def row_order(self, shard: Shard) -> IntArray:
        return compact(self.row_codes(shard))[2]

    def constrain(self, draws: Array) -> dict[str, Array]:
        return self.plate.constrain(draws)

    def own(self, labels: IntArray) -> dict[str, Any]:
        """The entries of constants that belong to these groups."""
        return {name: np.asarray(self.constants[name])[labels] for name in self.arrays_of_groups}

    @property
    def arrays_of_groups(self) -> list[str]:
        """Names of constants that have one entry for each group, and shrink with them."""
        return [name for name in self.shrinking or () if np.ndim(self.constants[name]) > 0]

    def placed(self, z: AnyArray, inputs: Any, backend: Backend) -> tuple[AnyArray, Constants]:
        """Local parameters and constants as the program takes them."""
        if self.shrinking is None:
            everywhere = backend.xp.zeros((self.n_groups, z.shape[1]))
            return everywhere.at[inputs["labels"]].set(z), self.constants
        sizes = {name: len(z) for name in self.shrinking if np.ndim(self.constants[name]) == 0}
        return z, {**self.constants, **sizes, **inputs["own"]}


@dataclass(frozen=True)
class PlateModel(JaxProgramModel):
    """A model with gradients from a program with a plate of groups."""

    program: PlateProgram

    def rows(self, data: Mapping[str, Any]) -> Shard:
        """The data of shards: the arrays that are cut, rows first."""
        return self.program.split.rows(data)

    def new_rows(self, rows: Mapping[str, Any]) -> Shard:
        """Rows that a user gives; what is only observed may be missing."""
        program = self.program
        held, constants, n_groups = program.plate.example
        nowhere = np.zeros(len(program.names)), np.zeros((n_groups, program.local_dim))
        observed = program.plate.observed(*nowhere, held, constants)
        return simulation.new_rows(program.split, rows, held, observed)

    @property
    def axes(self) -> Axes:
        """Dims and coords, or plates, of the program."""
        return self.program.plate.axes(self.program.n_groups)

    @property
    def group_names(self) -> tuple[Labels | None]:
        """Names of the groups by number, if the program gives each a name of its own."""
        return (usable_names(self.program.plate.group_names(), self.program.n_groups),)

    def local_variables(self, values: Array, groups: Labels) -> dict[str, Array]:
        """Variables of the program from what is reported of some groups, (n, m, r).

        `groups` are their names, or their numbers if they have no names. Variables have the shapes
        that the program gives them, (n, *shape) each, with NaN in the place of other groups.
        """
        everywhere = np.full((len(values), self.program.n_groups, values.shape[2]), np.nan)
        everywhere[:, self.group_numbers(groups)] = values
        plate, found = self.program.plate, {}
        for name in plate.shown:
            places, shape = self.program.level.entries(name)
            of_group = everywhere[..., places].reshape(*everywhere.shape[:2], *shape)
            found[name] = np.moveaxis(of_group, 1, 1 + plate.group_axis(name))
        return found

    def group_numbers(self, groups: Labels) -> IntArray:
        """The numbers of groups with these names, or these numbers if groups have no names."""
        return numbers_of(groups, self.group_names[0])


def usable_names(names: Labels | None, n_groups: int) -> Labels | None:
    """Names of n groups, if each has a name of its own."""
    return None if names is None or len(np.unique(names)) < n_groups else names


def numbers_of(groups: Labels, names: Labels | None) -> IntArray:
    """The numbers of groups with these names, or these numbers if groups have no names."""
    if names is None:
        return np.asarray(groups, dtype=np.int64)
    order = np.argsort(names)
    return np.asarray(order[np.searchsorted(names[order], groups)])


def started(initial: Any, default: Array, names: tuple[str, ...]) -> tuple[float, ...]:
    """The unconstrained point where searches for the mode start."""
    require(bool(names), "The model has no global variables, so there is nothing to draw.")
    start = default if initial is None else np.asarray(initial, dtype=np.float64)
    fits = start.shape == (len(names),)
    require(fits, f"initial must hold {len(names)} numbers, not {initial!r}.")
    return tuple(map(float, start))


def sums_along(values: AnyArray, axis: int) -> AnyArray:
    """Sums over all axes but one."""
    moved = jax_in_float64().numpy.moveaxis(values, axis, 0)
    return moved.reshape(len(moved), -1).sum(axis=1)
