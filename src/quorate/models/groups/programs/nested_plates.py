"""Programs with two plates of groups that nest, on shards."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import BadInputError, require
from quorate.models.arrays import AnyArray
from quorate.models.axes import Axes
from quorate.models.checks import call
from quorate.models.groups.levels import Level
from quorate.models.groups.nesting import Nesting
from quorate.models.groups.programs.backends import Backend, JaxBackend
from quorate.models.groups.programs.model import JaxProgramModel
from quorate.models.groups.programs.nested import OuterProgram
from quorate.models.groups.programs.plates import Constants
from quorate.models.groups.programs.refusals import NO_PRIOR_OF_LEVELS, NO_RESPONSES
from quorate.models.groups.programs.shards import codes_of, nested_codes
from quorate.models.protocol import Shard
from quorate.models.rows import Ability, Seeds
from quorate.models.splitting import Split

_KEY = 2  # numbers of a key of JAX


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

    @property
    def observed_names(self) -> tuple[str, ...]:
        """Names of the variables that are observed of rows."""

    def at_points(self, function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        """A function of one point that draws with this plate, for many points; as `ManyPoints`."""

    def constrain(self, draws: Array) -> dict[str, Array]:
        """Global variables on their natural scale."""

    def axes(self) -> Axes:
        """Axes of global variables."""


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
        if ability == "responses" and not self.plate.observed_names:
            return NO_RESPONSES
        return NO_PRIOR_OF_LEVELS if ability == "prior_draws" else ""

    def responses(
        self, points: Array, u: Array, v: Array, inputs: Any, seeds: Seeds
    ) -> dict[str, Array]:
        n, dim = points.shape
        both = np.concatenate([points, u.reshape(n, -1), v.reshape(n, -1), seeds], axis=1)
        xp, (m, q), of_inner = JaxBackend().xp, u.shape[1:], v.shape[1:]

        def of_point(numbers: AnyArray, inputs: Any) -> dict[str, AnyArray]:
            outer = numbers[dim : dim + m * q].reshape(m, q)
            inner = numbers[dim + m * q : -_KEY].reshape(of_inner)
            key, constants = numbers[-_KEY:].astype(xp.uint32), self.constants_of(inputs)
            x, rows = numbers[:dim], inputs["rows"]
            return self.plate.responses(x, outer, inner, rows, constants, key)

        found: dict[str, Array] = self.plate.at_points(of_point)(both, inputs, len(inputs["index"]))
        return found

    def simulated(self, points: Array, inputs: Any, seeds: Seeds) -> dict[str, Array]:
        raise BadInputError(NO_PRIOR_OF_LEVELS)

    def observed(self, inputs: Any) -> dict[str, Array]:
        x = np.zeros(len(self.names))
        u, v = (np.zeros((len(labels), q)) for labels, q in self._labels_and_dims(inputs))
        return self.plate.observed(x, u, v, inputs["rows"], self.constants_of(inputs))

    def _labels_and_dims(self, inputs: Any) -> list[tuple[IntArray, int]]:
        return list(zip(inputs["labels"], self.local_dims, strict=True))

    def prepared(self, shard: Shard) -> tuple[Any, Nesting]:
        nesting, place = nested_codes(shard, self.columns)
        order = np.argsort(place, kind="stable")
        index = place[order]
        rows = {name: np.asarray(shard[name])[order] for name in self.split.restored(shard)}
        firsts = np.searchsorted(index, np.arange(nesting.n_inner))
        inner = rows[self.columns[1]][firsts]
        at_outer = np.searchsorted(nesting.within, np.arange(nesting.n_outer))
        outer = rows[self.columns[0]][firsts[at_outer]]
        self._require_same(rows, (outer[nesting.within][index], inner[index]), (outer, inner))
        rows[self.columns[0]] = nesting.within[index].astype(outer.dtype)
        rows[self.columns[1]] = index.astype(inner.dtype)
        own = {
            name: np.asarray(self.constants[name])[labels]
            for names, labels in zip(self.shrinking, (outer, inner), strict=True)
            for name in names
            if np.ndim(self.constants[name]) > 0
        }
        own |= dict.fromkeys(self.parents, nesting.within)
        inputs = {"rows": rows, "index": index, "labels": (outer, inner), "own": own}
        return inputs, nesting

    def _require_same(
        self, rows: Shard, of_rows: tuple[Array, Array], labels: tuple[IntArray, IntArray]
    ) -> None:
        """Refuse columns that tell other groups than codes do, or groups that are not known."""
        for column, expected, some, size in zip(
            self.columns, of_rows, labels, self.sizes, strict=True
        ):
            same = bool((rows[column] == expected).all()) and len(np.unique(some)) == len(some)
            require(same, f"The codes of groups do not agree with the array {column}.")
            known = bool(((some >= 0) & (some < size)).all())
            require(
                known,
                f"{column} has entries up to {some.max()}. The model was made for {size} groups, "
                f"0 to {size - 1}.",
            )

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

    @property
    def axes(self) -> Axes:
        """Plates of global variables."""
        return self.two.plate.axes()

    @property
    def two(self) -> NestedPlateProgram:
        """The program of both levels."""
        two = self.program.two
        assert isinstance(two, NestedPlateProgram)
        return two
