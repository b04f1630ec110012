"""JAX functions of one point, compiled for many points at once."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array
from quorate.models import device


class ManyPoints:
    """A JAX function `function(x, rows)` of one point, for many of them.

    `rows` may be any tree of arrays. The number of points is padded, so that passes with different
    numbers of points are compiled a few times only. Rows are arguments of the compiled function,
    not constants. What would take too much memory is done on some points after others.
    """

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def __call__(self, points: Array, rows: Any = None, n_rows: int = 1) -> Any:
        """The outputs of the function for `points` (n, d), each with n entries."""
        n = len(points)
        full = device.padded(points)

        def evaluate(limit: float) -> Any:
            at_once = min(len(full) & -len(full), points_at_once(n_rows, limit))
            outputs = self._compiled(full, rows, at_once=at_once)
            return jax_in_float64().tree.map(lambda output: np.asarray(output)[:n], outputs)

        return device.MEMORY.fit(evaluate)

    @cached_property
    def _compiled(self) -> Callable[..., Any]:
        jax = jax_in_float64()
        over_points = jax.vmap(self._function, in_axes=(0, None))

        def evaluate(points: Any, rows: Any, at_once: int) -> Any:
            if at_once == len(points):
                return over_points(points, rows)
            parts = points.reshape(-1, at_once, points.shape[-1])
            outputs = jax.lax.map(lambda part: over_points(part, rows), parts)
            return jax.tree.map(lambda output: output.reshape(-1, *output.shape[2:]), outputs)

        compiled: Callable[..., Any] = jax.jit(evaluate, static_argnames="at_once")
        return compiled


def points_at_once(n_rows: int, limit: float | None = None) -> int:
    """How many points, a power of two, are evaluated together on so many rows.

    `limit` is the number of bytes that one number for each row and point may take. By default it is
    that of a core.
    """
    most = int((device.ON_A_CORE if limit is None else limit) / (8 * max(n_rows, 1)))
    return 1 << max(most.bit_length() - 1, 0)


def rows_in(shard: Mapping[str, Any]) -> int:
    """Number of rows of a shard; 1 if it has no arrays."""
    return next((len(array) for array in shard.values()), 1)
