"""A model from two plain functions, in numpy or JAX."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from quorate._types import Array
from quorate.errors import require
from quorate.models.arrays import Namespace
from quorate.models.checks import at, call, require_scalar, settled
from quorate.models.jaxed import Compiled, CompiledDensities
from quorate.models.parameters import Declaration, Parameters, declared
from quorate.models.protocol import Shard

Scale = Literal["natural", "unconstrained"]
LogPrior = Callable[[Any], Any]
LogLikelihood = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Functions:
    """A user's two functions on the unconstrained vector, under numpy or JAX."""

    prior: LogPrior
    likelihood: LogLikelihood
    parameters: Parameters
    scale: Scale

    def log_prior(self, x: Any, xp: Namespace = np) -> Any:
        """Log prior of the unconstrained point; on the natural scale the Jacobian is added."""
        value = call("log_prior", self.prior, self._point(x, xp))
        require_scalar("log_prior", value)
        natural = self.scale == "natural"
        return value + self.parameters.log_jacobian(x, xp) if natural else value

    def log_likelihood(self, x: Any, shard: Any, xp: Namespace = np) -> Any:
        """Log-likelihood of the rows of a shard."""
        value = call("log_likelihood", self.likelihood, self._point(x, xp), shard)
        require_scalar("log_likelihood", value)
        return value

    def _point(self, x: Any, xp: Namespace) -> Any:
        return self.parameters.constrain(x, xp) if self.scale == "natural" else x


@dataclass(frozen=True)
class FunctionModel:
    """A model without gradients, from numpy functions."""

    functions: Functions
    start: tuple[float, ...]

    @property
    def dim(self) -> int:
        return self.functions.parameters.dim

    @property
    def names(self) -> tuple[str, ...]:
        return self.functions.parameters.names

    def initial(self) -> Array:
        return np.array(self.start)

    def log_prior(self, x: Array) -> float:
        return settled("log_prior", self.functions.log_prior(x), x, self.names)

    def log_likelihood(self, x: Array, shard: Shard) -> float:
        return settled("log_likelihood", self.functions.log_likelihood(x, shard), x, self.names)

    def constrain(self, draws: Array) -> dict[str, Array]:
        return self.functions.parameters.named(draws)


@dataclass(frozen=True)
class JaxFunctionModel(CompiledDensities):
    """A model with gradients, from JAX functions; compiled once per process and shard size."""

    functions: Functions
    start: tuple[float, ...]
    compiled: Compiled

    @property
    def dim(self) -> int:
        return self.functions.parameters.dim

    @property
    def names(self) -> tuple[str, ...]:
        return self.functions.parameters.names

    def initial(self) -> Array:
        return np.array(self.start)

    def constrain(self, draws: Array) -> dict[str, Array]:
        return self.functions.parameters.named(draws)


@overload
def from_functions(
    log_prior: LogPrior,
    log_likelihood: LogLikelihood,
    parameters: Declaration,
    *,
    scale: Scale = ...,
    backend: Literal["numpy"] = ...,
    initial: Any = ...,
) -> FunctionModel: ...
@overload
def from_functions(
    log_prior: LogPrior,
    log_likelihood: LogLikelihood,
    parameters: Declaration,
    *,
    scale: Scale = ...,
    backend: Literal["jax"],
    initial: Any = ...,
) -> JaxFunctionModel: ...
def from_functions(
    log_prior: LogPrior,
    log_likelihood: LogLikelihood,
    parameters: Declaration,
    *,
    scale: Scale = "natural",
    backend: Literal["numpy", "jax"] = "numpy",
    initial: Any = None,
) -> FunctionModel | JaxFunctionModel:
    """A model from two plain functions.

    Parameters
    ----------
    log_prior
        `log_prior(parameters)`: log density of the parameters on their natural scale; the Jacobian
        is added here. Improper priors are legal: return 0 for a flat one.
    log_likelihood
        `log_likelihood(parameters, shard)`: the sum over the rows of `shard`, a dictionary of
        arrays with rows first. It must not depend on which other rows there are.
    parameters
        What the functions take. A dictionary of supports, such as
        `{"beta": Real(3), "sigma": Positive()}`, for functions of a dictionary; it may be nested.
        A list of names, a number or a single support for functions of a vector.
    scale
        `unconstrained` if both functions take the unconstrained vector x and `log_prior` already
        includes the Jacobian. Supports then only map draws to their natural scale.
    backend
        `jax` for functions written with jax.numpy: they are compiled in float64, and the model has
        gradients.
    initial
        Where the search for the mode starts, in the form that the functions take. The default is
        x = 0: 1 for a positive parameter, 1/2 in (0, 1), equal shares, no correlation.
    """
    scales, backends = ("natural", "unconstrained"), ("numpy", "jax")
    require(scale in scales, f"scale must be 'natural' or 'unconstrained', not {scale!r}.")
    require(backend in backends, f"backend must be 'numpy' or 'jax', not {backend!r}.")
    for name, function in (("log_prior", log_prior), ("log_likelihood", log_likelihood)):
        require(callable(function), f"{name} must be a function, not {function!r}.")
    functions = Functions(log_prior, log_likelihood, declared(parameters), scale)
    start = _start(functions, initial)
    if backend == "numpy":
        return FunctionModel(functions, start)
    return JaxFunctionModel(
        functions, start, Compiled(functions.log_prior, functions.log_likelihood)
    )


def _start(functions: Functions, initial: Any) -> tuple[float, ...]:
    parameters = functions.parameters
    if initial is None:
        return (0.0,) * parameters.dim
    if functions.scale == "natural":
        x = parameters.unconstrain(initial)
    else:
        x = np.asarray(initial, dtype=np.float64)
    dim = parameters.dim
    require(x.shape == (dim,), f"initial must hold {dim} numbers, not {initial!r}.")
    require(bool(np.isfinite(x).all()), f"initial must be finite, not {at(x, parameters.names)}.")
    return tuple(map(float, x))
