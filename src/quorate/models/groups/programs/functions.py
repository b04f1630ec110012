"""A model with local parameters from plain functions, in numpy or JAX."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import BadInputError
from quorate.models.arrays import AnyArray
from quorate.models.checks import call, require_scalar
from quorate.models.groups.levels import Level
from quorate.models.groups.programs.backends import Backend, JaxBackend, NumpyBackend
from quorate.models.groups.programs.function_checks import require_shape
from quorate.models.groups.programs.function_draws import GroupsOfRows, Simulators, simulators
from quorate.models.groups.programs.model import JaxProgramModel, ProgramModel
from quorate.models.groups.programs.nested import OuterProgram
from quorate.models.groups.programs.nested_functions import NestedFunctions, from_nested_functions
from quorate.models.groups.programs.refusals import one_level, require_few_dimensions
from quorate.models.groups.programs.shards import codes_of, compact
from quorate.models.parameters import Parameters, declared
from quorate.models.programs.function_rows import prior_draws
from quorate.models.protocol import Shard
from quorate.models.rows import Ability, Seeds


@dataclass(frozen=True)
class LocalFunctions:
    """A user's three functions: prior, densities of local parameters, and of rows.

    Parameters
    ----------
    prior, of_groups, of_rows
        `log_prior`, `log_local` and `log_likelihood` of `from_functions`.
    parameters, local
        What is global, and what each group has.
    groups
        The column that defines groups.
    draws
        What the user gave to draw with.
    """

    prior: Callable[..., Any]
    of_groups: Callable[..., Any]
    of_rows: Callable[..., Any]
    parameters: Parameters
    local: Parameters
    groups: str
    draws: Simulators

    within = None

    @property
    def local_parameters(self) -> tuple[Parameters, ...]:
        """What the groups of each level have."""
        return (self.local,)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that define groups."""
        return (self.groups,)

    @property
    def names(self) -> tuple[str, ...]:
        return self.parameters.names

    @property
    def local_dim(self) -> int:
        return self.local.dim

    @property
    def level(self) -> Level:
        names = self.local.value_names
        return Level(self.groups, names, (len(names),))

    def log_prior(self, x: AnyArray, backend: Backend) -> AnyArray:
        value = call("log_prior", self.prior, self.parameters.constrain(x, backend.xp))
        require_scalar("log_prior", value)
        return value + self.parameters.log_jacobian(x, backend.xp)

    def joint(self, x: AnyArray, z: AnyArray, inputs: Any, backend: Backend) -> AnyArray:
        xp, index = backend.xp, inputs["index"]
        parameters = self.parameters.constrain(x, xp)
        own = call("log_local", self.of_groups, parameters, self.local.constrain(z, xp))
        require_shape("log_local", own, len(z), "group")
        sums = backend.sum_by_group(self.row_densities(x, z, inputs, backend), index, len(z))
        return own + self.local.log_jacobian(z, xp) + sums

    def row_densities(self, x: AnyArray, z: AnyArray, inputs: Any, backend: Backend) -> AnyArray:
        xp, index = backend.xp, inputs["index"]
        given = self.parameters.constrain(x, xp), self.local.constrain(z[index], xp)
        values = call("log_likelihood", self.of_rows, *given, inputs["rows"])
        require_shape("log_likelihood", values, len(index), "row")
        return values

    def lacks(self, ability: Ability) -> str:
        return self.draws.lacks(ability)

    def responses(self, points: Array, z: Array, inputs: Any, seeds: Seeds) -> dict[str, Array]:
        local = (self.local.constrain(at[inputs["index"]]) for at in z)
        rngs = map(np.random.default_rng, seeds)
        each = zip(map(self.parameters.constrain, points), local, rngs, strict=True)
        return self.draws.responses(each, inputs["rows"])

    def simulated(self, points: Array, inputs: Any, seeds: Seeds) -> dict[str, Array]:
        groups = GroupsOfRows.unknown(self.local, inputs["index"], len(points))
        given = map(self.parameters.constrain, points)
        return self.draws.responses_of(given, (groups,), inputs["rows"], seeds)

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        return prior_draws(self.draws.draw_prior, self.parameters, n, rng)

    def observed(self, inputs: Any) -> dict[str, Array]:
        return dict(inputs["rows"])

    def natural(self, x: AnyArray, z: AnyArray, inputs: Any, backend: Backend) -> AnyArray:
        values = self.local.named(z, backend.xp)
        return backend.xp.concatenate([v.reshape(len(z), -1) for v in values.values()], axis=1)

    def prepared(self, shard: Shard) -> tuple[Any, IntArray]:
        codes, index, order = compact(self.row_codes(shard))
        rows = {name: array[order] for name, array in shard.items()}
        return {"rows": rows, "index": index}, codes

    def row_codes(self, shard: Shard) -> IntArray:
        return codes_of(shard, self.groups)

    def row_order(self, shard: Shard) -> IntArray:
        return compact(self.row_codes(shard))[2]

    def constrain(self, draws: Array) -> dict[str, Array]:
        return self.parameters.named(draws)


def functions_of(model: object) -> LocalFunctions | NestedFunctions | None:
    """The functions of a model of `from_functions` with local parameters; None for other models."""
    program = model.program if isinstance(model, ProgramModel) else None
    held = program.two if isinstance(program, OuterProgram) else program
    return held if isinstance(held, LocalFunctions | NestedFunctions) else None


def from_local_functions(
    log_prior: Callable[..., Any],
    log_local: Any,
    log_likelihood: Callable[..., Any],
    parameters: Parameters,
    local: Mapping[str, Any] | None,
    groups: str | None,
    backend: str,
    start: tuple[float, ...],
    **draws: Any,
) -> ProgramModel:
    """The model of `from_functions` with `local`; `draws` are the parameters of `simulators`."""
    if not isinstance(local, Mapping):
        raise BadInputError(f'local must be a dictionary such as {{"z": Real(2)}}, not {local!r}.')
    if isinstance(groups, str) and "/" in groups:
        return from_nested_functions(
            log_prior,
            log_local,
            log_likelihood,
            parameters,
            local,
            groups,
            backend,
            start,
            **draws,
        )
    column = one_level(groups, "groups must name the column")
    if not callable(log_local):
        raise BadInputError(
            f"log_local must be a function, not {log_local!r}: the log density of the local "
            "parameters given the global ones, one number for each group."
        )
    own = declared(local)
    require_few_dimensions(own.dim, ", ".join(own.names))
    given = simulators(**draws, columns=(column,))
    functions = LocalFunctions(log_prior, log_local, log_likelihood, parameters, own, column, given)
    if backend == "jax":
        return JaxProgramModel(functions, start, JaxBackend())
    return ProgramModel(functions, start, NumpyBackend())
