"""Examination of a program with two plates of groups: how groups nest, and what shrinks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import IntArray
from quorate.errors import BadInputError, require
from quorate.models.arrays import AnyArray
from quorate.models.groups.nesting import Nesting
from quorate.models.groups.programs.backends import JaxBackend
from quorate.models.groups.programs.inference import (
    agree,
    column_of_groups,
    groups_that_matter,
    local_point,
    shrinking_constants,
    tested_rows,
)
from quorate.models.groups.programs.nested_plates import NestedPlateProgram
from quorate.models.groups.programs.plates import Constants
from quorate.models.splitting import part, probes

# rows, constants, and numbers of groups of both levels
NestedExample = tuple[Mapping[str, Any], Constants, tuple[int, int]]


def examined_levels(
    whole: NestedPlateProgram, rows: Mapping[str, Any]
) -> tuple[NestedPlateProgram, NestedExample, NestedExample]:
    """The program with the groups of its rows, an example of its arguments, and a smaller one.

    Raises
    ------
    BadInputError
        A row or a group depends on several groups of a level; groups do not nest; no arrays that
        are cut hold the groups; or the program cannot be run on some of the groups.
    """
    jax = jax_in_float64()
    x = jax.numpy.asarray(probes(len(whole.names), 1)[0])
    points = [local_point(n, q) for n, q in zip(whole.sizes, whole.local_dims, strict=True)]
    everywhere = jax.jit(lambda u, v, rows: whole.plate.densities(x, u, v, rows, whole.constants))

    def densities(u: AnyArray, v: AnyArray) -> Any:
        return everywhere(u, v, rows)

    columns = _columns(whole, densities, points, rows)
    program = replace(whole, columns=columns)
    held = [np.asarray(rows[column]) for column in columns]
    parents = tuple(
        name
        for name, value in whole.constants.items()
        if _is_parent(value, whole.sizes[1], held[0], held[1])
    )
    _, places = tested_rows(held[0], whole.sizes[0])
    some = part(rows, places)
    own, given, of_rows = (np.asarray(values) for values in densities(*points))

    def agrees(names: tuple[str, ...]) -> bool:
        found = replace(program, shrinking=_by_level(whole, names), parents=parents)
        inputs, nesting = found.prepared(some)
        labels = inputs["labels"]
        u, v = (point[at] for point, at in zip(points, labels, strict=True))
        values = jax.jit(lambda u, v, inputs: found.densities(x, u, v, inputs, JaxBackend()))
        order = found.row_order(some)
        sums = np.bincount(inputs["index"], of_rows[places][order], nesting.n_inner)
        expected = [own[labels[0]], given[labels[1]] + sums]
        return agree([np.asarray(each) for each in values(u, v, inputs)], expected)

    names = _shrinking(whole, parents, agrees)
    program = replace(program, shrinking=_by_level(whole, names), parents=parents)
    less = part(rows, places[: -(-len(places) // 2)])
    return program, _example(program, some), _example(program, less)


def _columns(
    whole: NestedPlateProgram, densities: Any, points: list[Any], rows: Mapping[str, Any]
) -> tuple[str, str]:
    """The arrays that hold the groups of rows. Groups that do not nest are refused."""
    (n_outer, n_inner), (q, q_inner) = whole.sizes, whole.local_dims
    u, v = points
    what = ("The log density of a row", "The log density of a group's parameters")
    inner, by_inner = groups_that_matter(lambda v: densities(u, v)[2], n_inner, q_inner, what[0])
    outer, by_outer = groups_that_matter(lambda u: densities(u, v)[2], n_outer, q, what[0])
    _require_own(lambda v: densities(u, v)[1], n_inner, q_inner, what[1])
    _require_own(lambda u: densities(u, v)[0], n_outer, q, what[1])
    parents, has_parent = groups_that_matter(lambda u: densities(u, v)[1], n_outer, q, what[1])
    own, other = (np.asarray(densities(u, w)[0]) for w in (v, 0.5 * v))
    require(
        bool(np.array_equal(own, other)),
        "The parameters of outer groups depend on those of inner groups. Name the outer plate "
        "first in `local`.",
    )
    second = column_of_groups(inner, by_inner, rows, whole.split, n_inner)
    codes = np.asarray(rows[second])
    through = ~by_outer & has_parent[codes]  # rows that know of an outer group by its inner one
    outer, by_outer = np.where(through, parents[codes], outer), by_outer | through
    first = column_of_groups(outer, by_outer, rows, whole.split, n_outer)
    nesting, _ = Nesting.of_rows(np.asarray(rows[first]), codes)
    among = parents[nesting.inner] == nesting.outer[nesting.within]
    require(
        bool(among[has_parent[nesting.inner]].all()),
        f"Groups of {second} depend on other groups of {first} than their rows say.",
    )
    return first, second


def _require_own(function: Any, n_groups: int, dim: int, what: str) -> None:
    owners, owned = groups_that_matter(function, n_groups, dim, what)
    in_order = bool((owners == np.arange(n_groups))[owned].all())
    require(in_order, "The local parameters of a group depend on those of another group.")


def _is_parent(value: Any, n_inner: int, outer: IntArray, inner: IntArray) -> bool:
    """Whether a constant holds the outer group of each inner one."""
    array = np.asarray(value)
    whole = array.shape == (n_inner,) and np.issubdtype(array.dtype, np.integer)
    return whole and bool((array[inner] == outer).all())


def _by_level(
    whole: NestedPlateProgram, names: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of constants that shrink with outer groups, and with inner ones."""
    n_outer, _ = whole.sizes
    outer = tuple(name for name in names if _size(whole.constants[name]) == n_outer)
    return outer, tuple(name for name in names if name not in outer)


def _size(value: Any) -> int:
    return int(value) if np.ndim(value) == 0 else len(value)


def _shrinking(whole: NestedPlateProgram, parents: tuple[str, ...], agrees: Any) -> tuple[str, ...]:
    """Names of constants that shrink with the groups of a shard."""
    n_outer, n_inner = whole.sizes
    require(n_outer != n_inner, f"Both plates have {n_outer} groups, so none is within another.")
    others = {name: value for name, value in whole.constants.items() if name not in parents}
    found = shrinking_constants(others, whole.sizes, agrees)
    if found is None:
        raise BadInputError(
            "The program has other log densities for a few groups and their rows than for all of "
            "them. Make the sizes of both plates, and arrays with one entry for each group, "
            "arguments of the program, or pm.Data. Name in `split` every array with rows."
        )
    return found


def _example(program: NestedPlateProgram, rows: Mapping[str, Any]) -> NestedExample:
    inputs, nesting = program.prepared(rows)
    return inputs["rows"], program.constants_of(inputs), (nesting.n_outer, nesting.n_inner)
