"""Search for other modes of a subposterior than the one its chain starts in.

A chain may never leave the mode it starts in, and its draws do not show that. The verdict evaluates
the posterior at the modes found here. They never change what is drawn.
"""

from collections.abc import Iterator
from contextlib import suppress
from math import inf

import numpy as np
from scipy.linalg import solve_triangular

from quorate._types import Array
from quorate.errors import BadInputError
from quorate.models.subposterior import Target
from quorate.samplers.differences import (
    checked_density,
    forgiving,
    forgiving_gradient,
    gradient_of,
)
from quorate.samplers.laplace import LaplaceFit
from quorate.samplers.protocol import State

_STARTS = 2  # besides the reflection of the mode at the model's start
_SPREAD = 4.0  # of the starts; unconstrained coordinates are mostly of size 1
_STEPS = 40  # per search
_MOST_DIMENSIONS = 16  # without gradients
_APART = 4.0  # least distance of modes, in standard deviations
_LOWER = 10.0  # most that another mode may be below the first, in log density…
_VALLEY = 2.0  # …and least depth of the valley between two modes


def other_modes(target: Target, fit: LaplaceFit) -> State:
    """Entry `other_modes` (m, d) for a state; empty if there are none."""
    if target.dim > _MOST_DIMENSIONS and not target.has_gradient:
        return {}
    search = _Search(target, fit)
    found: list[Array] = []
    for start in _starts(target, fit):
        top = search.climbed(start)
        if top is not None and all(search.are_apart(top, known) for known in (fit.mode, *found)):
            found.append(top)
    return {"other_modes": np.stack(found)} if found else {}


def _starts(target: Target, fit: LaplaceFit) -> Iterator[Array]:
    own = np.array(target.model.initial(), dtype=np.float64)
    yield 2 * own - fit.mode
    # The same starts for all shards, because the verdict merges the first mode of each
    for z in np.random.default_rng(0).standard_normal((_STARTS, target.dim)):
        yield own + _SPREAD * z


class _Search:
    """Ascents in coordinates in which the first mode is at 0 and standard deviations are 1."""

    def __init__(self, target: Target, fit: LaplaceFit) -> None:
        self.target = target
        self.fit = fit
        self.density = forgiving(checked_density(target))
        gradient = gradient_of(target, self.density, np.sqrt(np.diag(fit.cov)))
        self.gradient = forgiving_gradient(gradient)
        self.height = self.density(fit.mode)

    def climbed(self, start: Array) -> Array | None:
        """The mode found by ascent from `start`; None if it is too low to count."""
        from scipy.optimize import minimize  # slow to import

        if self.density(start) == -inf:
            return None
        with np.errstate(all="ignore"):
            z = minimize(
                self._depth,
                self._inner(start),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": _STEPS},
            ).x
        top = self._outer(z)
        return top if self.density(top) > self.height - _LOWER else None

    def are_apart(self, one: Array, other: Array) -> bool:
        """Whether two points are far from each other and a valley separates them."""
        if np.linalg.norm(self._inner(one) - self._inner(other)) < _APART:
            return False
        between = [one + share * (other - one) for share in np.arange(1, 10) / 10]
        lowest = min(self.density(x) for x in between)
        return lowest < min(self.density(one), self.density(other)) - _VALLEY

    def _depth(self, z: Array) -> tuple[float, Array]:
        value, gradient = self._value_and_gradient(self._outer(z))
        return min(self.height - value, 1e100), -self.fit.lower.T @ gradient

    def _value_and_gradient(self, x: Array) -> tuple[float, Array]:
        """Log density and gradient, in one call if the model has it and both are finite."""
        if self.target.has_gradient:
            with np.errstate(all="ignore"), suppress(BadInputError):
                value, gradient = self.target.log_density_and_gradient(x)
                if np.isfinite(value) and np.isfinite(gradient).all():
                    return value, gradient
        return self.density(x), self.gradient(x)

    def _outer(self, z: Array) -> Array:
        return np.asarray(self.fit.mode + self.fit.lower @ z)

    def _inner(self, x: Array) -> Array:
        return np.asarray(solve_triangular(self.fit.lower, x - self.fit.mode, lower=True))
