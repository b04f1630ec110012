"""Models of plain functions, in numpy or JAX."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from quorate._types import Array
from quorate.models.arrays import Namespace
from quorate.models.checks import call, require_one_each, require_scalar, settled
from quorate.models.parameters import Parameters
from quorate.models.programs.function_rows import FunctionRows, RowFunctions
from quorate.models.programs.jaxed import Compiled, CompiledDensities
from quorate.models.programs.jaxed_many import points_at_once, rows_in
from quorate.models.protocol import Shard
from quorate.models.rows import Ability

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


class _OfFunctions:
    """What models from functions have in common: `functions`, `start` and `of_rows`."""

    functions: Any
    start: tuple[float, ...]
    of_rows: RowFunctions | None

    @property
    def dim(self) -> int:
        return int(self.functions.parameters.dim)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.functions.parameters.names)

    def initial(self) -> Array:
        return np.array(self.start)

    def constrain(self, draws: Array) -> dict[str, Array]:
        return dict(self.functions.parameters.named(draws))

    def lacks(self, ability: Ability) -> str:
        return self._row_functions.lacks(ability)

    def rows_at(self, points: Array, rows: Shard) -> FunctionRows:
        return self._row_functions.at(points, rows)

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        return self._row_functions.prior_draws(n, rng)

    @property
    def _row_functions(self) -> RowFunctions:
        natural = self.functions.scale == "natural"
        return self.of_rows or RowFunctions(self.functions.parameters, natural)


@dataclass(frozen=True)
class FunctionModel(_OfFunctions):
    """A model without gradients, from numpy functions."""

    functions: Functions | VectorisedFunctions
    start: tuple[float, ...]
    of_rows: RowFunctions | None = None

    def log_prior(self, x: Array) -> float:
        return settled("log_prior", self.functions.log_prior(x), x, self.names)

    def log_likelihood(self, x: Array, shard: Shard) -> float:
        return settled("log_likelihood", self.functions.log_likelihood(x, shard), x, self.names)

    def log_prior_many(self, points: Array) -> Array:
        return self.functions.log_prior_many(points)

    def log_likelihood_many(self, points: Array, shard: Shard) -> Array:
        return self.functions.log_likelihood_many(points, shard)


@dataclass(frozen=True)
class JaxFunctionModel(CompiledDensities, _OfFunctions):
    """A model with gradients, from JAX functions; compiled once per process and shard size."""

    functions: Functions
    start: tuple[float, ...]
    compiled: Compiled
    of_rows: RowFunctions | None = None
