"""Prediction of new rows by programs: NumPyro, PyMC and functions."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from quorate._types import Array
from quorate.errors import require
from quorate.models.groups.levels import levels_of
from quorate.models.groups.programs.functions import LocalFunctions
from quorate.models.groups.programs.plates import PlateModel
from quorate.models.groups.programs.simulation import KnownGroups, new_inputs
from quorate.models.protocol import Model, Shard
from quorate.models.rows import RowModel, new_rows, require_ability
from quorate.results.local import spaced
from quorate.results.prediction import Known, Prediction, RowNumbers


def of_program(
    model: Model, points: Array, rows: Any, variable: str | None, rng: np.random.Generator
) -> Prediction:
    """Predict rows by a model that draws responses."""
    require(
        not levels_of(model),
        f"{type(model).__name__} has parameters of groups. Regressions, and programs with "
        "one level of groups, predict new rows; use `posterior_predictive` for those of the run.",
    )
    require_ability(model, "responses")
    arrays = new_rows(model, rows)
    some = cast(RowModel, model).rows_at(points, arrays)
    chosen = _chosen(some.responses(RowNumbers(rng, len(points))), variable)
    is_new = np.zeros(chosen.shape[1], dtype=bool)
    return Prediction(some.expected(), chosen, is_new)


def of_functions(
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


def of_plate(
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
    responses = np.empty_like(drawn)
    responses[:, order] = drawn
    return Prediction(None, responses, ~np.isin(labels, model.group_numbers(names[held])))


def _chosen(found: Mapping[str, Array], variable: str | None) -> Array:
    """The responses of the variable to predict."""
    names = ", ".join(found)
    require(
        variable in found or (variable is None and len(found) == 1),
        f"The model observes {names}. Say which of them to predict: variable={next(iter(found))!r}",
    )
    return found[variable or next(iter(found))]
