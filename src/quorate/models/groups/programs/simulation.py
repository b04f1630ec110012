"""Responses of rows whose groups have known parameters, or parameters drawn from their prior."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import require
from quorate.models.arrays import AnyArray
from quorate.models.groups.levels import Level
from quorate.models.groups.programs.backends import JaxBackend
from quorate.models.groups.programs.shards import codes_of, compact
from quorate.models.protocol import Shard
from quorate.models.rows import Seeds
from quorate.models.splitting import Split, some_missing

if TYPE_CHECKING:
    from quorate.models.groups.programs.nested_plates import NestedPlate, NestedPlateProgram
    from quorate.models.groups.programs.plates import Plate, PlateProgram

KEY = 2  # numbers of a key of JAX


class KnownGroups(NamedTuple):
    """Groups whose parameters are known: numbers (k,), and values on natural scales (n, k, r)."""

    numbers: IntArray
    values: Array


class PlacedGroups(NamedTuple):
    """The groups of some rows, m in all, and which of them are known."""

    m: int
    places: IntArray  # of those that are known, (k,)
    values: Array  # of these, one point after the other, (n, k * r)
    level: Level

    @classmethod
    def of(
        cls, labels: IntArray, level: Level, known: KnownGroups | None, n_points: int
    ) -> "PlacedGroups":
        """Groups with these numbers. None is known by default."""
        r = len(level.names)
        known = known or KnownGroups(np.empty(0, dtype=np.int64), np.empty((n_points, 0, r)))
        _, places, held = np.intersect1d(labels, known.numbers, return_indices=True)
        return cls(len(labels), places, known.values[:, held].reshape(n_points, -1), level)

    def spread(self, numbers: AnyArray, xp: Any) -> tuple[AnyArray, AnyArray]:
        """Values (m, r), and marks (m, 1) of those that are known, from the values of a point."""
        k, r = len(self.places), len(self.level.names)
        values = xp.zeros((self.m, r)).at[self.places].set(numbers.reshape(k, r))
        return values, xp.zeros((self.m, 1)).at[self.places].set(1.0)

    def named(self, values: AnyArray, shown: Iterable[str]) -> dict[str, AnyArray]:
        """Variables of groups, groups first, from what is reported of them (m, r)."""
        columns = {name: self.level.entries(name) for name in shown}
        return {
            name: values[:, at].reshape(len(values), *shape)
            for name, (at, shape) in columns.items()
        }


def simulated(
    program: "PlateProgram",
    points: Array,
    inputs: Any,
    seeds: Seeds,
    known: KnownGroups | None = None,
) -> dict[str, Array]:
    """Draws of what is observed, (n_points, n_rows, ...), rows sorted by group.

    Groups that are not known get parameters from their prior given the point.
    """
    n_points, dim = points.shape
    groups = PlacedGroups.of(inputs["labels"], program.level, known, n_points)
    backend, plate = JaxBackend(), program.plate

    def of_point(numbers: AnyArray, inputs: Any) -> dict[str, AnyArray]:
        values, marks = groups.spread(numbers[dim:-KEY], backend.xp)
        placed, constants = program.placed(values, inputs, backend)
        is_known = program.placed(marks, inputs, backend)[0][:, 0] > 0
        local = groups.named(placed, plate.shown)
        key = numbers[-KEY:].astype(backend.xp.uint32)
        x, rows = numbers[:dim], inputs["rows"]
        return plate.simulated(x, local, is_known, rows, constants, key)

    both = np.concatenate([points, groups.values, seeds], axis=1)
    found = plate.at_points(of_point)(both, inputs, len(inputs["index"]))
    return {name: np.asarray(draws) for name, draws in found.items()}


def simulated_levels(
    program: "NestedPlateProgram",
    points: Array,
    inputs: Any,
    seeds: Seeds,
    known: tuple[KnownGroups, KnownGroups] | None = None,
) -> dict[str, Array]:
    """Draws of what is observed where groups lie within groups, (n_points, n_rows, ...).

    An inner group that is not known gets its parameters given those of its outer group.
    """
    n_points, dim = points.shape
    each = zip(inputs["labels"], program.levels, known or (None, None), strict=True)
    levels = [PlacedGroups.of(labels, level, of, n_points) for labels, level, of in each]
    xp, plate = JaxBackend().xp, program.plate
    end = dim + levels[0].values.shape[1]

    def of_point(numbers: AnyArray, inputs: Any) -> dict[str, AnyArray]:
        parts = numbers[dim:end], numbers[end:-KEY]
        local: dict[str, AnyArray] = {}
        is_known = []
        for groups, part, shown in zip(levels, parts, plate.shown, strict=True):
            values, marks = groups.spread(part, xp)
            local |= groups.named(values, shown)
            is_known.append(marks[:, 0] > 0)
        key, constants = numbers[-KEY:].astype(xp.uint32), program.constants_of(inputs)
        x, rows = numbers[:dim], inputs["rows"]
        return plate.simulated(x, local, (is_known[0], is_known[1]), rows, constants, key)

    both = np.concatenate([points, *(groups.values for groups in levels), seeds], axis=1)
    found = plate.at_points(of_point)(both, inputs, len(inputs["index"]))
    return {name: np.asarray(draws) for name, draws in found.items()}


def prior_draws(plate: "Plate | NestedPlate", n: int, rng: np.random.Generator) -> Array:
    """Draws of the unconstrained global parameters from their prior, (n, d)."""
    keys = rng.integers(1 << 32, size=(n, KEY)).astype(np.float64)
    uint32 = JaxBackend().xp.uint32
    draw = plate.at_points(lambda key, _: plate.prior_draw(key.astype(uint32)))
    return np.asarray(draw(keys, {}))


def new_rows(
    split: Split, rows: Mapping[str, Any], held: Shard, observed: Mapping[str, Array]
) -> Shard:
    """Rows that a user gives. An array that is only observed may be missing.

    `held` are other rows of the program, and `observed` is what it observes of them.
    """
    only_observed = [
        name
        for name in split.names
        if any(np.array_equal(np.asarray(held[name]), value) for value in observed.values())
    ]
    return some_missing(split, rows, held, only_observed)


def new_inputs(program: "PlateProgram", rows: Shard) -> tuple[Any, IntArray]:
    """Inputs of new rows, which may be of new groups; and the order that sorts them by group."""
    name = program.level.name
    codes, index, order = compact(codes_of({name: rows[name]}, name))
    new = unknown(codes, program.n_groups)
    listed = ", ".join(map(str, new[:5].tolist()))
    require(
        not len(new) or program.shrinking is not None,
        f"{name} has groups that the run does not know ({listed}), and the plate or dimension of "
        "the program always has the same size. Make the size of a plate an argument of the "
        "program, and keep arrays of a fixed size out of variables with the dimension.",
    )
    require_entries(name, new, program.arrays_of_groups)
    sorted_rows = {column: np.asarray(rows[column])[order] for column in program.split.names}
    if program.shrinking is not None:
        sorted_rows[name] = index.astype(sorted_rows[name].dtype)
    own = program.own(codes)
    return {"rows": sorted_rows, "index": index, "labels": codes, "own": own}, order


def unknown(numbers: IntArray, n_groups: int) -> IntArray:
    """Numbers of groups that are not those of the run, 0 to n_groups - 1."""
    return numbers[(numbers < 0) | (numbers >= n_groups)]


def require_entries(column: str, new: IntArray, arrays: Sequence[str]) -> None:
    """Refuse new groups where arrays have an entry for each group."""
    listed = ", ".join(map(str, new[:5].tolist()))
    require(
        not len(new) or not arrays,
        f"{column} has groups that the run does not know ({listed}), for which "
        f"{', '.join(arrays)} has no entries. Predict rows of known groups.",
    )
