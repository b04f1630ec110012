"""Prediction of new rows: of regressions, for groups that the run knows and for new ones; and of
all models that draw responses.

The coefficients of a known group are drawn by the workers that hold its rows, jointly with the
global parameters. Those of a new group are drawn from N(0, Σ). Where groups lie within others, a
new group may lie within a known one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from quorate._extras import load
from quorate._types import Array
from quorate.data.codes import LEVELS
from quorate.errors import BadInputError, require
from quorate.models.groups.levels import levels_of
from quorate.models.groups.programs.functions import LocalFunctions
from quorate.models.groups.programs.model import ProgramModel
from quorate.models.groups.programs.plates import PlateModel
from quorate.models.groups.programs.simulation import KnownGroups, new_inputs
from quorate.models.groups.regressions.regression import GroupedRegression
from quorate.models.observed import extras_of
from quorate.models.protocol import Model, Shard
from quorate.models.regressions.glm import GeneralisedLinearModel
from quorate.models.rows import RowModel, Seeds, new_rows, require_ability
from quorate.results.local import LocalDraws, spaced

if TYPE_CHECKING:
    import pandas as pd

N_DRAWS = 1000
INTERVAL = 0.94


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a model says of some rows, draw by draw.

    Parameters
    ----------
    expected
        The mean of the response given the parameters, (n_draws, n_rows); None if the model does
        not tell it.
    responses
        Draws of the response itself, (n_draws, n_rows).
    is_new
        Rows whose group the run does not know on some level, (n_rows,).
    """

    expected: Array | None
    responses: Array
    is_new: NDArray[np.bool_]

    def summary(self, interval: float = INTERVAL) -> "pd.DataFrame":
        """Mean, sd and equal-tailed intervals of the expected response and of the response.

        Where the model does not tell what to expect, mean and sd are those of the response.

        Parameters
        ----------
        interval
            Probability of the intervals.
        """
        require(0 < interval < 1, f"interval must be between 0 and 1, not {interval}.")
        shape = self.responses.shape
        require(len(shape) == 2, f"Rows have responses of shape {shape[2:]}. Use `responses`.")
        tails = [(1 - interval) / 2, (1 + interval) / 2]
        response_low, response_high = np.quantile(self.responses, tails, axis=0)
        shown = self.responses if self.expected is None else self.expected
        columns = {"mean": shown.mean(axis=0), "sd": shown.std(axis=0)}
        if self.expected is not None:
            low, high = np.quantile(self.expected, tails, axis=0)
            columns |= {"lower": low, "upper": high}
        columns |= {"response_lower": response_low, "response_upper": response_high}
        if self.expected is not None or self.is_new.any():
            columns["new_group"] = self.is_new
        frame: pd.DataFrame = load("pandas", "arviz").DataFrame(columns)
        return frame


class Known(Protocol):
    """Asks the workers for draws of known groups: `LocalParameters.joint`."""

    def labels(self) -> NDArray[Any]:
        """Labels of the groups that the run knows."""

    def joint(self, groups: Any, n: int | None = None, **asked: Any) -> LocalDraws:
        """Draws of the parameters of some groups, with the draws they go with."""


def predicted(
    model: Model,
    points: Array,
    rows: Any,
    known: Known | None,
    n: int,
    seed: int = 0,
    variable: str | None = None,
    **asked: Any,
) -> Prediction:
    """Predict rows; see `quorate.results.predictive.predict`."""
    rng = np.random.default_rng(seed)
    if isinstance(model, PlateModel):
        assert known is not None
        require_ability(model, "responses")
        return _of_plate(model, points, new_rows(model, rows), known, n, variable, rng, **asked)
    if isinstance(model, ProgramModel) and isinstance(model.program, LocalFunctions):
        assert known is not None
        require_ability(model, "responses")
        return _of_functions(model.program, new_rows(model, rows), known, n, variable, rng, **asked)
    if not isinstance(model, GeneralisedLinearModel | GroupedRegression):
        return _of_program(model, points[spaced(len(points), n)], rows, variable, rng)
    arrays = _arrays(model, rows)
    if isinstance(model, GeneralisedLinearModel):
        some = points[spaced(len(points), n)]
        eta = model.predictors(some, arrays)
        return _prediction(model, some, eta, arrays, np.zeros(eta.shape[1], dtype=bool), rng)
    assert known is not None
    texts = _labels(arrays, len(model.levels))
    some, found = _drawn(points, known, texts[0], n, **asked)
    eta = model.fixed.predictors(some, arrays)
    is_new = np.zeros(eta.shape[1], dtype=bool)
    for level, labels in enumerate(texts):
        distinct, which = np.unique(labels, return_inverse=True)
        local, is_known = _local(model, some, level, distinct, found, rng)
        eta += np.einsum("rj,nrj->nr", model.varying_columns(arrays, level), local[:, which])
        is_new |= ~is_known[which]
    return _prediction(model.fixed, some, eta, arrays, is_new, rng)


def _of_program(
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


@dataclass(frozen=True)
class RowNumbers:
    """Random numbers for the responses of rows, from one generator; a `models.rows.Random`."""

    rng: np.random.Generator
    n_points: int

    def uniforms(self, n_rows: int) -> Array:
        return self.rng.uniform(size=(self.n_points, n_rows))

    def seeds(self) -> Seeds:
        return self.rng.integers(1 << 32, size=(self.n_points, 2), dtype=np.uint32)


def _arrays(model: GeneralisedLinearModel | GroupedRegression, rows: Any) -> Mapping[str, Any]:
    """`X`, `Z` and `group` of rows: made by the encoding of the formula, or given.

    Those of an inner level are `Z_inner` and `inner`.
    """
    encoding = model.encoding
    if encoding is None:
        needed = ["X", *LEVELS[: len(levels_of(model))]]
        lacking = [name for name in needed if not isinstance(rows, Mapping) or name not in rows]
        require(
            not lacking,
            f"The rows have no {' and no '.join(f'`{name}`' for name in lacking)}. This model is "
            "of no formula, so give a dictionary of the arrays that it takes.",
        )
        return dict(rows)
    arrays: dict[str, Any] = dict(encoding.arrays(rows, response=False))
    columns = encoding.group_columns.split("/") if encoding.group_columns else []
    for name, column in zip(LEVELS, columns, strict=False):
        try:
            arrays[name] = np.asarray(rows[column])
        except (KeyError, ValueError):
            raise BadInputError(f"No column named `{column}`, which defines the groups.") from None
    return arrays


def _labels(arrays: Mapping[str, Any], n_levels: int) -> list[NDArray[np.str_]]:
    """The label of each row's group, level by level: `WA`, and `WA:King` within it."""
    columns = [np.asarray(arrays[name]) for name in LEVELS[:n_levels]]
    texts = [columns[0].astype(str)]
    if n_levels > 1:
        pairs = zip(*(column.tolist() for column in columns), strict=True)
        texts.append(np.array([":".join(map(str, pair)) for pair in pairs]))
    return texts


def _drawn(
    points: Array, known: Known, labels: NDArray[np.str_], n: int, **asked: Any
) -> tuple[Array, tuple[tuple[NDArray[Any], Array], ...]]:
    """Draws (n, d), and for each level the labels and coefficients of known groups."""
    held = np.intersect1d(labels, known.labels().astype(str))
    if not len(held):
        return points[spaced(len(points), n)], ()
    found = known.joint(held, n, **asked)
    return found.points, found.levels


def _local(
    model: GroupedRegression,
    points: Array,
    level: int,
    labels: NDArray[np.str_],
    found: Sequence[tuple[NDArray[Any], Array]],
    rng: np.random.Generator,
) -> tuple[Array, NDArray[np.bool_]]:
    """Coefficients of the groups with these labels, (n, m, q), and which of them are known."""
    normals = rng.standard_normal((len(points), len(labels), len(model.levels[level].names)))
    local = model.new_groups(points, normals, level)
    if not found:
        return local, np.zeros(len(labels), dtype=bool)
    names, draws = found[level]
    _, here, there = np.intersect1d(labels, names.astype(str), return_indices=True)
    local[:, here] = draws[:, there]
    return local, np.isin(np.arange(len(labels)), here)


def _prediction(
    model: GeneralisedLinearModel,
    points: Array,
    eta: Array,
    arrays: Mapping[str, Any],
    is_new: NDArray[np.bool_],
    rng: np.random.Generator,
) -> Prediction:
    uniforms = rng.uniform(size=eta.shape)
    scales, trials = model.log_scales(points)[:, None], extras_of(arrays, len(is_new)).get("trials")
    family = model.family
    drawn = family.responses(eta, scales, uniforms, trials)
    return Prediction(family.expected(eta, trials), drawn, is_new)
