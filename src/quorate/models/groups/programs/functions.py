"""A model with local parameters from plain functions, in numpy or JAX."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from quorate._types import Array, IntArray
from quorate.errors import BadInputError
from quorate.models.arrays import AnyArray
from quorate.models.checks import call, require_scalar
from quorate.models.groups.levels import Level
from quorate.models.groups.programs.backends import Backend, JaxBackend, NumpyBackend
from quorate.models.groups.programs.function_checks import (
    drawn_responses,
    lacks_of_functions,
    require_shape,
)
from quorate.models.groups.programs.model import JaxProgramModel, ProgramModel
from quorate.models.groups.programs.nested_functions import from_nested_functions
from quorate.models.groups.programs.refusals import NO_PRIOR, one_level, require_few_dimensions
from quorate.models.groups.programs.shards import codes_of, compact
from quorate.models.parameters import Parameters, declared
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
    simulate
        `simulate` of `from_functions`, if it was given.
    """

    prior: Callable[..., Any]
    of_groups: Callable[..., Any]
    of_rows: Callable[..., Any]
    parameters: Parameters
    local: Parameters
    groups: str
    simulate: Callable[..., Any] | None = None

    within = None

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
        return lacks_of_functions(ability, self.simulate)

    def responses(self, points: Array, z: Array, inputs: Any, seeds: Seeds) -> dict[str, Array]:
        local = (self.local.constrain(at[inputs["index"]]) for at in z)
        each = zip(map(self.parameters.constrain, points), local, seeds, strict=True)
        return drawn_responses(self.simulate, each, inputs["rows"])

    def predicted(
        self, points: Array, values: Array, rows: Shard, seeds: Seeds
    ) -> dict[str, Array]:
        """Responses of rows whose groups have these natural values, (n_points, n_rows, r)."""
        local = map(self.local.of_values, values)
        each = zip(map(self.parameters.constrain, points), local, seeds, strict=True)
        return drawn_responses(self.simulate, each, rows)

    def simulated(self, points: Array, inputs: Any, seeds: Seeds) -> dict[str, Array]:
        raise BadInputError(NO_PRIOR)

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


def from_local_functions(
    log_prior: Callable[..., Any],
    log_local: Any,
    log_likelihood: Callable[..., Any],
    parameters: Parameters,
    local: Mapping[str, Any] | None,
    groups: str | None,
    backend: str,
    start: tuple[float, ...],
    simulate: Callable[..., Any] | None = None,
) -> ProgramModel:
    """The model of `from_functions` with `local`."""
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
            simulate,
        )
    column = one_level(groups, "groups must name the column")
    if not callable(log_local):
        raise BadInputError(
            f"log_local must be a function, not {log_local!r}: the log density of the local "
            "parameters given the global ones, one number for each group."
        )
    own = declared(local)
    require_few_dimensions(own.dim, ", ".join(own.names))
    functions = LocalFunctions(
        log_prior, log_local, log_likelihood, parameters, own, column, simulate
    )
    if backend == "jax":
        return JaxProgramModel(functions, start, JaxBackend())
    return ProgramModel(functions, start, NumpyBackend())
