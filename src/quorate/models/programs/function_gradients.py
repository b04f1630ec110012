"""Gradients that users give of plain functions, carried over to the unconstrained vector."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quorate._types import Array
from quorate.errors import BadInputError, WrongShapeError
from quorate.models.arrays import flatten
from quorate.models.checks import call, settled, settled_gradient
from quorate.models.parameters import Parameters, Path
from quorate.models.programs.function_models import FunctionModel, Functions, VectorisedFunctions
from quorate.models.protocol import Shard
from quorate.models.supports import Positive, Real, Support, UnitInterval

_STEP = 1e-6  # of central differences of supports without a formula here


@dataclass(frozen=True)
class GradientFunctionModel(FunctionModel):
    """A model with gradients, from numpy functions and functions of their gradients."""

    prior_gradient: Callable[..., Any] = field(kw_only=True)
    likelihood_gradient: Callable[..., Any] = field(kw_only=True)

    def log_prior_and_gradient(self, x: Array) -> tuple[float, Array]:
        number = self.log_prior(x)
        gradient = self._prior_gradients(x[None])[0]
        return number, settled_gradient("log_prior", number, gradient, x, self.names)

    def log_likelihood_and_gradient(self, x: Array, shard: Shard) -> tuple[float, Array]:
        value = self.functions.log_likelihood(x, shard)
        number = settled("log_likelihood", value, x, self.names)
        gradient = self._likelihood_gradients(x[None], shard)[0]
        return number, settled_gradient("log_likelihood", number, gradient, x, self.names)

    def log_prior_and_gradient_many(self, points: Array) -> tuple[Array, Array]:
        return self.log_prior_many(points), self._prior_gradients(points)

    def log_likelihood_and_gradient_many(self, points: Array, shard: Shard) -> tuple[Array, Array]:
        values = self.log_likelihood_many(points, shard)
        return values, self._likelihood_gradients(points, shard)

    def _prior_gradients(self, points: Array) -> Array:
        gradients = self._gradients("gradient[0]", self.prior_gradient, points)
        if self.functions.scale == "natural":
            gradients += log_jacobian_gradients(self.functions.parameters, points)
        return gradients

    def _likelihood_gradients(self, points: Array, shard: Shard) -> Array:
        return self._gradients("gradient[1]", self.likelihood_gradient, points, shard)

    def _gradients(
        self, what: str, function: Callable[..., Any], points: Array, *shard: Shard
    ) -> Array:
        """Gradients in the unconstrained vector, (n, dim)."""
        known, natural = self.functions, self.functions.scale == "natural"
        if isinstance(known, VectorisedFunctions):
            given = known.parameters.constrain(points) if natural else points
            return pulled_back(
                what, known.parameters, points, call(what, function, given, *shard), natural
            )
        assert isinstance(known, Functions)
        each = known.parameters.constrained_one_by_one(points) if natural else points
        found = [
            pulled_back(what, known.parameters, x[None], _lifted(call(what, function, at, *shard)),
                        natural)
            for x, at in zip(points, each, strict=True)
        ]  # fmt: skip
        return np.concatenate(found) if found else np.zeros(points.shape)


def pulled_back(
    what: str, parameters: Parameters, points: Array, gradient: Any, natural: bool
) -> Array:
    """Jᵀg at each point, (n, dim), from the gradient g in the form of the parameters."""
    if not natural:
        return _shaped(what, gradient, points.shape)
    parts = []
    for path, support, x in parameters.parts(points):
        g = _shaped(what, _entry(what, gradient, path), (len(points), *support.shape))
        parts.append(_pulled(support, x, flatten(g, support.shape)))
    return np.concatenate(parts, axis=1)


def log_jacobian_gradients(parameters: Parameters, points: Array) -> Array:
    """Gradients of log |dθ/dx|, (n, dim)."""
    return np.concatenate(
        [_log_jacobian_gradient(support, x) for _, support, x in parameters.parts(points)], axis=1
    )


def _pulled(support: Support, x: Array, g: Array) -> Array:
    """Jᵀg of one support: x (n, k), g (n, size)."""
    if isinstance(support, Real):
        return g
    value = flatten(np.asarray(support.constrain(x)), support.shape)
    if isinstance(support, Positive):
        return np.asarray(g * value)
    if isinstance(support, UnitInterval):
        return np.asarray(g * value * (1 - value))
    return _differences(
        lambda at: (g * flatten(np.asarray(support.constrain(at)), support.shape)).sum(axis=1), x
    )


def _log_jacobian_gradient(support: Support, x: Array) -> Array:
    if isinstance(support, Real):
        return np.zeros_like(x)
    if isinstance(support, Positive):
        return np.ones_like(x)
    return _differences(lambda at: np.asarray(support.log_jacobian(at)), x)


def _differences(function: Callable[[Array], Array], x: Array) -> Array:
    """Gradient of a function (n, k) to (n,) by central differences."""
    slopes = np.empty_like(x)
    for i in range(x.shape[1]):
        move = np.zeros_like(x)
        move[:, i] = _STEP * (1 + np.abs(x[:, i]))
        slopes[:, i] = (function(x + move) - function(x - move)) / (2 * move[:, i])
    return slopes


def _lifted(gradient: Any) -> Any:
    """A gradient of one point as one of many."""
    if isinstance(gradient, Mapping):
        return {name: _lifted(part) for name, part in gradient.items()}
    return np.asarray(gradient, dtype=np.float64)[None]


def _entry(what: str, gradient: Any, path: Path) -> Any:
    for key in path:
        if not isinstance(gradient, Mapping) or key not in gradient:
            name = ".".join(path)
            raise BadInputError(f"{what} returned nothing for {name}. It must have the form of the "
                                "parameters: a derivative for each entry.")  # fmt: skip
        gradient = gradient[key]
    return gradient


def _shaped(what: str, gradient: Any, shape: tuple[int, ...]) -> Array:
    array = np.array(gradient, dtype=np.float64)
    if array.shape != shape:
        raise WrongShapeError(
            f"{what} returned an array of shape {array.shape[1:]} where {shape[1:]} was needed: "
            "one derivative for each entry of the parameter."
        )
    return array
