"""Prediction of new rows by programs: NumPyro, PyMC and functions."""

from collections.abc import Mapping
from typing import cast

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, IntArray
from quorate.data.label_text import texts_of
from quorate.errors import BadInputError, require
from quorate.models.groups.programs.function_draws import GroupsOfRows
from quorate.models.groups.programs.functions import LocalFunctions, functions_of
from quorate.models.groups.programs.nested_functions import NestedFunctions
from quorate.models.groups.programs.nested_plates import NestedPlateModel
from quorate.models.groups.programs.plates import PlateModel, numbers_of
from quorate.models.groups.programs.simulation import KnownGroups, new_inputs
from quorate.models.protocol import Model, Shard
from quorate.models.rows import RowModel
from quorate.results import group_names
from quorate.results.prediction import (
    DrawsWithGroups,
    OfLevels,
    Prediction,
    RowNumbers,
)


def of_program(
    model: Model, points: Array, rows: Shard, variable: str | None, rng: np.random.Generator
) -> Prediction:
    """Predict rows by a model without groups that draws responses."""
    some = cast(RowModel, model).rows_at(points, rows)
    chosen = _chosen(some.responses(RowNumbers(rng, len(points))), variable)
    is_new = np.zeros(chosen.shape[1], dtype=bool)
    return Prediction(some.expected(), chosen, is_new)


def of_groups(
    model: Model,
    rows: Shard,
    draws: DrawsWithGroups,
    variable: str | None,
    rng: np.random.Generator,
) -> Prediction:
    """Predict rows by a program with local parameters."""
    if isinstance(model, PlateModel):
        return _of_plate(model, rows, draws, variable, rng)
    if isinstance(model, NestedPlateModel):
        return _of_nested_plates(model, rows, draws, variable, rng)
    functions = functions_of(model)
    if functions is not None:
        return _of_functions(functions, rows, draws, variable, rng)
    raise BadInputError(
        f"{type(model).__name__} has parameters of groups, and quorate does not know how to draw "
        "those of new rows. Use `posterior_predictive` for the rows of the run."
    )


def _of_functions(
    functions: LocalFunctions | NestedFunctions,
    rows: Shard,
    draws: DrawsWithGroups,
    variable: str | None,
    rng: np.random.Generator,
) -> Prediction:
    """Predict rows by functions with local parameters, of one or two levels."""
    for column in functions.columns:
        require(column in rows, f"No column named `{column}`, which defines the groups.")
    columns = [rows[column] for column in functions.columns]
    texts = group_names.of_rows(columns, draws.known.columns())
    some, found = draws.of_rows(texts[0])
    levels, is_new = [], np.zeros(len(texts[0]), dtype=bool)
    for level, labels in enumerate(texts):
        groups = _groups_of(functions, level, labels, len(some), found)
        is_new |= ~np.isin(groups.place, groups.known)
        levels.append(groups)
    seeds = RowNumbers(rng, len(some)).seeds()
    given = map(functions.parameters.constrain, some)
    drawn = functions.draws.responses_of(given, levels, rows, seeds)
    return Prediction(None, _chosen(drawn, variable), is_new)


def _groups_of(
    functions: LocalFunctions | NestedFunctions,
    level: int,
    labels: NDArray[np.str_],
    n_points: int,
    found: OfLevels,
) -> GroupsOfRows:
    """The groups of rows with these labels, and what was found of those that the run knows."""
    distinct, place = np.unique(labels, return_inverse=True)
    groups = GroupsOfRows.unknown(functions.local_parameters[level], place, n_points)
    if found:
        names, values = found[level]
        _, here, there = np.intersect1d(distinct, texts_of(names), return_indices=True)
        groups = groups._replace(known=here, values=values[:, there])
    new = np.delete(distinct, groups.known)
    require(
        not len(new) or bool(functions.draws.draw_local),
        f"{functions.columns[level]} has groups that the run does not know ({', '.join(new[:5])}). "
        "Give `draw_local` to from_functions: a function that draws the parameters of groups.",
    )
    return groups


def _of_plate(
    model: PlateModel,
    rows: Shard,
    draws: DrawsWithGroups,
    variable: str | None,
    rng: np.random.Generator,
) -> Prediction:
    """Predict rows by a program with a plate of groups."""
    inputs, order = new_inputs(model.program, rows)
    labels = np.asarray(rows[model.program.level.name])
    names = draws.known.labels()
    held = np.isin(model.group_numbers(names), labels)
    some, found = draws.of_groups(names[held])
    groups = None
    if found:
        [(of_groups, values)] = found
        groups = KnownGroups(model.group_numbers(of_groups), values)
    seeds = RowNumbers(rng, len(some)).seeds()
    drawn = _chosen(model.program.simulated(some, inputs, seeds, groups), variable)
    is_new = ~np.isin(labels, model.group_numbers(names[held]))
    return Prediction(None, _as_given(drawn, order), is_new)


def _of_nested_plates(
    model: NestedPlateModel,
    rows: Shard,
    draws: DrawsWithGroups,
    variable: str | None,
    rng: np.random.Generator,
) -> Prediction:
    """Predict rows by a program with two plates of groups that nest."""
    inputs, order = model.two.new_inputs(rows)
    outer, inner = (np.asarray(rows[column]) for column in model.two.columns)
    names, pairs = draws.known.labels(), model.pairs_of_numbers(draws.known.labels(1))
    _require_same_outer(pairs, outer, inner, model.two.columns)
    numbers = numbers_of(names, model.group_names[0])
    some, found = draws.of_groups(names[np.isin(numbers, outer)])
    groups = None
    if found:
        (first, of_outer), (second, of_inner) = found
        groups = (
            KnownGroups(numbers_of(first, model.group_names[0]), of_outer),
            KnownGroups(model.pairs_of_numbers(second)[:, 1], of_inner),
        )
    seeds = RowNumbers(rng, len(some)).seeds()
    drawn = _chosen(model.two.simulated(some, inputs, seeds, groups), variable)
    return Prediction(None, _as_given(drawn, order), ~np.isin(inner, pairs[:, 1]))


def _require_same_outer(
    known: IntArray, outer: IntArray, inner: IntArray, columns: tuple[str, str]
) -> None:
    """Refuse rows that put a known inner group into another outer group than the run does."""
    true = dict(known[:, ::-1].tolist())
    for own, given in zip(inner.tolist(), outer.tolist(), strict=True):
        require(
            true.get(own, given) == given,
            f"{columns[1]} {own} lies in {columns[0]} {true.get(own)}; the rows say {given}. Give "
            f"a new group of {columns[1]} a number that the run does not know.",
        )


def _as_given(drawn: Array, order: IntArray) -> Array:
    """Draws of sorted rows, in the order that the user gave the rows."""
    found = np.empty_like(drawn)
    found[:, order] = drawn
    return found


def _chosen(found: Mapping[str, Array], variable: str | None) -> Array:
    """The responses of the variable to predict."""
    names = ", ".join(found)
    require(
        variable in found or (variable is None and len(found) == 1),
        f"The model observes {names}. Say which of them to predict: variable={next(iter(found))!r}",
    )
    return found[variable or next(iter(found))]
