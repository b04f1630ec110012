"""A model with two levels of local parameters from plain functions, in JAX."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import require
from quorate.models.arrays import AnyArray
from quorate.models.checks import call, require_scalar
from quorate.models.groups.levels import Level
from quorate.models.groups.nesting import Nesting
from quorate.models.groups.programs.backends import Backend, JaxBackend
from quorate.models.groups.programs.function_checks import require_shape
from quorate.models.groups.programs.function_draws import GroupsOfRows, Simulators, simulators
from quorate.models.groups.programs.model import JaxProgramModel
from quorate.models.groups.programs.nested import OuterProgram
from quorate.models.groups.programs.refusals import require_few_dimensions
from quorate.models.groups.programs.shards import codes_of, nested_codes
from quorate.models.parameters import Parameters, declared
from quorate.models.programs.function_rows import prior_draws
from quorate.models.protocol import Shard
from quorate.models.rows import Ability, Seeds


@dataclass(frozen=True)
class NestedFunctions:
    """A user's functions: prior, densities of both levels, and of rows; a `nested.TwoLevels`.

    Parameters
    ----------
    prior, of_outer, of_inner, of_rows
        `log_prior`, the two functions of `log_local`, and `log_likelihood` of `from_functions`.
    parameters, outer, inner
        What is global, and what each group has.
    columns
        The columns that define groups, the outer one first.
    draws
        What the user gave to draw with.
    """

    prior: Callable[..., Any]
    of_outer: Callable[..., Any]
    of_inner: Callable[..., Any]
    of_rows: Callable[..., Any]
    parameters: Parameters
    outer: Parameters
    inner: Parameters
    columns: tuple[str, str]
    draws: Simulators

    @property
    def names(self) -> tuple[str, ...]:
        return self.parameters.names

    @property
    def local_parameters(self) -> tuple[Parameters, Parameters]:
        """What the groups of each level have."""
        return self.outer, self.inner

    @property
    def local_dims(self) -> tuple[int, int]:
        return self.outer.dim, self.inner.dim

    @property
    def levels(self) -> tuple[Level, Level]:
        names = self.outer.value_names, self.inner.value_names
        outer, inner = self.columns
        return (
            Level(outer, names[0], (len(names[0]),)),
            Level(f"{outer}:{inner}", names[1], (len(names[1]),)),
        )

    def log_prior(self, x: AnyArray, backend: Backend) -> AnyArray:
        value = call("log_prior", self.prior, self.parameters.constrain(x, backend.xp))
        require_scalar("log_prior", value)
        return value + self.parameters.log_jacobian(x, backend.xp)

    def densities(
        self, x: AnyArray, u: AnyArray, v: AnyArray, inputs: Any, backend: Backend
    ) -> tuple[AnyArray, AnyArray]:
        xp, (first, second) = backend.xp, self.columns
        parameters, of_outer = self.parameters.constrain(x, xp), self.outer.constrain(u, xp)
        own = call(f"log_local[{first!r}]", self.of_outer, parameters, of_outer)
        require_shape(f"log_local[{first!r}]", own, len(u), "group")
        both = self._local(u[inputs["within"]], v, xp)
        given = call(f"log_local[{second!r}]", self.of_inner, parameters, both)
        require_shape(f"log_local[{second!r}]", given, len(v), "group")
        of_rows = self.row_densities(x, u, v, inputs, backend)
        sums = backend.sum_by_group(of_rows, inputs["index"], len(v))
        own = own + self.outer.log_jacobian(u, xp)
        return own, given + self.inner.log_jacobian(v, xp) + sums

    def row_densities(
        self, x: AnyArray, u: AnyArray, v: AnyArray, inputs: Any, backend: Backend
    ) -> AnyArray:
        xp, index, within = backend.xp, inputs["index"], inputs["within"]
        local = self._local(u[within][index], v[index], xp)
        parameters = self.parameters.constrain(x, xp)
        values = call("log_likelihood", self.of_rows, parameters, local, inputs["rows"])
        require_shape("log_likelihood", values, len(index), "row")
        return values

    def _local(self, u: AnyArray, v: AnyArray, xp: Any = np) -> dict[str, Any]:
        """Natural values of both levels, as functions take them."""
        return {**self.outer.constrain(u, xp), **self.inner.constrain(v, xp)}

    def natural(
        self, x: AnyArray, u: AnyArray, v: AnyArray, inputs: Any, backend: Backend
    ) -> tuple[AnyArray, AnyArray]:
        xp, found = backend.xp, []
        for parameters, z in ((self.outer, u), (self.inner, v)):
            values = parameters.named(z, xp).values()
            found.append(xp.concatenate([part.reshape(len(z), -1) for part in values], axis=1))
        return found[0], found[1]

    def lacks(self, ability: Ability) -> str:
        return self.draws.lacks(ability)

    def responses(
        self, points: Array, u: Array, v: Array, inputs: Any, seeds: Seeds
    ) -> dict[str, Array]:
        index, within = inputs["index"], inputs["within"]
        local = (self._local(a[within][index], b[index]) for a, b in zip(u, v, strict=True))
        rngs = map(np.random.default_rng, seeds)
        each = zip(map(self.parameters.constrain, points), local, rngs, strict=True)
        return self.draws.responses(each, inputs["rows"])

    def simulated(self, points: Array, inputs: Any, seeds: Seeds) -> dict[str, Array]:
        index = inputs["index"]
        places = zip(self.local_parameters, (inputs["within"][index], index), strict=True)
        levels = [GroupsOfRows.unknown(own, place, len(points)) for own, place in places]
        given = map(self.parameters.constrain, points)
        return self.draws.responses_of(given, levels, inputs["rows"], seeds)

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        return prior_draws(self.draws.draw_prior, self.parameters, n, rng)

    def observed(self, inputs: Any) -> dict[str, Array]:
        return dict(inputs["rows"])

    def prepared(self, shard: Shard) -> tuple[Any, Nesting]:
        nesting, place = nested_codes(shard, self.columns)
        order = np.argsort(place, kind="stable")
        rows = {name: array[order] for name, array in shard.items()}
        return {"rows": rows, "index": place[order], "within": nesting.within}, nesting

    def row_codes(self, shard: Shard) -> IntArray:
        return codes_of(shard, self.columns[0])

    def row_order(self, shard: Shard) -> IntArray:
        return np.argsort(nested_codes(shard, self.columns)[1], kind="stable")

    def constrain(self, draws: Array) -> dict[str, Array]:
        return self.parameters.named(draws)


def from_nested_functions(
    log_prior: Callable[..., Any],
    log_local: Any,
    log_likelihood: Callable[..., Any],
    parameters: Parameters,
    local: Any,
    groups: str,
    backend: str,
    start: tuple[float, ...],
    **draws: Any,
) -> JaxProgramModel:
    """The model of `from_functions` with `groups="outer/inner"`; `draws` are of `simulators`."""
    columns = tuple(groups.split("/"))
    sound = len(columns) == 2 and all(columns) and columns[0] != columns[1]
    require(sound, f'groups must name one column, or two as in "state/county", not {groups!r}.')
    first, second = columns
    example = f'{{"{first}": {{"u": Real()}}, "{second}": {{"v": Real()}}}}'
    fits = _has_both(local, columns) and all(isinstance(local[name], Mapping) for name in columns)
    require(fits, f"local must declare parameters of both levels, as {example}, not {local!r}.")
    require(
        _has_both(log_local, columns) and all(map(callable, log_local.values())),
        f'log_local must have a function for each level, {{"{first}": ..., "{second}": ...}}, not '
        f"{log_local!r}. That of {second} also gets the parameters of the {first} of each group.",
    )
    require(
        backend == "jax",
        f"Functions of groups within groups ({groups}) must be written in jax.numpy: "
        'give backend="jax".',
    )
    both = sorted(local[first].keys() & local[second].keys())
    require(not both, f"Parameters of both levels have the name {', '.join(both)}. Rename some.")
    outer, inner = declared(local[first]), declared(local[second])
    require_few_dimensions(outer.dim + inner.dim, ", ".join((*outer.names, *inner.names)))
    functions = NestedFunctions(
        log_prior,
        log_local[first],
        log_local[second],
        log_likelihood,
        parameters,
        outer,
        inner,
        (first, second),
        simulators(**draws, columns=columns),
    )
    return JaxProgramModel(OuterProgram(functions), start, JaxBackend())


def _has_both(given: Any, columns: tuple[str, ...]) -> bool:
    return isinstance(given, Mapping) and set(given) == set(columns)
