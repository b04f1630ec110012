"""The natural scale of coordinates, as a formula: the journal tells it, and no model is needed.

Most coordinates have a variable of their own: x itself, its exponential, or a share of an interval.
They are found by looking at a few points. Coordinates of a simplex or a correlation have none.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from quorate._types import Array
from quorate.errors import BadInputError
from quorate.models.protocol import Model
from quorate.numerics.names import named_scalars

_N_POINTS = 8
_MOST = 100  # coordinates that are looked at; a page shows fewer
_ROUNDING = 1e-9
_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda x: x,
    "exp": np.exp,
    "expit": expit,
    "softplus": lambda x: np.logaddexp(0, x),
}


class Scale(NamedTuple):
    """A variable that is offset + factor · function(x) of one coordinate x."""

    name: str
    function: str
    offset: float
    factor: float

    def natural(self, x: Array) -> Array:
        """Values on the natural scale."""
        return np.asarray(self.offset + self.factor * _FUNCTIONS[self.function](x))


def natural_scales(model: Model) -> list[Scale | None]:
    """The scale of each of the first coordinates, None where no variable depends on it alone."""
    points = np.random.default_rng(0).normal(size=(_N_POINTS, model.dim))
    with np.errstate(all="ignore"):
        scalars = named_scalars(model.constrain(points))
    found: list[Scale | None] = [None] * model.dim
    for function in _FUNCTIONS:
        for coordinate, scale in _matches(function, points[:, :_MOST], scalars):
            found[coordinate] = found[coordinate] or scale
    return found


def _matches(
    function: str, points: Array, scalars: Iterable[tuple[str, Array]]
) -> Iterable[tuple[int, Scale]]:
    """Coordinates and variables that are such a function of them."""
    of_points = _FUNCTIONS[function](points)
    gaps = of_points - of_points.mean(axis=0)
    for name, values in scalars:
        rises = values - values.mean()
        factors = gaps.T @ rises / np.sum(gaps**2, axis=0)
        errors = np.abs(gaps * factors - rises[:, None]).max(axis=0)
        coordinate = int(np.argmin(errors))
        if errors[coordinate] < _ROUNDING * np.abs(rises).max():
            factor = float(factors[coordinate])
            offset = float(np.mean(values - factor * of_points[:, coordinate]))
            yield coordinate, Scale(name, function, offset, factor)


def kept_scales(kept: Any, dim: int) -> list[Scale | None]:
    """Scales that a journal holds; none at all for a journal of before."""
    if kept is None:
        return [None] * dim
    try:
        found = [None if one is None else Scale(*one) for one in kept]
        if len(found) != dim or any(one and one.function not in _FUNCTIONS for one in found):
            raise ValueError(f"{len(found)} scales of {dim} coordinates")
    except (TypeError, ValueError) as error:
        raise BadInputError(
            f"The journal does not describe the scales of its parameters ({error}). Read it with "
            "the quorate that wrote it, or a later one."
        ) from None
    return found
