"""Examination of a program with a plate of groups: the groups of rows, and what shrinks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array
from quorate.errors import require
from quorate.models.arrays import AnyArray
from quorate.models.groups.levels import Level
from quorate.models.groups.programs.backends import JaxBackend
from quorate.models.groups.programs.inference import (
    agree,
    column_of_groups,
    groups_that_matter,
    local_point,
    shrinking_constants,
    tested_rows,
)
from quorate.models.groups.programs.plates import Constants, PlateProgram
from quorate.models.splitting import part, probes

Example = tuple[Mapping[str, Any], Constants, int]  # rows, constants, and the number of groups


def examined(whole: PlateProgram, rows: Mapping[str, Any]) -> tuple[PlateProgram, Example, Example]:
    """The program with the groups of its rows, an example of its arguments, and a smaller one.

    Parameters
    ----------
    whole
        The program on all groups, whose level is not known yet.
    rows
        All rows.

    Raises
    ------
    BadInputError
        A row, or the prior of a group, depends on more than one group; no array that is cut holds
        the groups; or the program cannot be run on some of the groups.
    """
    n_groups, local_dim = whole.n_groups, whole.local_dim
    jax = jax_in_float64()
    x = jax.numpy.asarray(probes(len(whole.names), 1)[0])  # as in a run: rows may index it
    everywhere = jax.jit(lambda z, rows: whole.plate.densities(x, z, rows, whole.constants))

    def densities(z: AnyArray) -> tuple[AnyArray, AnyArray]:
        own, of_rows = everywhere(z, rows)
        return own, of_rows

    what = "The log density of a row"
    groups, depends = groups_that_matter(lambda z: densities(z)[1], n_groups, local_dim, what)
    what = "The log density of a group's parameters"
    owners, owned = groups_that_matter(lambda z: densities(z)[0], n_groups, local_dim, what)
    in_order = bool((owners == np.arange(n_groups))[owned].all())
    require(in_order, "The local parameters of a group depend on those of another group.")
    column = column_of_groups(groups, depends, rows, whole.split, n_groups)
    program = replace(whole, level=Level(column, (), ()))
    chosen, places = tested_rows(np.asarray(rows[column]), n_groups)
    z = local_point(n_groups, local_dim)
    own, of_rows = (np.asarray(values) for values in densities(z))
    of_groups = np.searchsorted(chosen, np.asarray(rows[column])[places])
    expected: Array = own[chosen] + np.bincount(of_groups, weights=of_rows[places])

    def agrees(names: tuple[str, ...] | None) -> bool:
        found = _joint(replace(program, shrinking=names), x, z[chosen], part(rows, places))
        return agree([found], [expected])

    program = replace(program, shrinking=shrinking_constants(whole.constants, (n_groups,), agrees))
    require(
        program.shrinking is not None or agrees(None),
        "The program has other log densities for a few groups and their rows than for all of them. "
        "Name in `split` every array with rows, and give arrays with one entry for each group as "
        "arguments of the program.",
    )
    less = places[: -(-len(places) // 2)]
    return program, _example(program, part(rows, places)), _example(program, part(rows, less))


def _joint(program: PlateProgram, x: Array, z: Array, rows: Mapping[str, Any]) -> Array:
    inputs, _ = program.prepared(rows)
    compiled = jax_in_float64().jit(lambda z, inputs: program.joint(x, z, inputs, JaxBackend()))
    return np.asarray(compiled(z, inputs))


def _example(program: PlateProgram, rows: Mapping[str, Any]) -> Example:
    inputs, codes = program.prepared(rows)
    z = jax_in_float64().numpy.zeros((len(codes), program.local_dim))
    placed, constants = program.placed(z, inputs, JaxBackend())
    return inputs["rows"], constants, len(placed)
