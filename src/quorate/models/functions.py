"""A model from two plain functions, in numpy or JAX."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from quorate._types import Array
from quorate.errors import require
from quorate.models.arrays import Namespace
from quorate.models.checks import at, call, require_one_each, require_scalar, settled
from quorate.models.groups.programs.functions import from_local_functions
from quorate.models.groups.programs.model import ProgramModel
from quorate.models.jaxed import Compiled, CompiledDensities
from quorate.models.jaxed_many import points_at_once, rows_in
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

    def log_prior_many(self, points: Array) -> Array:
        """`log_prior` of each point, under numpy."""
        values = self._each("log_prior", self.prior, points)
        natural = self.scale == "natural"
        return values + self.parameters.log_jacobian(points) if natural else values

    def log_likelihood_many(self, points: Array, shard: Shard) -> Array:
        """`log_likelihood` of each point, under numpy."""
        return self._each("log_likelihood", self.likelihood, points, shard)

    def _each(self, what: str, function: Callable[..., Any], points: Array, *shard: Shard) -> Array:
        natural = self.scale == "natural"
        each = self.parameters.constrained_one_by_one(points) if natural else points
        values = np.empty(len(points))
        for i, point in enumerate(each):
            value = call(what, function, point, *shard)
            require_scalar(what, value)
            values[i] = value
        return values

    def _point(self, x: Any, xp: Namespace) -> Any:
        return self.parameters.constrain(x, xp) if self.scale == "natural" else x


@dataclass(frozen=True)
class VectorisedFunctions:
    """A user's two numpy functions of many points, the first axis of every parameter."""

    prior: LogPrior
    likelihood: LogLikelihood
    parameters: Parameters
    scale: Scale

    def log_prior(self, x: Array) -> Any:
        """Log prior of one unconstrained point."""
        return self.log_prior_many(x[None])[0]

    def log_likelihood(self, x: Array, shard: Shard) -> Any:
        """Log-likelihood of the rows of a shard at one point."""
        return self.log_likelihood_many(x[None], shard)[0]

    def log_prior_many(self, points: Array) -> Array:
        """Log prior of each unconstrained point; on the natural scale the Jacobian is added."""
        values = self._at_once("log_prior", self.prior, points)
        natural = self.scale == "natural"
        return values + self.parameters.log_jacobian(points) if natural else values

    def log_likelihood_many(self, points: Array, shard: Shard) -> Array:
        """Log-likelihood of the rows of a shard at each point, some points after others."""
        at_once = points_at_once(rows_in(shard))
        parts = [points[i : i + at_once] for i in range(0, max(len(points), 1), at_once)]
        values = [self._at_once("log_likelihood", self.likelihood, part, shard) for part in parts]
        return np.concatenate(values)

    def _at_once(
        self, what: str, function: Callable[..., Any], points: Array, *shard: Shard
    ) -> Array:
        if len(points) == 0:
            return np.zeros(0)
        natural = self.scale == "natural"
        values = call(
            what, function, self.parameters.constrain(points) if natural else points, *shard
        )
        require_one_each(what, values, len(points))
        return np.asarray(values, dtype=np.float64)


@dataclass(frozen=True)
class FunctionModel:
    """A model without gradients, from numpy functions."""

    functions: Functions | VectorisedFunctions
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

    def log_prior_many(self, points: Array) -> Array:
        return self.functions.log_prior_many(points)

    def log_likelihood_many(self, points: Array, shard: Shard) -> Array:
        return self.functions.log_likelihood_many(points, shard)

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
    vectorised: bool = ...,
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
    vectorised: Literal[False] = ...,
) -> JaxFunctionModel: ...
@overload
def from_functions(
    log_prior: LogPrior,
    log_likelihood: Callable[[Any, Any, Any], Any],
    parameters: Declaration,
    *,
    backend: Literal["numpy", "jax"] = ...,
    initial: Any = ...,
    local: Mapping[str, Any],
    groups: str,
    log_local: Callable[[Any, Any], Any],
) -> ProgramModel: ...
def from_functions(
    log_prior: LogPrior,
    log_likelihood: Callable[..., Any],
    parameters: Declaration,
    *,
    scale: Scale = "natural",
    backend: Literal["numpy", "jax"] = "numpy",
    initial: Any = None,
    vectorised: bool = False,
    local: Mapping[str, Any] | None = None,
    groups: str | None = None,
    log_local: Callable[[Any, Any], Any] | None = None,
) -> FunctionModel | JaxFunctionModel | ProgramModel:
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
    vectorised
        True if both numpy functions take many points at once, which is faster. Every parameter
        then has a leading axis of points: shape (n, 3) for `Real(3)`, (n,) for `Positive()`. Both
        functions return one number for each point, shape (n,): `-0.5 * (p["beta"] ** 2).sum(-1)`,
        or `np.zeros(len(p["beta"]))` for a flat prior. `initial` has no such axis. JAX functions
        stay functions of one point; JAX itself makes them functions of many.
    local
        Parameters that every group has for itself, with their supports: `{"z": Real(2)}`. They are
        integrated out of the likelihood, so there may be at most three numbers in a group.
        `log_likelihood(parameters, local, shard)` then returns one number for each row, where
        `local["z"]` (n_rows, 2) is that of each row's group.
    groups
        The column that defines the groups.
    log_local
        `log_local(parameters, local)`: the log density of the local parameters given the global
        ones, one number for each group; `local["z"]` has shape (n_groups, 2).
    """
    scales, backends = ("natural", "unconstrained"), ("numpy", "jax")
    require(scale in scales, f"scale must be 'natural' or 'unconstrained', not {scale!r}.")
    require(backend in backends, f"backend must be 'numpy' or 'jax', not {backend!r}.")
    for name, function in (("log_prior", log_prior), ("log_likelihood", log_likelihood)):
        require(callable(function), f"{name} must be a function, not {function!r}.")
    if local is not None or groups is not None or log_local is not None:
        plain = scale == "natural" and not vectorised
        require(plain, "Models with local parameters take neither `scale` nor `vectorised`.")
        known = Functions(log_prior, log_likelihood, declared(parameters), scale)
        start = _start(known, initial)
        return from_local_functions(
            log_prior, log_local, log_likelihood, known.parameters, local, groups, backend, start
        )
    if vectorised:
        message = "vectorised is for numpy functions. Give JAX functions of one point, without it."
        require(backend == "numpy", message)
        many = VectorisedFunctions(log_prior, log_likelihood, declared(parameters), scale)
        return FunctionModel(many, _start(many, initial))
    functions = Functions(log_prior, log_likelihood, declared(parameters), scale)
    start = _start(functions, initial)
    if backend == "numpy":
        return FunctionModel(functions, start)
    return JaxFunctionModel(
        functions, start, Compiled(functions.log_prior, functions.log_likelihood)
    )


def _start(functions: Functions | VectorisedFunctions, initial: Any) -> tuple[float, ...]:
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
