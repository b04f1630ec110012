"""Single rows of a model from plain functions: what users give besides the two log densities."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from quorate._types import Array
from quorate.errors import BadInputError, WrongShapeError, require
from quorate.models.checks import call, require_real
from quorate.models.parameters import Parameters
from quorate.models.programs.jaxed_many import ManyPoints, rows_in
from quorate.models.protocol import Shard
from quorate.models.rows import Ability, Random

_LACKING: dict[str, str] = {
    "log_likelihood": (
        "The model tells only the sum over rows. Give `pointwise` to from_functions: a function of "
        "parameters and rows that returns the log-likelihood of each row."
    ),
    "responses": (
        "The model cannot draw responses. Give `simulate` to from_functions: a function of "
        "parameters, rows and a numpy Generator that returns a response for each row."
    ),
    "prior_draws": (
        "The model cannot draw from its prior. Give `draw_prior` to from_functions: a function of "
        "a numpy Generator that returns parameters."
    ),
}


@dataclass(frozen=True)
class RowFunctions:
    """Functions that a user may give besides the log densities; see `from_functions`.

    Parameters
    ----------
    parameters
        The parameters of the model.
    natural
        Whether functions take parameters on their natural scale.
    kind
        Whether `pointwise` takes one point, many points, or is a JAX function of one.
    """

    parameters: Parameters
    natural: bool
    kind: str = "one"
    pointwise: Callable[..., Any] | None = None
    simulate: Callable[..., Any] | None = None
    draw_prior: Callable[..., Any] | None = None

    def lacks(self, ability: Ability) -> str:
        """What is missing for something that a result asks for; empty if nothing is."""
        needed = {
            "log_likelihood": self.pointwise,
            "responses": self.simulate,
            "prior_draws": self.draw_prior,
        }
        return "" if needed[ability] is not None else _LACKING[ability]

    def at(self, points: Array, rows: Shard) -> "FunctionRows":
        """Rows at points."""
        return FunctionRows(self, points, rows)

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        """Draws of the unconstrained parameters from the prior, (n, dim)."""
        return prior_draws(self.draw_prior, self.parameters if self.natural else None, n, rng)

    def each(self, points: Array) -> Iterator[Any]:
        """Each point in the form that functions take."""
        return iter(self.parameters.constrained_one_by_one(points) if self.natural else points)

    @cached_property
    def compiled(self) -> ManyPoints:
        """`pointwise` as a JAX function of many points."""
        from quorate._extras import jax_in_float64

        xp, pointwise = jax_in_float64().numpy, self.pointwise
        assert pointwise is not None

        def of_point(x: Any, rows: Any) -> Any:
            given = self.parameters.constrain(x, xp) if self.natural else x
            return call("pointwise", pointwise, given, rows)

        return ManyPoints(of_point)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "compiled"}


@dataclass(frozen=True)
class FunctionRows:
    """Some rows at points; a `quorate.models.rows.RowsAt`."""

    functions: RowFunctions
    points: Array
    rows: Shard

    def log_likelihoods(self) -> Array:
        shape = (len(self.points), rows_in(self.rows))
        values = self._values()
        if values.shape != shape:
            raise WrongShapeError(
                f"pointwise returned arrays of shape {values.shape[1:]} for {shape[1]} rows. It "
                f"must return one number for each row, shape ({shape[1]},)."
            )
        require_real("pointwise", values)
        return values.astype(np.float64)

    def _values(self) -> Array:
        given, function = self.functions, self.functions.pointwise
        assert function is not None
        if given.kind == "jax":
            rows = {name: np.asarray(array) for name, array in self.rows.items()}
            return np.asarray(given.compiled(self.points, rows, rows_in(rows)))
        if given.kind == "many":
            points = given.parameters.constrain(self.points) if given.natural else self.points
            return np.asarray(call("pointwise", function, points, self.rows))
        each = given.each(self.points)
        return np.array([call("pointwise", function, point, self.rows) for point in each])

    def expected(self) -> None:
        """None: functions do not tell it."""

    def responses(self, random: Random) -> dict[str, Array]:
        function = self.functions.simulate
        assert function is not None
        seeds, found = random.seeds(), list[dict[str, Any]]()
        for point, seed in zip(self.functions.each(self.points), seeds, strict=True):
            rng = np.random.default_rng(seed)
            found.append(named_responses(call("simulate", function, point, self.rows, rng)))
        return {
            name: checked_responses(name, np.array([one[name] for one in found]), self.rows)
            for name in found[0]
        }

    def observed(self) -> dict[str, Array]:
        return dict(self.rows)


def prior_draws(
    draw_prior: Callable[..., Any] | None,
    parameters: Parameters | None,
    n: int,
    rng: np.random.Generator,
) -> Array:
    """Draws of the unconstrained parameters by a user's function, (n, dim).

    Without `parameters`, what the function returns is unconstrained.
    """
    assert draw_prior is not None
    draws = [call("draw_prior", draw_prior, rng) for _ in range(n)]
    if parameters is None:
        return np.array(draws, dtype=np.float64)
    return np.array([parameters.unconstrain(draw, "draw_prior") for draw in draws])


def named_responses(drawn: Any) -> dict[str, Any]:
    """What `simulate` returned, by name; a single array is y."""
    return dict(drawn) if isinstance(drawn, Mapping) else {"y": drawn}


def checked_responses(name: str, draws: Array, rows: Shard) -> Array:
    """Draws of responses, if there is one for each row."""
    n_rows = rows_in(rows)
    require(
        draws.shape[1:2] == (n_rows,),
        f"simulate returned {name} of shape {draws.shape[1:]} for {n_rows} rows. It must return "
        "one response for each row.",
    )
    if draws.dtype.kind not in "biuf":
        raise BadInputError(f"simulate returned {name} of type {draws.dtype}. Return numbers.")
    return draws
