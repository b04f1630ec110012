"""Log densities compiled by JAX, in float64, with gradients."""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array
from quorate.models import device
from quorate.models.checks import settled, settled_gradient
from quorate.models.memo import PerShard
from quorate.models.programs.jaxed_many import ManyPoints, rows_in
from quorate.models.protocol import Shard


class Compiled:
    """A log prior `prior(x, xp)` and a log-likelihood `likelihood(x, shard, xp)`, compiled.

    Each process compiles at first use, never in the constructor. Compiled code is not pickled.
    Rows of shards that cannot change are copied to the device once.
    """

    def __init__(self, prior: Callable[..., Any], likelihood: Callable[..., Any]) -> None:
        self._functions = (prior, likelihood)
        self._on_device = PerShard(_to_device)

    def prior(self, x: Array) -> Any:
        """The log prior."""
        return self._jitted[0](x)

    def prior_and_gradient(self, x: Array) -> Any:
        """The log prior and its gradient."""
        return self._jitted[1](x)

    def likelihood(self, x: Array, shard: Shard) -> Any:
        """The log-likelihood of a shard."""
        return self._jitted[2](x, self._on_device(shard))

    def likelihood_and_gradient(self, x: Array, shard: Shard) -> Any:
        """The log-likelihood of a shard and its gradient."""
        return self._jitted[3](x, self._on_device(shard))

    def prior_many(self, points: Array) -> Any:
        """The log prior of each point."""
        return self._many[0](points)

    def prior_and_gradient_many(self, points: Array) -> Any:
        """The log prior of each point and its gradient."""
        return self._many[1](points)

    def likelihood_many(self, points: Array, shard: Shard) -> Any:
        """The log-likelihood of a shard at each point."""
        return self._many[2](points, self._on_device(shard), rows_in(shard))

    def likelihood_and_gradient_many(self, points: Array, shard: Shard) -> Any:
        """The log-likelihood of a shard at each point and its gradient."""
        return self._many[3](points, self._on_device(shard), rows_in(shard))

    def traced_prior(self, x: Any) -> Any:
        """The log prior of a JAX array, for the caller to compile."""
        return self._functions[0](x, xp=jax_in_float64().numpy)

    def traced_likelihood(self, x: Any, shard: Mapping[str, Any]) -> Any:
        """The log-likelihood of JAX arrays, for the caller to compile."""
        return self._functions[1](x, shard, xp=jax_in_float64().numpy)

    @cached_property
    def _jitted(self) -> tuple[Callable[..., Any], ...]:
        jax = jax_in_float64()
        prior, likelihood = (partial(function, xp=jax.numpy) for function in self._functions)
        return tuple(
            jax.jit(function)
            for plain in (prior, likelihood)
            for function in (plain, jax.value_and_grad(plain))
        )

    @cached_property
    def _many(self) -> tuple[ManyPoints, ...]:
        jax = jax_in_float64()

        def prior(x: Any, rows: Any) -> Any:
            return self.traced_prior(x)

        return tuple(
            ManyPoints(function)
            for plain in (prior, self.traced_likelihood)
            for function in (plain, jax.value_and_grad(plain))
        )

    def __reduce__(self) -> tuple[type["Compiled"], tuple[Callable[..., Any], ...]]:
        return Compiled, self._functions


class CompiledDensities:
    """The log densities of a model that JAX compiles. The model has `compiled` and `names`."""

    compiled: Compiled
    names: Any
    is_compiled = True

    def log_prior(self, x: Array) -> float:
        return settled("log_prior", self.compiled.prior(x), x, self.names)

    def log_likelihood(self, x: Array, shard: Shard) -> float:
        return settled("log_likelihood", self.compiled.likelihood(x, shard), x, self.names)

    def jax_log_prior(self, x: Any) -> Any:
        return self.compiled.traced_prior(x)

    def jax_log_likelihood(self, x: Any, shard: Mapping[str, Any]) -> Any:
        return self.compiled.traced_likelihood(x, shard)

    def log_prior_and_gradient(self, x: Array) -> tuple[float, Array]:
        value, gradient = self.compiled.prior_and_gradient(x)
        number = settled("log_prior", value, x, self.names)
        return number, settled_gradient("log_prior", number, gradient, x, self.names)

    def log_likelihood_and_gradient(self, x: Array, shard: Shard) -> tuple[float, Array]:
        value, gradient = self.compiled.likelihood_and_gradient(x, shard)
        number = settled("log_likelihood", value, x, self.names)
        return number, settled_gradient("log_likelihood", number, gradient, x, self.names)

    def log_prior_many(self, points: Array) -> Array:
        return np.asarray(self.compiled.prior_many(points))

    def log_likelihood_many(self, points: Array, shard: Shard) -> Array:
        return np.asarray(self.compiled.likelihood_many(points, shard))

    def log_prior_and_gradient_many(self, points: Array) -> tuple[Array, Array]:
        values, gradients = self.compiled.prior_and_gradient_many(points)
        return values, gradients

    def log_likelihood_and_gradient_many(self, points: Array, shard: Shard) -> tuple[Array, Array]:
        values, gradients = self.compiled.likelihood_and_gradient_many(points, shard)
        return values, gradients


def _to_device(shard: Shard) -> dict[str, Any]:
    xp = jax_in_float64().numpy
    with device.lack_of_memory_in_words():
        return {name: xp.asarray(array) for name, array in shard.items()}
