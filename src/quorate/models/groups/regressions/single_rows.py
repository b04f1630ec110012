"""Rows of a regression with groups, one by one, and groups one by one.

The log-likelihood of a group is integrated over its coefficients. That of a row is conditional on
the coefficients of its group, which are drawn.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from quorate._types import Array, IntArray
from quorate.models.groups.regressions.level_arrays import codes_of_level
from quorate.models.protocol import Shard
from quorate.models.rows import RegressionRows, regression_rows, some_of

if TYPE_CHECKING:
    from quorate.models.groups.regressions.regression import GroupedRegression

Local = Mapping[str, tuple[IntArray, Array]]  # by level: codes of groups, draws (n, m, q)
_ENTRIES = 4_194_304  # of points times rows at a time


def group_values(
    model: "GroupedRegression", points: Array, shard: Shard, groups: IntArray, integrals: Array
) -> Array:
    """Integrated log-likelihoods (n_points, m), from the integrals alone (n_points, m)."""
    places = places_of(model, shard, groups)
    rows = some_of(shard, places)
    which = np.searchsorted(groups, codes_of_level(rows, len(places), model.levels, 0))
    totals = integrals.copy()
    at_once = max(1, _ENTRIES // max(len(places), 1))
    for first in range(0, len(points), at_once):
        at = slice(first, first + at_once)
        of_rows = model.fixed.rows_at(points[at], rows)
        for total, values in zip(totals[at], of_rows.outside(), strict=True):
            total += np.bincount(which, weights=values, minlength=len(groups))
    return totals


def rows_given(
    model: "GroupedRegression", points: Array, shard: Shard, groups: IntArray, local: Local
) -> tuple[IntArray, RegressionRows]:
    """Places of the rows of some groups, and the rows at the coefficients of their groups."""
    places = places_of(model, shard, groups)
    rows = some_of(shard, places)
    eta = model.fixed.predictors(points, rows)
    for i, level in enumerate(model.levels):
        codes, draws = local[level.name]
        order = np.argsort(codes)
        mine = codes_of_level(rows, len(places), model.levels, i)
        which = order[np.searchsorted(codes[order], mine)]
        eta += np.einsum("rj,nrj->nr", model.varying_columns(rows, i), draws[:, which])
    scales = model.fixed.log_scales(points)
    return places, regression_rows(model.family, eta, scales, rows)


def from_the_prior(
    model: "GroupedRegression",
    points: Array,
    shard: Shard,
    groups: IntArray,
    uniforms: Callable[[int, IntArray], Array],
) -> Local:
    """Coefficients of groups from their distribution, whatever their rows say."""
    rows = some_of(shard, places_of(model, shard, groups))
    found = {}
    for i, level in enumerate(model.levels):
        codes = np.unique(codes_of_level(rows, len(rows["X"]), model.levels, i))
        normals = ndtri(uniforms(i, codes)[..., : len(level.names)])
        found[level.name] = (codes, model.new_groups(points, normals, i))
    return found


def places_of(model: "GroupedRegression", shard: Shard, groups: IntArray) -> IntArray:
    """Places of the rows of some groups in a shard."""
    codes = codes_of_level(shard, len(shard["X"]), model.levels, 0)
    return np.flatnonzero(np.isin(codes, groups))
