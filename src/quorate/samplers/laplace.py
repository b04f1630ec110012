"""Laplace's method: the mode of a subposterior and the curvature there.

The search makes damped Newton steps from the model's start, in coordinates scaled to their standard
deviations. It uses the model's gradients if there are any, else finite differences. The fit serves
as base, for whitening and for weights. It never changes the distribution that is drawn from.
"""

from contextlib import suppress
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
from scipy.linalg import solve_triangular

from quorate._types import Array
from quorate.errors import (
    BadInputError,
    ImproperError,
    NotANumberError,
    NotConvergedError,
    require,
)
from quorate.models.checks import at, call, require_scalar
from quorate.models.subposterior import Target
from quorate.samplers.differences import (
    MANY,
    Density,
    Refusing,
    are_resolved,
    checked_density,
    curvature,
    find_scales,
    forgiving,
    gradient_of,
    rounding,
)
from quorate.samplers.flatness import refuse_flat
from quorate.samplers.short_steps import with_gradients

_MAX_STEPS = 150
_FEW = 24  # dimensions in which a search that failed is made again by short differences
_CONVERGED = 1e-9  # predicted rise of the log density below which the search stops
_FLAT = 1e-13  # curvature, in units of the scale, below which a direction is flat
_SLIGHT = 1e-3  # rise of the log density, and curvature, over which curvature hardly changes
_RISE = 1e-5  # rise of the log density that justifies a step off a saddle
_FAR = (30.0, 90.0)  # standard deviations at one of which the log density must have fallen…
_FALL = 2.0  # …by this much, which even a Cauchy density does
_REFUSED = 1e100  # what the search falls by where the log density is not a number
_RESOLVED = 1e-13  # share of a coordinate below which a scale is lost in rounding


@dataclass(frozen=True)
class LaplaceFit:
    """The Gaussian N(mode, lower lowerᵀ): `mode` is (d,), `lower` a Cholesky factor (d, d)."""

    mode: Array
    lower: Array

    @property
    def cov(self) -> Array:
        """Covariance, the inverse of the curvature, shape (d, d)."""
        return np.asarray(self.lower @ self.lower.T)


@dataclass(frozen=True)
class _Place:
    """A point of the search, with its log density and the scales of its coordinates."""

    x: Array
    value: float
    scales: Array


def laplace_fit(target: Target, max_steps: int = _MAX_STEPS) -> LaplaceFit:
    """Mode and curvature of a subposterior, by at most `max_steps` Newton steps.

    Raises
    ------
    BadInputError
        The log density is NaN or infinite at the start, or the mode is at an edge.
    NotANumberError
        The log density is NaN or +inf all around the start, or next to the mode. The search refuses
        steps to other such points.
    ImproperError
        There is no mode, or no curvature along some direction; `NotConvergedError` if the steps did
        not suffice to tell.
    """
    density = Refusing(checked_density(target))
    start = _start(target, density)
    try:
        return _found(target, density, start, max_steps)
    except ImproperError:
        if target.has_gradient or target.dim > _FEW:
            raise
        exact = with_gradients(target, start.scales)
        with suppress(ImproperError, NotANumberError):
            return _found(exact, density, start, max_steps)
        raise


def _found(target: Target, density: Refusing, start: _Place, max_steps: int) -> LaplaceFit:
    """The fit that a search from a place leads to."""
    place = start
    if target.dim > MANY:  # start with quasi-Newton steps
        place = _quasi_newton(target, density, place)
    place, bends = _newton(target, density, place, max_steps)
    return _fit(target, density, place, bends)


def climbed(target: Target) -> tuple[Array, Array]:
    """A point near the mode, (d,), and the scales of the coordinates there, (d,).

    Quasi-Newton steps lead there. Kinks, which stall Newton's method, hardly slow them down. Raises
    the errors of `laplace_fit`.
    """
    density = Refusing(checked_density(target))
    place = _quasi_newton(target, density, _start(target, density))
    return place.x, place.scales


def starting_point(target: Target) -> tuple[Array, float]:
    """The model's start and the log density there. Raises `BadInputError` if not finite."""
    x = np.array(target.model.initial(), dtype=np.float64)
    require(
        x.shape == (target.dim,) and bool(np.isfinite(x).all()),
        f"The model's initial() returned {x}. It must return {target.dim} finite numbers.",
    )
    with np.errstate(all="ignore"):
        prior = call("log_prior", target.model.log_prior, x)
        likelihood = call("log_likelihood", target.model.log_likelihood, x, target.shard)
    for what, value in (("log_prior", prior), ("log_likelihood", likelihood)):
        require_scalar(what, value)
        require(
            isfinite(value),
            f"{what} is {float(value)} at the start, {at(x, target.model.names)}. Let the model's "
            "initial() return a point of positive probability, and look for missing values in the "
            "data, log(0) and overflow.",
        )
    value = float(prior / target.n_shards + likelihood)
    refuse_flat(target, x, value)
    return x, value


def _start(target: Target, density: Refusing) -> _Place:
    x, value = starting_point(target)
    return _Place(x, value, _scales(target, density, x, value))


def _scales(
    target: Target, density: Refusing, x: Array, value: float, guess: Array | None = None
) -> Array:
    n_refused = density.n_refused
    scales = find_scales(density, x, value, guess)
    if density.n_refused > n_refused:
        _require_resolved(target, density, x, value, scales, is_start=guess is None)
    flat = [name for name, scale in zip(target.model.names, scales, strict=True) if scale == inf]
    if flat:
        raise ImproperError("the log density does not change", flat, target.n_rows)
    is_lost = scales < _RESOLVED * np.abs(x)
    if is_lost.any():
        what = "the log density rises until rounding hides its shape"
        raise ImproperError(what, _named(target, is_lost.astype(np.float64)), target.n_rows)
    return scales


def _require_resolved(
    target: Target, density: Refusing, x: Array, value: float, scales: Array, *, is_start: bool
) -> None:
    """Raise if the log density is NaN or +inf wherever it differs from `value` along some axis."""
    with np.errstate(all="ignore"):
        unresolved = np.isfinite(scales) & ~are_resolved(density, x, value, scales)
    if not unresolved.any():
        return
    if is_start and density.reason is not None:
        raise density.reason
    what = f"the log density rises to where it is not a number ({density.reason})"
    raise ImproperError(what, _named(target, unresolved.astype(np.float64)), target.n_rows)


def _quasi_newton(target: Target, density: Refusing, place: _Place) -> _Place:
    """L-BFGS in scaled coordinates, so that few Newton steps are left."""
    from scipy.optimize import minimize  # slow to import, and seldom needed

    gradient = gradient_of(target, density, place.scales)

    def fall(z: Array) -> tuple[float, Array]:
        x = place.x + place.scales * z
        n_refused, value = density.n_refused, density(x)
        if density.n_refused > n_refused:
            return _REFUSED, np.zeros(target.dim)
        return -value, -gradient(x) * place.scales

    result = minimize(
        fall, np.zeros(target.dim), jac=True, method="L-BFGS-B", options={"maxiter": 2000}
    )
    x = place.x + place.scales * result.x
    value = density(x)
    if not value > place.value:
        return place
    return _Place(x, value, _scales(target, density, x, value, place.scales))


def _newton(
    target: Target, density: Refusing, place: _Place, max_steps: int
) -> tuple[_Place, Array]:
    """Newton steps to the mode. The curvature is measured again when it predicts badly."""
    bends, measured, before = curvature(target, density, place.x, place.scales), place, inf
    for _ in range(max_steps):
        direction, promised = _uphill(target, density, place, bends)
        moved = _line_search(density, place, direction, promised)
        if moved is None and place is measured:
            moved = _off_saddle(density, place, bends)
            if moved is None:
                return place, bends
        elif moved is None and _is_still_valid(bends, measured, place):
            return place, bends
        is_stale = moved is None or promised > 0.1 * before
        place, before = moved or place, promised
        if is_stale:
            place = measured = _rescaled(target, density, place)
            bends = curvature(target, density, place.x, place.scales)
    raise NotConvergedError(
        f"no mode was found in {max_steps} steps: the log density still rises",
        _named(target, (place.x - target.model.initial()) / place.scales),
        target.n_rows,
    )


def _is_still_valid(bends: Array, measured: _Place, place: _Place) -> bool:
    """Whether the curvature measured at a place nearby is valid here, and that of a mode."""
    return place.value < measured.value + _SLIGHT and np.linalg.eigvalsh(bends)[0] > _SLIGHT


def _rescaled(target: Target, density: Refusing, place: _Place) -> _Place:
    scales = _scales(target, density, place.x, place.value, place.scales)
    return _Place(place.x, place.value, scales)


def _uphill(target: Target, density: Refusing, place: _Place, bends: Array) -> tuple[Array, float]:
    """A Newton step, and the rise that it predicts.

    Negative and nearly zero curvatures are made positive.
    """
    gradient = gradient_of(target, density, place.scales)(place.x) * place.scales
    for i in np.flatnonzero(~np.isfinite(gradient + bends.sum(axis=0))):
        raise density.reason or _edge(target.model.names[i], float(gradient[i]))
    values, vectors = np.linalg.eigh(bends)
    sizes = np.maximum(np.abs(values), _FLAT * np.abs(values).max() + 1e-300)
    step = vectors @ ((vectors.T @ gradient) / sizes)
    return step, float(gradient @ step) / 2


def _line_search(
    density: Density, place: _Place, direction: Array, promised: float
) -> _Place | None:
    """The first of the full step, half of it, … that rises enough; None if none does."""
    share = 1.0 if promised > _CONVERGED else 0.0
    least = rounding(place.value)  # so that all machines stop at the same place
    while share > 1e-12:
        x = place.x + share * place.scales * direction
        value = density(x)
        if value > place.value + max(1e-4 * share * promised, least):
            return _Place(x, value, place.scales)
        share /= 2
    return None


def _off_saddle(density: Density, place: _Place, bends: Array) -> _Place | None:
    """A step along the direction of upward curvature to a higher density; None if there is none."""
    values, vectors = np.linalg.eigh(bends)
    if values[0] > _FLAT:
        return None
    for reach in (1.0, -1.0, 4.0, -4.0, 0.25, -0.25):
        x = place.x + reach * place.scales * vectors[:, 0]
        value = density(x)
        if value > place.value + _RISE:
            return _Place(x, value, place.scales)
    return None


def _fit(target: Target, density: Refusing, place: _Place, bends: Array) -> LaplaceFit:
    """The fit at a mode. Raises if the density does not bend and fall along every direction."""
    values, vectors = np.linalg.eigh(bends)
    weak = vectors[:, 0]
    if not values[0] > _FLAT * max(1.0, values[-1] / target.dim):
        along = _named(target, weak)
        if any(density(place.x + sign * place.scales * weak) == -inf for sign in (-2, 2)):
            raise density.reason or _edge(along[0], -inf)
        raise ImproperError("the log density has no curvature at its mode", along, target.n_rows)
    # Without a mode, as with separated classes, the search runs off along a flat direction
    travelled = (place.x - target.model.initial()) / place.scales
    for vector in (*vectors.T, travelled):
        bend = vector @ bends @ vector
        sd = place.scales * vector / np.sqrt(bend or 1.0)
        if sd.any() and not (_falls(density, place, sd) and _falls(density, place, -sd)):
            raise ImproperError(
                "the log density does not fall far from its mode",
                _named(target, vector),
                target.n_rows,
            )
    lower_of_precision = np.linalg.cholesky(bends[::-1, ::-1])[::-1, ::-1]  # U Uᵀ, U upper
    inverse = solve_triangular(lower_of_precision, np.eye(target.dim), lower=False)
    return LaplaceFit(place.x, np.asarray(place.scales[:, None] * inverse.T))


def _edge(along: str, received: float) -> BadInputError:
    return BadInputError(
        f"The log density or its slope is {received} next to the mode along {along}. Use "
        "coordinates without edges, such as the logarithm of a positive parameter."
    )


def _falls(density: Density, place: _Place, sd: Array) -> bool:
    """Whether the density falls far along `sd`; at one distance there may be another mode."""
    at = forgiving(density)  # the density may overflow so far out
    return any(at(place.x + far * sd) < place.value - _FALL for far in _FAR)


def _named(target: Target, direction: Array) -> list[str]:
    """Names of the coordinates that dominate a direction, the largest first."""
    order = np.argsort(-np.abs(direction))
    wanted = [i for i in order if abs(direction[i]) > 0.3 * abs(direction[order[0]])]
    return [target.model.names[i] for i in wanted]
