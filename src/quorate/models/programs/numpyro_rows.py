"""Single rows of a NumPyro program: their log-likelihoods, and draws of what it observes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array
from quorate.errors import BadInputError, require
from quorate.models.arrays import AnyArray
from quorate.models.groups.programs.plates import sums_along
from quorate.models.programs.jaxed_many import ManyPoints, rows_in
from quorate.models.programs.numpyro_program import Program, drawn, log_probs, unconstrained
from quorate.models.protocol import Shard
from quorate.models.rows import Ability, Random
from quorate.models.splitting import halves, some_missing

_KEY = 2  # numbers of a key of JAX


class RowProgram:
    """Functions of the rows of a program, compiled at first use in each process."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def lacks(self, ability: Ability) -> str:
        """What is missing for something that a result asks for; empty if nothing is."""
        factors = [name for name, role in self._program.roles.items() if role == "prior"]
        if ability == "prior_draws" and factors:
            return f"The prior has factors ({', '.join(factors)}), so it cannot be drawn from."
        if ability == "responses" and not self.observed_names:
            return "All that the program observes are factors, which have no responses."
        return ""

    @property
    def observed_names(self) -> tuple[str, ...]:
        """Names of the sites that are observed, without factors."""
        roles = self._program.roles
        return tuple(name for name in self.axes if name not in roles)

    @cached_property
    def axes(self) -> dict[str, int]:
        """The axis of rows of each site of the likelihood."""
        example = self._program.example
        both = [self._shapes(rows) for rows in (example, halves(example)[0][0])]
        return {name: _row_axis(name, shape, both[1][name]) for name, shape in both[0].items()}

    def _shapes(self, rows: Shard) -> dict[str, tuple[int, ...]]:
        sites = self._program.likelihood_sites(self._start, rows, jax_in_float64().numpy)
        return {name: np.shape(log_probs(site)) for name, site in sites.items()}

    @property
    def _start(self) -> AnyArray:
        return jax_in_float64().numpy.zeros(sum(prod(site.shape) for site in self._program.sites))

    @cached_property
    def log_likelihoods(self) -> ManyPoints:
        """Log-likelihoods of rows."""
        xp, axes = jax_in_float64().numpy, self.axes

        def of_point(x: AnyArray, rows: Any) -> AnyArray:
            sites = self._program.likelihood_sites(x, rows, xp)
            return sum(sums_along(log_probs(site), axes[name]) for name, site in sites.items())

        return ManyPoints(of_point)

    @cached_property
    def responses(self) -> ManyPoints:
        """Draws of what is observed, from a point and a key in one vector."""
        xp, program = jax_in_float64().numpy, self._program

        def of_point(both: AnyArray, rows: Any) -> dict[str, AnyArray]:
            free = program.free(both[:-_KEY])
            trace = drawn(program.model, program.arguments(rows, xp), free, _key(both))
            return {
                name: xp.moveaxis(trace[name]["value"], self.axes[name], 0)
                for name in self.observed_names
            }

        return ManyPoints(of_point)

    @cached_property
    def expected(self) -> ManyPoints:
        """Mean of the only site that is observed."""
        xp, (name,) = jax_in_float64().numpy, self.observed_names

        def of_point(x: AnyArray, rows: Any) -> AnyArray:
            site = self._program.likelihood_sites(x, rows, xp)[name]
            return xp.moveaxis(site["fn"].mean, self.axes[name], 0)

        return ManyPoints(of_point)

    @cached_property
    def prior_draw(self) -> ManyPoints:
        """A draw of the unconstrained parameters, from a key."""
        xp, program = jax_in_float64().numpy, self._program

        def of_key(key: AnyArray, rows: Any) -> AnyArray:
            trace = drawn(program.model, program.arguments(rows, xp), {}, _key(key))
            return unconstrained(program.sites, trace)

        return ManyPoints(of_key)

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        """Draws of the unconstrained parameters from the prior, (n, dim)."""
        keys = rng.integers(1 << 32, size=(n, _KEY)).astype(np.float64)
        return np.asarray(self.prior_draw(keys, dict(self._program.example)))

    def observed(self, rows: Shard) -> dict[str, Array]:
        """What is observed, rows first."""
        sites = self._program.likelihood_sites(self._start, rows, jax_in_float64().numpy)
        return {
            name: np.moveaxis(np.asarray(sites[name]["value"]), self.axes[name], 0)
            for name in self.observed_names
        }

    def new_rows(self, rows: Mapping[str, Any]) -> Shard:
        """Rows that a user gives; what is only observed may be missing."""
        program = self._program
        values = self.observed(program.example)
        held = program.example
        only_observed = [
            name
            for name in program.split.names
            if any(np.array_equal(np.asarray(held[name]), value) for value in values.values())
        ]
        return some_missing(program.split, rows, held, only_observed)

    def __reduce__(self) -> tuple[type["RowProgram"], tuple[Program]]:
        return RowProgram, (self._program,)


@dataclass(frozen=True)
class NumpyroRows:
    """Some rows at points; a `quorate.models.rows.RowsAt`."""

    of: RowProgram
    points: Array
    rows: Shard

    def log_likelihoods(self) -> Array:
        return np.asarray(self._at(self.of.log_likelihoods, self.points))

    def expected(self) -> Array | None:
        if len(self.of.observed_names) != 1:
            return None
        try:
            return np.asarray(self._at(self.of.expected, self.points))
        except (NotImplementedError, AttributeError, BadInputError):
            return None  # the distribution has no mean, or none that NumPyro knows

    def responses(self, random: Random) -> dict[str, Array]:
        both = np.concatenate([self.points, random.seeds().astype(np.float64)], axis=1)
        found: dict[str, Array] = self._at(self.of.responses, both)
        return {name: np.asarray(draws) for name, draws in found.items()}

    def observed(self) -> dict[str, Array]:
        return self.of.observed(self.rows)

    def _at(self, function: ManyPoints, points: Array) -> Any:
        rows = {name: np.asarray(array) for name, array in self.rows.items()}
        return function(points, rows, rows_in(rows))


def _key(numbers: AnyArray) -> AnyArray:
    """A key of JAX, from the last numbers of a vector."""
    return numbers[-_KEY:].astype(jax_in_float64().numpy.uint32)


def _row_axis(name: str, shape: tuple[int, ...], fewer: tuple[int, ...]) -> int:
    """The axis whose length is the number of rows."""
    axes = [axis for axis, (n, m) in enumerate(zip(shape, fewer, strict=True)) if n != m]
    require(
        len(axes) == 1,
        f"Site {name} has log densities of shape {shape}, so those of single rows are not known. "
        "Observe it in a plate of rows, without `to_event` over them.",
    )
    return axes[0]
