"""Directions along which neither the prior nor the rows of a shard say anything.

The log density is constant along such a direction, so every gradient is orthogonal to it. In a
regression with flat priors these are the directions that the rows of the design do not span. The
rank of a set of gradients decides this, before any search for a mode.
"""

from math import inf

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import BadInputError, ImproperError
from quorate.models.subposterior import Target
from quorate.samplers.differences import (
    MANY,
    Density,
    checked_density,
    find_scales,
    forgiving,
    forgiving_gradient,
    gradient_of,
    rounding,
)

_PRIOR_STEP = 100.0  # over which a prior changes unless it is flat
_SPARE = 5  # gradients beyond the number of coordinates
_STEP = 1e-2  # of a scale, for differences of fourth order
_ROUGH, _EXACT = 2e-9, 1e-13  # relative errors of differences, and of a model's own gradients
_FAR = (30.0, 1000.0)  # scales over which a flat log density does not change…
_SAME = 1e-3  # …by more than this


def refuse_flat(target: Target, x: Array, value: float) -> None:
    """Raise `ImproperError` if the log density, `value` at x, is constant along some line.

    Only coordinates with a flat prior are examined. Where these are many and the model has no
    gradients this would take too long: the search for a mode then has to find out.
    """
    free = _with_flat_prior(target, x)
    if not len(free) or (len(free) > MANY and not target.has_gradient):
        return
    density = forgiving(checked_density(target))
    scales = find_scales(density, x, value)
    scales[scales == inf] = 1.0
    slopes = _slopes(target, density, x, scales, free)
    unseen = _orthogonal(slopes, _EXACT if target.has_gradient else _ROUGH)
    if not unseen.shape[1]:
        return
    line = np.zeros(target.dim)
    line[free] = scales[free] * unseen[:, 0]
    ends = [density(x + sign * far * line) for far in _FAR for sign in (-1, 1)]
    if all(abs(end - value) <= _SAME + rounding(value) for end in ends):
        parts = np.linalg.norm(unseen, axis=1)
        order = [i for i in np.argsort(-parts) if parts[i] > 0.3 * parts.max()]
        names = [target.model.names[free[i]] for i in order]
        raise ImproperError("the log density does not change", names, target.n_rows)


def _with_flat_prior(target: Target, x: Array) -> IntArray:
    """Indices of the coordinates that the log prior does not depend on."""

    def log_prior(at: Array) -> float:
        try:
            with np.errstate(all="ignore"):
                return float(target.model.log_prior(at))
        except BadInputError:
            return -inf

    here = log_prior(x)
    is_flat = [
        all(abs(log_prior(x + sign * step) - here) <= rounding(here) for sign in (-1, 1))
        for step in np.diag(_PRIOR_STEP * (1 + np.abs(x)))
    ]
    return np.flatnonzero(is_flat)


def _slopes(target: Target, density: Density, x: Array, scales: Array, free: IntArray) -> Array:
    """Gradients over the `free` coordinates at points around x, in units of `scales`."""
    own = forgiving_gradient(gradient_of(target, density, scales))
    steps = np.diag(_STEP * scales)[free]

    def slope(at: Array) -> Array:
        if target.has_gradient:
            return own(at)[free] * scales[free]
        near, far = (
            np.array([density(at + k * step) - density(at - k * step) for step in steps])
            for k in (1, 2)
        )
        return np.asarray((8 * near - far) / (12 * _STEP))

    moves = np.random.default_rng(0).standard_normal((len(free) + _SPARE, len(x)))
    with np.errstate(all="ignore"):
        found = np.array([slope(x + scales * move) for move in moves])
    return np.asarray(found[np.isfinite(found).all(axis=1)])


def _orthogonal(slopes: Array, error: float) -> Array:
    """Directions, as columns, to which all `slopes` are orthogonal; none if these are too few."""
    n_points, n_free = slopes.shape
    if n_points < n_free:
        return np.zeros((n_free, 0))
    lengths = np.linalg.norm(slopes, axis=0)
    lengths[lengths == 0] = 1.0
    _, sizes, directions = np.linalg.svd(slopes / lengths)
    unseen = directions[sizes <= error * sizes[0]].T / lengths[:, None]
    return np.asarray(unseen / np.abs(unseen).max(axis=0, initial=0.0))
