"""A model from two plain functions, in numpy or JAX."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, overload

import numpy as np

from quorate.errors import require
from quorate.models.checks import at
from quorate.models.groups.programs.functions import from_local_functions
from quorate.models.groups.programs.model import ProgramModel
from quorate.models.parameters import Declaration, declared
from quorate.models.programs.function_gradients import GradientFunctionModel
from quorate.models.programs.function_models import (
    FunctionModel,
    Functions,
    JaxFunctionModel,
    LogLikelihood,
    LogPrior,
    Scale,
    VectorisedFunctions,
)
from quorate.models.programs.function_rows import RowFunctions
from quorate.models.programs.jaxed import Compiled

__all__ = [
    "FunctionModel",
    "Functions",
    "GradientFunctionModel",
    "JaxFunctionModel",
    "VectorisedFunctions",
    "from_functions",
]


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
    gradient: tuple[Callable[..., Any], Callable[..., Any]] | None = ...,
    pointwise: Callable[..., Any] | None = ...,
    simulate: Callable[..., Any] | None = ...,
    draw_prior: Callable[..., Any] | None = ...,
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
    pointwise: Callable[..., Any] | None = ...,
    simulate: Callable[..., Any] | None = ...,
    draw_prior: Callable[..., Any] | None = ...,
) -> JaxFunctionModel: ...
@overload
def from_functions(
    log_prior: LogPrior,
    log_likelihood: Callable[[Any, Any, Any], Any],
    parameters: Declaration,
    *,
    backend: Literal["numpy", "jax"] = ...,
    initial: Any = ...,
    simulate: Callable[..., Any] | None = ...,
    draw_prior: Callable[..., Any] | None = ...,
    local: Mapping[str, Any],
    groups: str,
    log_local: Callable[[Any, Any], Any] | Mapping[str, Callable[[Any, Any], Any]],
    draw_local: Callable[..., Any] | Mapping[str, Callable[..., Any]] | None = ...,
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
    gradient: tuple[Callable[..., Any], Callable[..., Any]] | None = None,
    pointwise: Callable[..., Any] | None = None,
    simulate: Callable[..., Any] | None = None,
    draw_prior: Callable[..., Any] | None = None,
    local: Mapping[str, Any] | None = None,
    groups: str | None = None,
    log_local: Callable[[Any, Any], Any] | Mapping[str, Callable[[Any, Any], Any]] | None = None,
    draw_local: Callable[..., Any] | Mapping[str, Callable[..., Any]] | None = None,
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
    gradient
        Gradients of both numpy functions: a pair of functions with the same arguments. Each returns
        derivatives in the form of the parameters, on the scale that the functions take, without
        the Jacobian: `{"beta": ..., "sigma": ...}`. They make exact draws and HMC possible without
        JAX. With `vectorised` they have a leading axis of points, too.
    pointwise
        `pointwise(parameters, rows)`: the log-likelihood of each row, shape (n_rows,), for
        `Result.log_likelihood` and `Result.loo`. With `vectorised` shape (n, n_rows). In JAX if
        the backend is.
    simulate
        `simulate(parameters, rows, rng)`: a draw of the response of each row, by a numpy Generator,
        for `Result.posterior_predictive` and `Result.predict`. It takes one point, and returns an
        array, or arrays by name. With `local`: `simulate(parameters, local, rows, rng)`.
    draw_prior
        `draw_prior(rng)`: parameters drawn from the prior, in the form that the functions take, for
        `Result.prior_predictive`.
    local
        Parameters that every group has for itself, with their supports: `{"z": Real(2)}`. They are
        integrated out of the likelihood, so there may be at most three numbers in a group.
        `log_likelihood(parameters, local, shard)` then returns one number for each row, where
        `local["z"]` (n_rows, 2) is that of each row's group.
    groups
        The column that defines the groups. Groups within groups are "state/county", for JAX
        functions. `local` and `log_local` are then dictionaries with an entry for each column.
    log_local
        `log_local(parameters, local)`: the log density of the local parameters given the global
        ones, one number for each group; `local["z"]` has shape (n_groups, 2). Where groups nest,
        the function of the inner ones also gets the parameters of the group around each of them.
    draw_local
        `draw_local(parameters, n, rng)`: local parameters of n groups, drawn given the global ones,
        in the form that `log_local` takes. `Result.predict` needs it for groups that the run does
        not know, and `Result.prior_predictive` for all. Where groups nest, a dictionary with a
        function for each column; that of the inner ones is `draw(parameters, outer, n, rng)`, where
        `outer` has the parameters of the group around each of them.
    """
    scales, backends = ("natural", "unconstrained"), ("numpy", "jax")
    require(scale in scales, f"scale must be 'natural' or 'unconstrained', not {scale!r}.")
    require(backend in backends, f"backend must be 'numpy' or 'jax', not {backend!r}.")
    for name, function in (("log_prior", log_prior), ("log_likelihood", log_likelihood)):
        require(callable(function), f"{name} must be a function, not {function!r}.")
    if any(given is not None for given in (local, groups, log_local, draw_local)):
        plain = scale == "natural" and not vectorised and gradient is None and pointwise is None
        require(
            plain,
            "Models with local parameters take none of `scale`, `vectorised`, `gradient` and "
            "`pointwise`.",
        )
        known = Functions(log_prior, log_likelihood, declared(parameters), scale)
        start = _start(known, initial)
        return from_local_functions(
            log_prior,
            log_local,
            log_likelihood,
            known.parameters,
            local,
            groups,
            backend,
            start,
            simulate=simulate,
            draw_prior=draw_prior,
            draw_local=draw_local,
        )
    require(
        not (vectorised and backend == "jax"),
        "vectorised is for numpy functions. Give JAX functions of one point, without it.",
    )
    kind = VectorisedFunctions if vectorised else Functions
    functions = kind(log_prior, log_likelihood, declared(parameters), scale)
    start, of_rows = _start(functions, initial), (pointwise, simulate, draw_prior)
    if isinstance(functions, Functions) and backend == "jax":
        require(gradient is None, "JAX makes the gradient itself. Leave out `gradient`.")
        compiled = Compiled(functions.log_prior, functions.log_likelihood)
        return JaxFunctionModel(functions, start, compiled, _of_rows(functions, "jax", *of_rows))
    rows = _of_rows(functions, "many" if vectorised else "one", *of_rows)
    if gradient is None:
        return FunctionModel(functions, start, rows)
    is_pair = isinstance(gradient, tuple | list) and len(gradient) == 2
    require(
        is_pair and all(map(callable, gradient)),
        f"gradient must be a pair of functions, of log_prior and of log_likelihood, not "
        f"{gradient!r}.",
    )
    of_prior, of_likelihood = gradient
    return GradientFunctionModel(
        functions, start, rows, prior_gradient=of_prior, likelihood_gradient=of_likelihood
    )


def _of_rows(
    functions: Functions | VectorisedFunctions, kind: str, *given: Callable[..., Any] | None
) -> RowFunctions:
    for name, function in zip(("pointwise", "simulate", "draw_prior"), given, strict=True):
        fine = function is None or callable(function)
        require(fine, f"{name} must be a function, not {function!r}.")
    return RowFunctions(functions.parameters, functions.scale == "natural", kind, *given)


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
