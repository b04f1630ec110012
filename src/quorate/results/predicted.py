"""Prediction of new rows: of regressions, for groups that the run knows and for new ones; and of
all models that draw responses.

The coefficients of a known group are drawn by the workers that hold its rows, jointly with the
global parameters. Those of a new group are drawn from N(0, Σ). Where groups lie within others, a
new group may lie within a known one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array
from quorate.data.codes import LEVELS
from quorate.data.label_text import texts_of
from quorate.errors import BadInputError, require
from quorate.models.groups.levels import levels_of
from quorate.models.groups.regressions.regression import GroupedRegression
from quorate.models.observed import extras_of
from quorate.models.protocol import Model
from quorate.models.regressions.glm import GeneralisedLinearModel
from quorate.models.rows import new_rows, require_ability, require_equal_lengths, require_table
from quorate.results import group_names
from quorate.results.predicted_programs import of_groups, of_program
from quorate.results.prediction import DrawsWithGroups, Known, Prediction
from quorate.results.some_draws import scattered


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
    if not isinstance(model, GeneralisedLinearModel | GroupedRegression):
        require_ability(model, "responses")
        some_rows = new_rows(model, rows)
        if known is None:
            return of_program(model, points[scattered(len(points), n)], some_rows, variable, rng)
        draws = DrawsWithGroups(points, known, n, asked)
        return of_groups(model, some_rows, draws, variable, rng)
    arrays = _arrays(model, rows)
    if isinstance(model, GeneralisedLinearModel):
        some = points[scattered(len(points), n)]
        eta = model.predictors(some, arrays)
        return _prediction(model, some, eta, arrays, np.zeros(eta.shape[1], dtype=bool), rng)
    assert known is not None
    columns = [arrays[name] for name in LEVELS[: len(model.levels)]]
    texts = group_names.of_rows(columns, known.columns())
    some, found = DrawsWithGroups(points, known, n, asked).of_rows(texts[0])
    eta = model.fixed.predictors(some, arrays)
    is_new = np.zeros(eta.shape[1], dtype=bool)
    for level, labels in enumerate(texts):
        distinct, which = np.unique(labels, return_inverse=True)
        local, is_known = _local(model, some, level, distinct, found, rng)
        eta += np.einsum("rj,nrj->nr", model.varying_columns(arrays, level), local[:, which])
        is_new |= ~is_known[which]
    return _prediction(model.fixed, some, eta, arrays, is_new, rng)


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
        require_equal_lengths(rows)
        return dict(rows)
    require_table(rows)
    columns = encoding.group_columns.split("/") if encoding.group_columns else []
    if isinstance(rows, Mapping):
        read = {*encoding.predictors, *columns}
        require_equal_lengths({name: rows[name] for name in rows if name in read})
    arrays: dict[str, Any] = dict(encoding.arrays(rows, response=False))
    for name, column in zip(LEVELS, columns, strict=False):
        try:
            arrays[name] = np.asarray(rows[column])
        except (KeyError, ValueError):
            raise BadInputError(f"No column named `{column}`, which defines the groups.") from None
    return arrays


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
    _, here, there = np.intersect1d(labels, texts_of(names), return_indices=True)
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
