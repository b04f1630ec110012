"""Prediction of new rows by programs: NumPyro, PyMC and functions."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import BadInputError, require
from quorate.models.groups.programs.functions import LocalFunctions
from quorate.models.groups.programs.model import ProgramModel
from quorate.models.groups.programs.nested_plates import NestedPlateModel
from quorate.models.groups.programs.plates import PlateModel
from quorate.models.groups.programs.simulation import KnownGroups, new_inputs
from quorate.models.protocol import Model, Shard
from quorate.models.rows import RowModel
from quorate.results.local import spaced
from quorate.results.prediction import Known, Prediction, RowNumbers


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
    points: Array,
    rows: Shard,
    known: Known,
    n: int,
    variable: str | None,
    rng: np.random.Generator,
    **asked: Any,
) -> Prediction:
    """Predict rows by a program with local parameters."""
    if isinstance(model, PlateModel):
        return _of_plate(model, points, rows, known, n, variable, rng, **asked)
    if isinstance(model, NestedPlateModel):
        return _of_nested_plates(model, points, rows, known, n, variable, rng, **asked)
    if isinstance(model, ProgramModel) and isinstance(model.program, LocalFunctions):
        return _of_functions(model.program, rows, known, n, variable, rng, **asked)
    raise BadInputError(
        f"{type(model).__name__} has parameters of groups, and quorate does not know how to draw "
        "those of new rows. Use `posterior_predictive` for the rows of the run."
    )


def _of_functions(
    program: LocalFunctions,
    rows: Shard,
    known: Known,
    n: int,
    variable: str | None,
    rng: np.random.Generator,
    **asked: Any,
) -> Prediction:
    """Predict rows of known groups by functions with local parameters."""
    column = program.groups
    require(column in rows, f"No column named `{column}`, which defines the groups.")
    labels = np.asarray(rows[column])
    new = np.setdiff1d(labels.astype(str), known.labels().astype(str))
    require(
        not len(new),
        f"{column} has groups that the run does not know ({', '.join(new[:5])}). Functions tell "
        "the density of a group's parameters, but do not draw them: predict rows of known groups.",
    )
    found = known.joint(np.unique(labels), n, **asked)
    names, values = found.levels[0]
    order = np.argsort(names.astype(str))
    at = order[np.searchsorted(names.astype(str)[order], labels.astype(str))]
    seeds = RowNumbers(rng, len(found.points)).seeds()
    drawn = _chosen(program.predicted(found.points, values[:, at], rows, seeds), variable)
    return Prediction(None, drawn, np.zeros(len(labels), dtype=bool))


def _of_plate(
    model: PlateModel,
    points: Array,
    rows: Shard,
    known: Known,
    n: int,
    variable: str | None,
    rng: np.random.Generator,
    **asked: Any,
) -> Prediction:
    """Predict rows by a program with a plate of groups."""
    inputs, order = new_inputs(model.program, rows)
    labels = np.asarray(rows[model.program.level.name])
    names = known.labels()
    held = np.isin(model.group_numbers(names), labels)
    some, groups = points[spaced(len(points), n)], None
    if held.any():
        found = known.joint(names[held], n, **asked)
        of_groups, values = found.levels[0]
        some, groups = found.points, KnownGroups(model.group_numbers(of_groups), values)
    seeds = RowNumbers(rng, len(some)).seeds()
    drawn = _chosen(model.program.simulated(some, inputs, seeds, groups), variable)
    is_new = ~np.isin(labels, model.group_numbers(names[held]))
    return Prediction(None, _as_given(drawn, order), is_new)


def _of_nested_plates(
    model: NestedPlateModel,
    points: Array,
    rows: Shard,
    known: Known,
    n: int,
    variable: str | None,
    rng: np.random.Generator,
    **asked: Any,
) -> Prediction:
    """Predict rows by a program with two plates of groups that nest."""
    inputs, order = model.two.new_inputs(rows)
    outer, inner = (np.asarray(rows[column]) for column in model.two.columns)
    names = known.labels()
    pairs = np.array([label.split(":") for label in known.labels(1)], dtype=np.int64).reshape(-1, 2)
    _require_same_outer(pairs, outer, inner, model.two.columns)
    held = np.isin(names.astype(np.int64), outer)
    some, groups = points[spaced(len(points), n)], None
    if held.any():
        found = known.joint(names[held], n, **asked)
        (first, of_outer), (second, of_inner) = found.levels
        numbers = np.array([label.split(":")[1] for label in second], dtype=np.int64)
        some = found.points
        groups = KnownGroups(first.astype(np.int64), of_outer), KnownGroups(numbers, of_inner)
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
