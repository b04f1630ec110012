"""Loops, derivatives and maps over points, under numpy and under JAX.

The integrals of groups are written once (`integral.py`), with what differs between the two here.
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array
from quorate.models.arrays import AnyArray, Namespace
from quorate.models.programs.jaxed_many import ManyPoints

_STEP = 0.01  # of finite differences, in standard deviations
OfPoint = Callable[..., Any]  # function(x, arguments, backend)


class Backend(Protocol):
    """Numpy or JAX."""

    @property
    def xp(self) -> Namespace:
        """numpy or jax.numpy."""

    def loop(self, n: Any, body: Callable[[Any, Any], Any], state: Any) -> Any:
        """`state` after `state = body(i, state)` for all i < n."""

    def loop_while(
        self, goes_on: Callable[[Any], Any], body: Callable[[Any], Any], state: Any
    ) -> Any:
        """`state` after `state = body(state)` while `goes_on(state)`."""

    def derivatives(
        self, function: Callable[[AnyArray], AnyArray], z: AnyArray, sds: AnyArray
    ) -> tuple[list[AnyArray], list[list[AnyArray]]]:
        """Slopes and curvatures (minus second derivatives) of groups that do not interact.

        `function` maps z (m, q) to (m,). `sds` (m, q) are rough standard deviations.
        """

    def sum_by_group(self, values: AnyArray, index: AnyArray, n_groups: int) -> AnyArray:
        """Sums of the values (n,) of rows that are sorted by the index (n,) of their groups."""

    def one(self, function: OfPoint, x: Array, arguments: Any) -> Any:
        """A function of one point, evaluated."""

    def each(self, function: OfPoint, points: Array, arguments: Any, n_rows: int) -> Any:
        """A function of one point, evaluated at each of (n, d) points: arrays with n entries."""


class NumpyBackend:
    """Python loops and finite differences, which only place nodes."""

    xp: Namespace = np

    def loop(self, n: Any, body: Callable[[Any, Any], Any], state: Any) -> Any:
        for i in range(int(n)):
            state = body(i, state)
        return state

    def loop_while(
        self, goes_on: Callable[[Any], Any], body: Callable[[Any], Any], state: Any
    ) -> Any:
        while goes_on(state):
            state = body(state)
        return state

    def derivatives(
        self, function: Callable[[AnyArray], AnyArray], z: AnyArray, sds: AnyArray
    ) -> tuple[list[AnyArray], list[list[AnyArray]]]:
        dim = z.shape[1]
        steps = [_STEP * sds[:, i] for i in range(dim)]
        moves = [steps[i][:, None] * np.eye(dim)[i] for i in range(dim)]
        here, ups = function(z), [function(z + move) for move in moves]
        downs = [function(z - move) for move in moves]
        slopes = [(ups[i] - downs[i]) / (2 * steps[i]) for i in range(dim)]
        curvature = [[np.zeros(len(z))] * dim for _ in range(dim)]
        for i in range(dim):
            curvature[i][i] = (2 * here - ups[i] - downs[i]) / steps[i] ** 2
            for j in range(i):
                # Symmetric, so that an error of third order cancels.
                both = function(z + moves[i] + moves[j]) + function(z - moves[i] - moves[j])
                sides = ups[i] + ups[j] + downs[i] + downs[j]
                curvature[i][j] = (sides - both - 2 * here) / (2 * steps[i] * steps[j])
        return slopes, curvature

    def sum_by_group(self, values: AnyArray, index: AnyArray, n_groups: int) -> AnyArray:
        return np.bincount(index, weights=values, minlength=n_groups)

    def one(self, function: OfPoint, x: Array, arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(x, arguments, self)

    def each(self, function: OfPoint, points: Array, arguments: Any, n_rows: int) -> Any:
        outputs = [self.one(function, x, arguments) for x in points]
        if outputs and isinstance(outputs[0], tuple):
            return tuple(np.array(column) for column in zip(*outputs, strict=True))
        return np.array(outputs)


class JaxBackend:
    """Loops and functions that JAX compiles. Compiled code is not pickled."""

    @property
    def xp(self) -> Namespace:
        return jax_in_float64().numpy

    def loop(self, n: Any, body: Callable[[Any, Any], Any], state: Any) -> Any:
        return jax_in_float64().lax.fori_loop(0, n, body, state)

    def loop_while(
        self, goes_on: Callable[[Any], Any], body: Callable[[Any], Any], state: Any
    ) -> Any:
        return jax_in_float64().lax.while_loop(goes_on, body, state)

    def derivatives(
        self, function: Callable[[AnyArray], AnyArray], z: AnyArray, sds: AnyArray
    ) -> tuple[list[AnyArray], list[list[AnyArray]]]:
        jax, dim = jax_in_float64(), z.shape[1]
        gradient = jax.grad(lambda z: function(z).sum())
        slope, along = jax.linearize(gradient, z)
        columns = [along(jax.numpy.zeros_like(z).at[:, j].set(1.0)) for j in range(dim)]
        curvature = [[-columns[j][:, i] for j in range(dim)] for i in range(dim)]
        return [slope[:, i] for i in range(dim)], curvature

    def sum_by_group(self, values: AnyArray, index: AnyArray, n_groups: int) -> AnyArray:
        jax = jax_in_float64()
        # Not `indices_are_sorted`, although they are: XLA's sums are three times slower with it.
        return jax.ops.segment_sum(values, index, n_groups)

    def one(self, function: OfPoint, x: Array, arguments: Any) -> Any:
        if function not in self._compiled:
            self._compiled[function] = jax_in_float64().jit(partial(function, backend=self))
        return self._compiled[function](x, arguments)

    def each(self, function: OfPoint, points: Array, arguments: Any, n_rows: int) -> Any:
        if function not in self._many:
            self._many[function] = ManyPoints(partial(function, backend=self))
        return self._many[function](points, arguments, n_rows)

    @cached_property
    def _compiled(self) -> dict[OfPoint, Any]:
        return {}

    @cached_property
    def _many(self) -> dict[OfPoint, ManyPoints]:
        return {}

    def __reduce__(self) -> tuple[type["JaxBackend"], tuple[()]]:
        return JaxBackend, ()
