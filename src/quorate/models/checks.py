"""Checks of models and of what they return. Errors name the function, the point and what to do."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from quorate._types import Array
from quorate.errors import (
    BadCallError,
    BadInputError,
    NotANumberError,
    QuorateError,
    UserCodeError,
    WrongShapeError,
    require,
)
from quorate.models.protocol import Model

_OF_ARGUMENTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    TypeError,
    ValueError,
)
_SHOWN = 6  # coordinates of a point that are written out
_MOST_COORDINATES = 500  # regressions with as many take a minute or two on two cores


def call(what: str, function: Callable[..., Any], *args: Any) -> Any:
    """Call a user's function. If it raises, the error names the function and its arguments.

    An error that the arguments explain becomes `BadCallError`. Any other, such as one of a disk or
    of memory, becomes `UserCodeError`.
    """
    try:
        return function(*args)
    except QuorateError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        message = f"{what} raised {said}{_with(args)}. {_advice(error)}"
        kind = BadCallError if isinstance(error, _OF_ARGUMENTS) else UserCodeError
        raise kind(message) from error


def require_scalar(what: str, value: Any) -> None:
    """Raise unless a log density is one number, of numpy or of JAX."""
    shape = getattr(value, "shape", () if np.isscalar(value) else None)
    if shape is None:
        raise BadInputError(f"{what} returned {type(value).__name__}. It must return one number.")
    if shape != ():
        raise BadInputError(
            f"{what} returned an array of shape {shape}. It must return one number, the sum over "
            "all rows: end it in `.sum()`."
        )
    require_real(what, value)


def require_one_each(what: str, values: Any, n_points: int) -> None:
    """Raise unless log densities of many points are one number for each."""
    shape = np.shape(values)
    if shape != (n_points,):
        raise WrongShapeError(
            f"{what} returned an array of shape {shape} for {n_points} points. It must return one "
            f"number for each point, shape ({n_points},): sum over rows and parameters, not over "
            "the first axis of the parameters."
        )
    require_real(what, values)


def require_real(what: str, values: Any) -> None:
    """Raise if log densities are complex: to drop their imaginary parts would hide a mistake."""
    if np.iscomplexobj(values):
        raise BadInputError(
            f"{what} returned a complex number. It must return a real one: look for a complex "
            "column of the data, or take the real part."
        )


def settled(what: str, value: Any, x: Array, names: Sequence[str]) -> float:
    """`value` as a float. -inf is legal, for density 0; NaN and +inf raise."""
    require_real(what, value)
    number = float(value)
    if np.isnan(number) or number == np.inf:
        raise NotANumberError(
            f"{what} is {number} at {at(x, names)}. A log density is a number, or -inf where the "
            "density is 0. Look for a logarithm of a negative number, 0/0, or missing values in "
            "the data."
        )
    return number


def settled_gradient(
    what: str, value: float, gradient: Any, x: Array, names: Sequence[str]
) -> Array:
    """`gradient` as an array. It must be finite wherever the density is not 0."""
    array = np.array(gradient, dtype=np.float64)
    bad = ~np.isfinite(array)
    if bad.any() and value > -np.inf:
        first = int(np.argmax(bad))
        raise BadInputError(
            f"The gradient of {what} is {array[first]} in {names[first]}, at {at(x, names)}, where "
            f"the value is {value:.6g}. The usual cause is a branch that is not taken but cannot "
            "be differentiated: make both sides of a `where` safe."
        )
    return array


def at(x: Array, names: Sequence[str]) -> str:
    """A point in words; coordinates that are not finite or are large come first."""
    order = np.argsort(-np.where(np.isfinite(x), np.abs(x), np.inf), kind="stable")
    shown = ", ".join(f"{names[i]} = {x[i]:.6g}" for i in order[:_SHOWN])
    return shown + (f" and {len(x) - _SHOWN} more" if len(x) > _SHOWN else "")


def _with(args: tuple[Any, ...]) -> str:
    shards = [arg for arg in args if isinstance(arg, Mapping) and arg]
    if len(args) < 2 or not shards:
        return ""
    shapes = ", ".join(f"{name} {np.shape(array)}" for name, array in shards[-1].items())
    return f" on a shard with {shapes}"


def _advice(error: Exception) -> str:
    if isinstance(error, KeyError):
        return "Check the names of the parameters and of the arrays of the data."
    if type(error).__name__.startswith(("Tracer", "Concretization", "NonConcrete")):
        return "Under JAX it must use jax.numpy throughout, without float() or `if` on values."
    if isinstance(error, OSError):
        return "Check that the file or the service is there."
    if isinstance(error, MemoryError):
        return "Use fewer workers, or smaller shards."
    return "It must take any point and any number of rows."


def require_model(model: Model) -> None:
    """Raise unless this is a model of not too many coordinates."""
    needed = ("dim", "names", "initial", "log_prior", "log_likelihood", "constrain")
    lacking = [name for name in needed if not hasattr(model, name)]
    require(
        not lacking,
        f"{type(model).__name__} is no model: it has no {', '.join(lacking)}. Make one with "
        "quorate.models.",
    )
    require(
        model.dim <= _MOST_COORDINATES,
        f"The model has {model.dim:,} coordinates, and may have {_MOST_COORDINATES}: the time for "
        "fits grows with the third power of their number. Use fewer columns, groups or parameters.",
    )
