"""Programs with two plates of groups that nest, on shards."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from quorate._types import Array, IntArray
from quorate.data.label_text import parted, texts_of
from quorate.errors import require
from quorate.models.arrays import AnyArray
from quorate.models.axes import Axes, Labels
from quorate.models.checks import call
from quorate.models.groups.levels import Level
from quorate.models.groups.nesting import Nesting
from quorate.models.groups.programs import simulation
from quorate.models.groups.programs.backends import Backend, JaxBackend
from quorate.models.groups.programs.model import JaxProgramModel
from quorate.models.groups.programs.nested import OuterProgram
from quorate.models.groups.programs.plates import Constants, numbers_of, usable_names
from quorate.models.groups.programs.refusals import lacks_of_plates
from quorate.models.groups.programs.shards import codes_of, nested_codes
from quorate.models.protocol import Shard
from quorate.models.rows import Ability, Seeds
from quorate.models.splitting import Split


class NestedPlate(Protocol):
    """A program with two plates of any sizes, m and k. Its log densities are JAX functions."""

    def log_prior(self, x: AnyArray) -> AnyArray:
        """Log prior of the global parameters, Jacobian included."""

    def densities(
        self, x: AnyArray, u: AnyArray, v: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Log densities (m,) of u (m, q), (k,) of v (k, q'), Jacobians included; (n,) of rows."""

    def reported(
        self, x: AnyArray, u: AnyArray, v: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> tuple[AnyArray, AnyArray]:
        """Values that are reported of groups, on their natural scale: (m, r) and (k, r')."""

    def responses(
        self,
        x: AnyArray,
        u: AnyArray,
        v: AnyArray,
        rows: Mapping[str, Any],
        constants: Constants,
        key: AnyArray,
    ) -> dict[str, AnyArray]:
        """Draws of what is observed of rows, rows first."""

    def observed(
        self, x: AnyArray, u: AnyArray, v: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> dict[str, Array]:
        """What was observed of rows, rows first."""

    def simulated(
        self,
        x: AnyArray,
        known: Mapping[str, AnyArray],
        is_known: tuple[AnyArray, AnyArray],
        rows: Mapping[str, Any],
        constants: Constants,
        key: AnyArray,
    ) -> dict[str, AnyArray]:
        """Draws of what is observed, where variables of groups that are not known are drawn."""

    def prior_draw(self, key: AnyArray) -> AnyArray:
        """A draw of the unconstrained global parameters from their prior, (d,)."""

    @property
    def observed_names(self) -> tuple[str, ...]:
        """Names of the variables that are observed of rows."""

    @property
    def shown(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the variables that are reported of outer and of inner groups."""

    @property
    def example(self) -> tuple[Mapping[str, Any], Constants, tuple[int, int]]:
        """Some rows, constants and the numbers of groups."""

    @property
    def roles(self) -> Mapping[str, str]:
        """Role of each factor: prior or likelihood."""

    def at_points(self, function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        """A function of one point that draws with this plate, for many points; as `ManyPoints`."""

    def constrain(self, draws: Array) -> dict[str, Array]:
        """Global variables on their natural scale."""

    def axes(self) -> Axes:
        """Axes of global variables."""

    def group_names(self) -> tuple[Labels | None, Labels | None]:
        """Names of outer and inner groups by number; None where they have no names."""


@dataclass(frozen=True)
class NestedPlateProgram:
    """The program of two plates, on shards; a `nested.TwoLevels`.

    Parameters
    ----------
    plate, split, constants
        The program, the arrays that are cut, and all other arguments, for all groups.
    shrinking
        Names of the constants that have one entry for each group of a level, or hold their number.
    parents
        Names of the constants that hold the outer group of each inner one.
    sizes
        Numbers of groups of all the data.
    columns
        The arrays that hold the groups of each row.
    names, levels, local_dims
        As those of `TwoLevels`.
    """

    plate: NestedPlate
    split: Split
    constants: Constants
    shrinking: tuple[tuple[str, ...], tuple[str, ...]]
    parents: tuple[str, ...]
    sizes: tuple[int, int]
    columns: tuple[str, str]
    names: tuple[str, ...]
    levels: tuple[Level, Level]
    local_dims: tuple[int, int]

    def log_prior(self, x: AnyArray, backend: Backend) -> AnyArray:
        return self.plate.log_prior(x)

    def densities(
        self, x: AnyArray, u: AnyArray, v: AnyArray, inputs: Any, backend: Backend
    ) -> tuple[AnyArray, AnyArray]:
        own, given, of_rows = self._densities(x, u, v, inputs)
        return own, given + backend.sum_by_group(of_rows, inputs["index"], len(v))

    def row_densities(
        self, x: AnyArray, u: AnyArray, v: AnyArray, inputs: Any, backend: Backend
    ) -> AnyArray:
        return self._densities(x, u, v, inputs)[2]

    def _densities(self, x: AnyArray, u: AnyArray, v: AnyArray, inputs: Any) -> Any:
        constants = self.constants_of(inputs)
        return call("model", self.plate.densities, x, u, v, inputs["rows"], constants)

    def natural(
        self, x: AnyArray, u: AnyArray, v: AnyArray, inputs: Any, backend: Backend
    ) -> tuple[AnyArray, AnyArray]:
        return self.plate.reported(x, u, v, inputs["rows"], self.constants_of(inputs))

    def lacks(self, ability: Ability) -> str:
        return lacks_of_plates(ability, self.plate.observed_names, self.plate.roles)

    def responses(
        self, points: Array, u: Array, v: Array, inputs: Any, seeds: Seeds
    ) -> dict[str, Array]:
        n, dim = points.shape
        both = np.concatenate([points, u.reshape(n, -1), v.reshape(n, -1), seeds], axis=1)
        xp, (m, q), of_inner = JaxBackend().xp, u.shape[1:], v.shape[1:]

        def of_point(numbers: AnyArray, inputs: Any) -> dict[str, AnyArray]:
            outer = numbers[dim : dim + m * q].reshape(m, q)
            inner = numbers[dim + m * q : -simulation.KEY].reshape(of_inner)
            key = numbers[-simulation.KEY :].astype(xp.uint32)
            constants = self.constants_of(inputs)
            x, rows = numbers[:dim], inputs["rows"]
            return self.plate.responses(x, outer, inner, rows, constants, key)

        found: dict[str, Array] = self.plate.at_points(of_point)(both, inputs, len(inputs["index"]))
        return found

    def simulated(
        self,
        points: Array,
        inputs: Any,
        seeds: Seeds,
        known: tuple[simulation.KnownGroups, simulation.KnownGroups] | None = None,
    ) -> dict[str, Array]:
        """Draws of what is observed; see `simulation.simulated_levels`."""
        return simulation.simulated_levels(self, points, inputs, seeds, known)

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        return simulation.prior_draws(self.plate, n, rng)

    def observed(self, inputs: Any) -> dict[str, Array]:
        x = np.zeros(len(self.names))
        u, v = (np.zeros((len(labels), q)) for labels, q in self._labels_and_dims(inputs))
        return self.plate.observed(x, u, v, inputs["rows"], self.constants_of(inputs))

    def _labels_and_dims(self, inputs: Any) -> list[tuple[IntArray, int]]:
        return list(zip(inputs["labels"], self.local_dims, strict=True))

    def prepared(self, shard: Shard) -> tuple[Any, Nesting]:
        nesting, place = nested_codes(shard, self.columns)
        rows, index, labels = self._sorted(shard, nesting, place)
        for column, some, size in zip(self.columns, labels, self.sizes, strict=True):
            require(
                not len(simulation.unknown(some, size)),
                f"{column} has entries up to {some.max()}. The model was made for {size} groups, "
                f"0 to {size - 1}.",
            )
        return self._inputs(rows, index, labels, nesting), nesting

    def new_inputs(self, rows: Shard) -> tuple[Any, IntArray]:
        """Inputs of new rows, which may be of new groups; and the order that sorts them."""
        of_groups = {column: rows[column] for column in self.columns}
        nesting, place = nested_codes(of_groups, self.columns)
        held, index, labels = self._sorted(rows, nesting, place)
        for column, some, size, names in zip(
            self.columns, labels, self.sizes, self._arrays_of_groups, strict=True
        ):
            simulation.require_entries(column, simulation.unknown(some, size), names)
        return self._inputs(held, index, labels, nesting), np.argsort(place, kind="stable")

    def _sorted(
        self, shard: Shard, nesting: Nesting, place: IntArray
    ) -> tuple[dict[str, Any], IntArray, tuple[IntArray, IntArray]]:
        """Rows sorted by inner group, the place of each row's group, and the numbers of groups."""
        order = np.argsort(place, kind="stable")
        index = place[order]
        rows = {name: np.asarray(shard[name])[order] for name in self.split.restored(shard)}
        firsts = np.searchsorted(index, np.arange(nesting.n_inner))
        inner = rows[self.columns[1]][firsts]
        at_outer = np.searchsorted(nesting.within, np.arange(nesting.n_outer))
        outer = rows[self.columns[0]][firsts[at_outer]]
        of_rows = outer[nesting.within][index], inner[index]
        for column, expected, some in zip(self.columns, of_rows, (outer, inner), strict=True):
            same = bool((rows[column] == expected).all()) and len(np.unique(some)) == len(some)
            require(same, f"The codes of groups do not agree with the array {column}.")
        return rows, index, (outer, inner)

    def _inputs(
        self,
        rows: Mapping[str, Any],
        index: IntArray,
        labels: tuple[IntArray, IntArray],
        nesting: Nesting,
    ) -> dict[str, Any]:
        """What the functions of a shard take: groups are numbered anew, from 0."""
        numbered = {
            column: held.astype(rows[column].dtype)
            for column, held in zip(self.columns, (nesting.within[index], index), strict=True)
        }
        own = {
            name: np.asarray(self.constants[name])[some]
            for names, some in zip(self._arrays_of_groups, labels, strict=True)
            for name in names
        }
        own |= dict.fromkeys(self.parents, nesting.within)
        return {"rows": {**rows, **numbered}, "index": index, "labels": labels, "own": own}

    @property
    def _arrays_of_groups(self) -> list[list[str]]:
        """Names of constants with an entry for each outer group, and for each inner one."""
        return [
            [name for name in names if np.ndim(self.constants[name]) > 0]
            for names in self.shrinking
        ]

    def constants_of(self, inputs: Any) -> Constants:
        """Constants as the program takes them on a shard."""
        sizes = {
            name: len(labels)
            for names, labels in zip(self.shrinking, inputs["labels"], strict=True)
            for name in names
            if np.ndim(self.constants[name]) == 0
        }
        return {**self.constants, **sizes, **inputs["own"]}

    def row_codes(self, shard: Shard) -> IntArray:
        return codes_of(shard, self.columns[0])

    def row_order(self, shard: Shard) -> IntArray:
        return np.argsort(nested_codes(shard, self.columns)[1], kind="stable")

    def constrain(self, draws: Array) -> dict[str, Array]:
        return self.plate.constrain(draws)


@dataclass(frozen=True)
class NestedPlateModel(JaxProgramModel):
    """A model with gradients from a program with two plates of groups that nest."""

    program: OuterProgram

    def rows(self, data: Mapping[str, Any]) -> Shard:
        """The data of shards: the arrays that are cut, rows first."""
        return self.two.split.rows(data)

    def new_rows(self, rows: Mapping[str, Any]) -> Shard:
        """Rows that a user gives; what is only observed may be missing."""
        held, constants, sizes = self.two.plate.example
        x = np.zeros(self.dim)
        u, v = (np.zeros((m, q)) for m, q in zip(sizes, self.two.local_dims, strict=True))
        observed = self.two.plate.observed(x, u, v, held, constants)
        return simulation.new_rows(self.two.split, rows, held, observed)

    @property
    def axes(self) -> Axes:
        """Plates of global variables."""
        return self.two.plate.axes()

    @property
    def group_names(self) -> tuple[Labels | None, Labels | None]:
        """Names of outer and inner groups by number.

        None where the program has none, and where two groups have the same.
        """
        outer, inner = map(usable_names, self.two.plate.group_names(), self.two.sizes)
        return outer, inner

    def pairs_of_numbers(self, labels: Labels) -> IntArray:
        """Numbers of the outer and inner groups of labels such as `3:17` or `WA:King`, (m, 2)."""
        pairs = np.array([parted(label) for label in labels.tolist()], dtype=str).reshape(-1, 2)
        levels = zip(pairs.T, self.group_names, strict=True)
        texts = [(of, None if names is None else texts_of(names)) for of, names in levels]
        return np.stack([numbers_of(of, names) for of, names in texts], axis=1)

    @property
    def two(self) -> NestedPlateProgram:
        """The program of both levels."""
        two = self.program.two
        assert isinstance(two, NestedPlateProgram)
        return two
