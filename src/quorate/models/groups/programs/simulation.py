"""Responses of rows whose groups have known parameters, or parameters drawn from their prior."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import require
from quorate.models.arrays import AnyArray
from quorate.models.groups.programs.backends import JaxBackend
from quorate.models.groups.programs.shards import codes_of, compact
from quorate.models.protocol import Shard
from quorate.models.rows import Seeds
from quorate.models.splitting import some_missing

if TYPE_CHECKING:
    from quorate.models.groups.programs.plates import Plate, PlateProgram

_KEY = 2  # numbers of a key of JAX


class KnownGroups(NamedTuple):
    """Groups whose parameters are known: numbers (k,), and values on natural scales (n, k, r)."""

    numbers: IntArray
    values: Array


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
    m, r = len(inputs["labels"]), len(program.level.names)
    known = known or KnownGroups(np.empty(0, dtype=np.int64), np.empty((n_points, 0, r)))
    _, places, held = np.intersect1d(inputs["labels"], known.numbers, return_indices=True)
    values = known.values[:, held].reshape(n_points, -1)
    backend = JaxBackend()
    xp = backend.xp
    plate = program.plate
    columns = {name: program.entries(name) for name in plate.shown}

    def of_point(numbers: AnyArray, inputs: Any) -> dict[str, AnyArray]:
        own = xp.zeros((m, r)).at[places].set(numbers[dim:-_KEY].reshape(len(places), r))
        marks = xp.zeros((m, 1)).at[places].set(1.0)
        placed, constants = program.placed(own, inputs, backend)
        is_known = program.placed(marks, inputs, backend)[0][:, 0] > 0
        local = {
            name: placed[:, at].reshape(len(placed), *shape)
            for name, (at, shape) in columns.items()
        }
        key = numbers[-_KEY:].astype(xp.uint32)
        x, rows = numbers[:dim], inputs["rows"]
        return plate.simulated(x, local, is_known, rows, constants, key)

    both = np.concatenate([points, values, seeds], axis=1)
    found = plate.at_points(of_point)(both, inputs, len(inputs["index"]))
    return {name: np.asarray(draws) for name, draws in found.items()}


def prior_draws(plate: "Plate", n: int, rng: np.random.Generator) -> Array:
    """Draws of the unconstrained global parameters from their prior, (n, d)."""
    keys = rng.integers(1 << 32, size=(n, _KEY)).astype(np.float64)
    uint32 = JaxBackend().xp.uint32
    draw = plate.at_points(lambda key, _: plate.prior_draw(key.astype(uint32)))
    return np.asarray(draw(keys, {}))


def new_rows(program: "PlateProgram", rows: Mapping[str, Any]) -> Shard:
    """Rows that a user gives; what is only observed may be missing."""
    plate = program.plate
    held, constants, n_groups = plate.example
    nowhere = np.zeros(len(program.names)), np.zeros((n_groups, program.local_dim))
    values = plate.observed(*nowhere, held, constants).values()
    only_observed = [
        name
        for name in program.split.names
        if any(np.array_equal(np.asarray(held[name]), value) for value in values)
    ]
    return some_missing(program.split, rows, held, only_observed)


def new_inputs(program: "PlateProgram", rows: Shard) -> tuple[Any, IntArray]:
    """Inputs of new rows, which may be of new groups; and the order that sorts them by group."""
    name = program.level.name
    codes, index, order = compact(codes_of({name: rows[name]}, name))
    new = codes[(codes < 0) | (codes >= program.n_groups)]
    listed = ", ".join(map(str, new[:5].tolist()))
    require(
        not len(new) or program.shrinking is not None,
        f"{name} has groups that the run does not know ({listed}), and the plate or dimension of "
        "the program always has the same size. Make the size of a plate an argument of the "
        "program, and keep arrays of a fixed size out of variables with the dimension.",
    )
    arrays = program.arrays_of_groups
    require(
        not len(new) or not arrays,
        f"{name} has groups that the run does not know ({listed}), for which {', '.join(arrays)} "
        "has no entries. Predict rows of known groups.",
    )
    sorted_rows = {column: np.asarray(rows[column])[order] for column in program.split.names}
    if program.shrinking is not None:
        sorted_rows[name] = index.astype(sorted_rows[name].dtype)
    own = program.own(codes)
    return {"rows": sorted_rows, "index": index, "labels": codes, "own": own}, order
