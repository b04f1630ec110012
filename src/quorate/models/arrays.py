"""Helpers that supports share: shapes, names of entries, stable logarithms."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from quorate.errors import require
from quorate.numerics.names import indexed_at

Namespace = Any  # numpy or jax.numpy
AnyArray = Any  # an array of either


def indexed(name: str, shape: Sequence[int]) -> tuple[str, ...]:
    """`b`, or `b[0]`, `b[1]`, ..., or `b[0,0]`, ... for an array."""
    return tuple(indexed_at(name, index) for index in np.ndindex(*shape))


def settle_shape(support: Any, n_axes: int) -> None:
    """Store the shape of a frozen support as a tuple; its last `n_axes` axes form one value."""
    shape = (support.shape,) if isinstance(support.shape, int) else tuple(support.shape)
    if n_axes == 2 and len(shape) == 1:
        shape = shape * 2
    least = {0: 1, 1: 2, 2: 2}[n_axes]
    kind = type(support).__name__
    got = f"{kind} has shape {shape}."
    require(len(shape) >= n_axes, f"{got} It needs at least {n_axes} axes.")
    require(all(n >= 1 for n in shape), f"{got} Every axis needs at least one entry.")
    inner = shape[len(shape) - n_axes :]
    require(all(n >= least for n in inner), f"{got} Its last axes need {least} entries or more.")
    object.__setattr__(support, "shape", shape)


def unflatten(x: AnyArray, shape: tuple[int, ...]) -> AnyArray:
    """Reshape (..., n) to (..., *shape)."""
    return x.reshape((*x.shape[:-1], *shape))


def flatten(value: AnyArray, shape: tuple[int, ...]) -> AnyArray:
    """Reshape (..., *shape) to (..., n)."""
    leading = value.shape[: value.ndim - len(shape)]
    return value.reshape((*leading, prod(shape)))


def sum_over(values: AnyArray, n_axes: int, xp: Namespace) -> AnyArray:
    """Sum over the last `n_axes` axes."""
    return xp.sum(values, axis=tuple(range(-n_axes, 0)))


def log_expit(x: AnyArray, xp: Namespace) -> AnyArray:
    """log(1 / (1 + exp(-x))), without overflow."""
    return -xp.logaddexp(0.0, -x)


def log_sech2(x: AnyArray, xp: Namespace) -> AnyArray:
    """log(1 - tanh² x), without cancellation."""
    return 2 * (np.log(2.0) - xp.logaddexp(x, -x))
