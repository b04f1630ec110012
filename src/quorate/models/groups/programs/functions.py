"""A model with local parameters from plain functions, in numpy or JAX."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import BadInputError, WrongShapeError
from quorate.models.arrays import AnyArray
from quorate.models.checks import call, require_real, require_scalar
from quorate.models.groups.levels import Level
from quorate.models.groups.programs.backends import Backend, JaxBackend, NumpyBackend
from quorate.models.groups.programs.model import (
    JaxProgramModel,
    ProgramModel,
    require_few_dimensions,
)
from quorate.models.groups.programs.shards import codes_of, compact
from quorate.models.parameters import Parameters, declared
from quorate.models.protocol import Shard


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
    """

    prior: Callable[..., Any]
    of_groups: Callable[..., Any]
    of_rows: Callable[..., Any]
    parameters: Parameters
    local: Parameters
    groups: str

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
        xp, index, rows = backend.xp, inputs["index"], inputs["rows"]
        parameters = self.parameters.constrain(x, xp)
        own = call("log_local", self.of_groups, parameters, self.local.constrain(z, xp))
        _require_shape("log_local", own, len(z), "group")
        local = self.local.constrain(z[index], xp)
        values = call("log_likelihood", self.of_rows, parameters, local, rows)
        _require_shape("log_likelihood", values, len(index), "row")
        sums = backend.sum_by_group(values, index, len(z))
        return own + self.local.log_jacobian(z, xp) + sums

    def natural(self, x: AnyArray, z: AnyArray, inputs: Any, backend: Backend) -> AnyArray:
        values = self.local.named(z, backend.xp)
        return backend.xp.concatenate([v.reshape(len(z), -1) for v in values.values()], axis=1)

    def prepared(self, shard: Shard) -> tuple[Any, IntArray]:
        codes, index, order = compact(self.row_codes(shard))
        rows = {name: array[order] for name, array in shard.items()}
        return {"rows": rows, "index": index}, codes

    def row_codes(self, shard: Shard) -> IntArray:
        return codes_of(shard, self.groups)

    def constrain(self, draws: Array) -> dict[str, Array]:
        return self.parameters.named(draws)


def from_local_functions(
    log_prior: Callable[..., Any],
    log_local: Callable[..., Any] | None,
    log_likelihood: Callable[..., Any],
    parameters: Parameters,
    local: Mapping[str, Any] | None,
    groups: str | None,
    backend: str,
    start: tuple[float, ...],
) -> ProgramModel:
    """The model of `from_functions` with `local`."""
    if not isinstance(local, Mapping):
        raise BadInputError(f'local must be a dictionary such as {{"z": Real(2)}}, not {local!r}.')
    if not isinstance(groups, str) or not groups:
        raise BadInputError(f"groups must name the column of the groups, not {groups!r}.")
    if not callable(log_local):
        raise BadInputError(
            f"log_local must be a function, not {log_local!r}: the log density of the local "
            "parameters given the global ones, one number for each group."
        )
    own = declared(local)
    require_few_dimensions(own.dim, ", ".join(own.names))
    functions = LocalFunctions(log_prior, log_local, log_likelihood, parameters, own, groups)
    if backend == "jax":
        return JaxProgramModel(functions, start, JaxBackend())
    return ProgramModel(functions, start, NumpyBackend())


def _require_shape(what: str, values: Any, n: int, each: str) -> None:
    shape = np.shape(values)
    if shape != (n,):
        raise WrongShapeError(
            f"{what} returned an array of shape {shape} for {n} {each}s. It must return one number "
            f"for each {each}, shape ({n},): sum over the parameters of a group, not over {each}s."
        )
    require_real(what, values)
