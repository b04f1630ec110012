"""Gradients and curvature of a log density by finite differences.

Each coordinate gets a *scale* first: the step over which the second difference of the log density
is about 1, which is its standard deviation given all others. Differences over a fraction of that
step are large compared with rounding errors, and do not depend on units.
"""

from collections.abc import Callable
from math import inf, isfinite, isnan

import numpy as np

from quorate._types import Array, BoolArray
from quorate._warnings import warn
from quorate.errors import BadInputError, NotANumberError, NotANumberWarning
from quorate.models.subposterior import Target

Density = Callable[[Array], float]
Gradient = Callable[[Array], Array]

_STEP = 0.1  # of a scale, for first differences of gradients and of log densities
_LONG_STEP = 0.3  # of a scale, for second differences, which suffer more from rounding
_GOOD = (0.2, 5.0)  # acceptable second differences over one scale
_LONGEST = 1e10  # scale beyond which a direction counts as flat
_MAX_TRIES = 40
_MANY_REFUSED, _NEARLY_ALL = 100, 0.95  # proposals, and their share, that a chain may refuse
MANY = 64  # dimensions above which curvature takes long to measure
_WEAK = 1e-6  # curvature, relative to the largest, that rounding may hide…
_BENT = 1e-2  # …and, without gradients, that higher orders may hide over a long step
_ALIKE = 1e-2  # relative difference of curvatures whose eigenvectors rounding may mix
_HIDDEN = 1e-12  # curvature, relative to the largest, assumed for a hidden one


def checked_density(target: Target) -> Density:
    """Log density of `target` as a float. It raises `NotANumberError` for NaN and +inf."""

    def density(x: Array) -> float:
        with np.errstate(all="ignore"):
            value = float(target.log_density(x))
        if isnan(value) or value == inf:
            raise NotANumberError.at_point(value, x.tolist())
        return value

    return density


def forgiving(density: Density) -> Density:
    """`density`, with -inf instead of an error, for points far out where it may overflow."""

    def at(x: Array) -> float:
        try:
            return density(x)
        except BadInputError:
            return -inf

    return at


class Refusing:
    """A density with -inf instead of `NotANumberError`, so that a search refuses steps there.

    Attributes
    ----------
    n_refused
        Points refused so far.
    reason
        The error at the last of them.
    """

    def __init__(self, density: Density) -> None:
        self._density = density
        self.n_refused = 0
        self.reason: NotANumberError | None = None

    def __call__(self, x: Array) -> float:
        try:
            return self._density(x)
        except NotANumberError as error:
            self.n_refused, self.reason = self.n_refused + 1, error
            return -inf


def wary(density: Density) -> Density:
    """`density` for proposals: -inf instead of `NotANumberError`, with one warning.

    If nearly all proposals are refused, that is an error: the draws would be one point.
    """
    refusing, n_proposals = Refusing(density), 0

    def at(x: Array) -> float:
        nonlocal n_proposals
        n_before, value = refusing.n_refused, refusing(x)
        n_proposals += 1
        n_refused = refusing.n_refused
        if n_refused > n_before:
            reason = str(refusing.reason).rstrip(".")
            if n_refused >= _MANY_REFUSED and n_refused > _NEARLY_ALL * n_proposals:
                share = f"{n_refused} of {n_proposals} proposals were refused for such a reason"
                raise NotANumberError(f"{reason}. {share}, so the chain does not move.")
            if n_refused == 1:
                text = f"{reason}. Proposals there were rejected, as if the density were 0."
                warn(text, NotANumberWarning)
        return value

    return at


def gradient_of(target: Target, density: Density, scales: Array) -> Gradient:
    """Gradient of the log density: the model's own, or by central differences."""
    if target.has_gradient:

        def own(x: Array) -> Array:
            with np.errstate(all="ignore"):
                return np.asarray(target.log_density_and_gradient(x)[1], dtype=np.float64)

        return own

    steps = np.diag(_STEP * scales)

    def differences(x: Array) -> Array:
        rises = [density(x + step) - density(x - step) for step in steps]
        return np.array(rises) / (2 * _STEP * scales)

    return differences


def forgiving_gradient(gradient: Gradient) -> Gradient:
    """`gradient`, with 0 where it is not finite or the model raises an error."""

    def at(x: Array) -> Array:
        try:
            found = gradient(x)
        except BadInputError:
            return np.zeros(len(x))
        return np.where(np.isfinite(found), found, 0.0)

    return at


def rounding(value: float) -> float:
    """Upper bound on the rounding error of a log density of this size."""
    return 1e-12 * (1 + abs(value))


def find_scales(density: Density, x: Array, value: float, guess: Array | None = None) -> Array:
    """Scale of every coordinate around x; infinity along flat coordinates."""
    first = np.maximum(np.abs(x), 1.0) * 0.01 if guess is None else guess
    return np.array([_scale(density, x, value, i, first[i]) for i in range(len(x))])


def _scale(density: Density, x: Array, value: float, i: int, scale: float) -> float:
    step = np.zeros(len(x))
    noise = rounding(value)
    unit = max(1.0, 1e4 * noise)  # a second difference that rounding does not affect
    for _ in range(_MAX_TRIES):
        step[i] = scale
        bend = abs(density(x + step) + density(x - step) - 2 * value)
        if _GOOD[0] <= bend / unit <= _GOOD[1]:
            break
        if not isfinite(bend):
            scale /= 10
        elif bend <= noise:
            scale *= 100
        else:
            scale *= float(np.clip((unit / bend) ** 0.5, 1e-2, 1e2))
        if scale > _LONGEST * (1 + abs(x[i])):
            return inf
    return float(scale)


def are_resolved(density: Density, x: Array, value: float, scales: Array) -> BoolArray:
    """Whether the second difference over each scale is about what it has to be, shape (d,)."""
    unit = max(1.0, 1e4 * rounding(value))
    bends = [abs(density(x + step) + density(x - step) - 2 * value) for step in np.diag(scales)]
    return np.array([_GOOD[0] <= bend / unit <= _GOOD[1] for bend in bends])


def curvature(target: Target, density: Density, x: Array, scales: Array) -> Array:
    """Minus the Hessian at x in units of `scales`, symmetric, shape (d, d).

    If coordinates are nearly collinear, the density bends so little along some direction that
    rounding or higher orders hide it. All directions are then measured again, each over its own
    scale. With many dimensions only the weak ones are, unless rounding affects the others.
    """
    bends = _measured(target, density, x, np.diag(scales))
    if not np.isfinite(bends).all():
        return bends
    values, vectors = np.linalg.eigh(bends)
    sizes = np.abs(values)
    is_drowned = sizes <= _WEAK * sizes.max()
    is_weak = is_drowned | (sizes <= (0 if target.has_gradient else _BENT) * sizes.max())
    if not is_weak.any() or is_weak.all():
        return bends
    all_again = target.dim <= MANY or is_drowned.any()
    doubtful = np.ones_like(is_weak) if all_again else is_weak
    lengths = np.maximum(sizes[doubtful], _HIDDEN * sizes.max()) ** -0.5
    axes = _steady(values[doubtful], vectors[:, doubtful]) * lengths
    own = _own_scales(density, x, scales[:, None] * axes)
    seen = np.isfinite(own)
    if not seen[~is_weak[doubtful]].all():  # too far from the mode, even for strong directions
        return bends
    kept, axes = vectors[:, ~doubtful], axes[:, seen] * own[seen]
    again = _measured(target, density, x, scales[:, None] * axes)
    turned = axes / np.sum(axes**2, axis=0)
    return np.asarray((kept * values[~doubtful]) @ kept.T + turned @ again @ turned.T)


def _steady(values: Array, vectors: Array) -> Array:
    """Eigenvectors that do not depend on rounding, neither in sign nor for nearly equal values.

    Eigenvectors of nearly equal values span a subspace. They are replaced by projections of
    coordinate axes onto it, made orthogonal one after the other. Each time, the first of the axes
    about nearest to the subspace is taken.
    """
    ends = np.flatnonzero(np.diff(values) > _ALIKE * np.abs(values[1:])) + 1
    found: list[Array] = []
    for span in np.split(vectors, ends, axis=1):
        left = span @ span.T
        for _ in range(span.shape[1]):
            lengths = np.diagonal(left)
            j = int(np.argmax(lengths > 0.5 * lengths.max()))
            found.append(left[:, j] / np.sqrt(lengths[j]))
            left = left - np.outer(found[-1], found[-1])
    return np.stack(found, axis=1)


def _own_scales(density: Density, x: Array, axes: Array) -> Array:
    """Scales along the columns of `axes`, in units of their lengths."""
    n = axes.shape[1]
    return find_scales(lambda w: density(x + axes @ w), np.zeros(n), density(x), np.ones(n))


def _measured(target: Target, density: Density, x: Array, axes: Array) -> Array:
    """Minus the Hessian at x along the columns of `axes`, each one scale long."""
    if target.has_gradient:
        own = gradient_of(target, density, np.ones(len(x)))
        bends = _from_gradients(lambda w: axes.T @ own(x + axes @ w), axes.shape[1])
    else:
        bends = _from_densities(lambda w: density(x + axes @ w), axes.shape[1])
    return np.asarray(-(bends + bends.T) / 2)


def _from_gradients(gradient: Gradient, dim: int) -> Array:
    rows = [gradient(step) - gradient(-step) for step in _STEP * np.eye(dim)]
    return np.array(rows).reshape(dim, dim) / (2 * _STEP)


def _from_densities(density: Density, dim: int) -> Array:
    steps = _LONG_STEP * np.eye(dim)
    here = density(np.zeros(dim))
    ahead = np.array([density(step) for step in steps])
    behind = np.array([density(-step) for step in steps])
    bends = np.diag((ahead - 2 * here + behind) / _LONG_STEP**2)
    for i in range(dim):
        for j in range(i):
            both = density(steps[i] + steps[j]) + density(-steps[i] - steps[j])
            cross = both - ahead[i] - ahead[j] - behind[i] - behind[j] + 2 * here
            bends[i, j] = bends[j, i] = cross / (2 * _LONG_STEP**2)
    return bends
