"""The rows of bundles at points, by the family of a regression."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from quorate._types import Array
from quorate.models.groups.regressions.kernels import Rows
from quorate.models.groups.regressions.points import Points
from quorate.models.groups.regressions.rows import Bundle
from quorate.models.regressions.families import Logistic, NegativeBinomial, Poisson
from quorate.models.regressions.family import Family


def rows_of(family: Family, bundle: Bundle, points: Points, has_ones: bool) -> Rows:
    """The rows of a bundle at some points. `has_ones`: whether Z starts with a column of ones."""
    is_intercept = has_ones and bundle.varying.shape[1] == 1
    rows = _FAMILIES[type(family)](bundle, points, None if is_intercept else bundle.varying)
    return replace(rows, has_ones=has_ones)


def _logistic(bundle: Bundle, points: Points, varying: Array | None) -> Rows:
    offsets = _offsets(bundle, points.betas)
    return Rows(
        "softplus",
        offsets,
        _for_each(offsets, bundle.counts),
        bundle.response,
        varying,
        count_once=bool(((bundle.counts == 0) | (bundle.counts == 1)).all()),
    )


def _poisson(bundle: Bundle, points: Points, varying: Array | None) -> Rows:
    offsets = _offsets(bundle, points.betas)
    return Rows(
        "exponential",
        offsets,
        _for_each(offsets, bundle.counts),
        bundle.response,
        varying,
    )


def _negative_binomial(bundle: Bundle, points: Points, varying: Array | None) -> Rows:
    phi = np.exp(points.log_scales)[:, None]
    return Rows(
        "softplus",
        _offsets(bundle, points.betas) - points.log_scales[:, None],
        bundle.response[:, None] + bundle.counts[:, None] * phi,
        bundle.response,
        varying,
        has_scale=True,
    )


def _offsets(bundle: Bundle, betas: Array) -> Array:
    """Xβ of every row, and its offset, (size, n_points, g); -inf in rows that count nothing."""
    offsets = betas @ bundle.columns
    if bundle.offset.shape[1]:
        offsets += bundle.offset[:, :1]
    np.copyto(offsets, -np.inf, where=(bundle.counts == 0)[:, None])
    return np.asarray(offsets)


def _for_each(offsets: Array, counts: Array) -> Array:
    """The counts of rows, the same for each point."""
    return np.broadcast_to(counts[:, None], offsets.shape)


_FAMILIES: Mapping[type, Callable[[Bundle, Points, Array | None], Rows]] = {
    Logistic: _logistic,
    Poisson: _poisson,
    NegativeBinomial: _negative_binomial,
}
