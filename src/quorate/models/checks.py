"""What a model may return, said in errors that name the parameter or shard and the way out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from quorate._types import Array
from quorate.errors import BadInputError, NotANumberError

_SHOWN = 6  # coordinates of a point that are written out


def call(what: str, function: Callable[..., Any], *args: Any) -> Any:
    """Call a user's function; say which one it was if it raises."""
    try:
        return function(*args)
    except BadInputError:
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        way_out = f"it raised this{_with(args)}; {_advice(error)}"
        raise BadInputError(what, message, way_out) from error


def require_scalar(what: str, value: Any) -> None:
    """A log density is one number, whether of numpy or of JAX."""
    shape = getattr(value, "shape", () if np.isscalar(value) else None)
    if shape is None:
        raise BadInputError(what, type(value).__name__, "it must return one number")
    if shape != ():
        way_out = "it must return one number, the sum over all rows: end it in `.sum()`"
        raise BadInputError(what, f"an array of shape {shape}", way_out)


def settled(what: str, value: Any, x: Array, names: Sequence[str]) -> float:
    """The value as a float; -inf is legal (density 0), NaN and +inf are not."""
    number = float(value)
    if np.isnan(number) or number == np.inf:
        way_out = (
            f"at {at(x, names)}; a log density is a number, or -inf where the density is 0. "
            "Look for a logarithm of a negative number, 0/0, or missing values in the data"
        )
        raise NotANumberError(what, number, way_out)
    return number


def settled_gradient(
    what: str, value: float, gradient: Any, x: Array, names: Sequence[str]
) -> Array:
    """The gradient, finite wherever the density is not 0."""
    array = np.array(gradient, dtype=np.float64)
    bad = ~np.isfinite(array)
    if bad.any() and value > -np.inf:
        first = int(np.argmax(bad))
        way_out = (
            f"in {names[first]}, at {at(x, names)}, where the value is {value:.6g}; the usual "
            "cause is a branch that is not taken but cannot be differentiated: make both sides of "
            "a `where` safe"
        )
        raise BadInputError(f"gradient of {what}", float(array[first]), way_out)
    return array


def at(x: Array, names: Sequence[str]) -> str:
    """The point in words: coordinates that are not finite or are far out first."""
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
        return "check the names of the parameters and of the arrays of the data"
    if type(error).__name__.startswith(("Tracer", "Concretization", "NonConcrete")):
        return "under JAX it must use jax.numpy throughout, without float() or if on values"
    return "it must take any point and any number of rows"
