"""A model from a NumPyro program."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np

from quorate._extras import jax_in_float64, require_installed
from quorate._types import Array
from quorate.errors import require
from quorate.models.arrays import AnyArray, Namespace
from quorate.models.axes import Axes
from quorate.models.groups.programs.nested_plates import NestedPlateModel
from quorate.models.groups.programs.numpyro import from_local_numpyro
from quorate.models.groups.programs.plates import PlateModel
from quorate.models.programs.jaxed import Compiled, CompiledDensities
from quorate.models.programs.numpyro_axes import axes_of_trace
from quorate.models.programs.numpyro_program import Program, Site, discover, is_latent, log_prob
from quorate.models.programs.numpyro_rows import NumpyroRows, RowProgram
from quorate.models.protocol import Shard
from quorate.models.rows import Ability
from quorate.models.splitting import (
    few_rows,
    halves,
    probes,
    read_roles,
    read_split,
    refuse_row_latent,
    require_factors,
    require_same_prior,
)

_COMPILED = ("_natural", "row_program")


@dataclass(frozen=True)
class NumpyroModel(CompiledDensities):
    """A model with gradients, from a NumPyro program."""

    program: Program
    start: tuple[float, ...]
    compiled: Compiled
    variables: tuple[str, ...]  # names of what `constrain` returns

    @property
    def dim(self) -> int:
        return len(self.names)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(label for site in self.program.sites for label in site.labels)

    @property
    def axes(self) -> Axes:
        """The plates of the program."""
        xp = jax_in_float64().numpy
        trace, _ = self.program.run(xp.asarray(self.initial()), self.program.example, xp)
        return axes_of_trace(trace, self.variables)

    def initial(self) -> Array:
        return np.array(self.start)

    def rows(self, data: Mapping[str, Any]) -> Shard:
        """The data of shards: the arrays that are cut, rows first."""
        return self.program.split.rows(data)

    def constrain(self, draws: Array) -> dict[str, Array]:
        values = self._natural(draws)
        return {name: np.asarray(values[name]) for name in self.variables}

    def lacks(self, ability: Ability) -> str:
        return self.row_program.lacks(ability)

    @property
    def observed_names(self) -> tuple[str, ...]:
        """Names of what the program observes."""
        return self.row_program.observed_names

    def rows_at(self, points: Array, rows: Shard) -> NumpyroRows:
        return NumpyroRows(self.row_program, points, rows)

    def new_rows(self, rows: Mapping[str, Any]) -> Shard:
        """Rows to predict, as `rows_at` takes them."""
        return self.row_program.new_rows(rows)

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        return self.row_program.prior_draws(n, rng)

    @cached_property
    def row_program(self) -> RowProgram:
        """The program, row by row."""
        return RowProgram(self.program)

    @cached_property
    def _natural(self) -> Callable[[Array], dict[str, AnyArray]]:
        jax = jax_in_float64()
        program, example = self.program, self.program.example
        natural: Callable[[Array], dict[str, AnyArray]] = jax.jit(
            jax.vmap(lambda x: program.natural(x, example, jax.numpy))
        )
        return natural

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _COMPILED}


@overload
def from_numpyro(
    model: Callable[..., Any],
    *,
    split: Mapping[str, int],
    data: Mapping[str, Any],
    factors: Mapping[str, str] | None = ...,
    initial: Any = ...,
    local: None = ...,
) -> NumpyroModel: ...
@overload
def from_numpyro(
    model: Callable[..., Any],
    *,
    split: Mapping[str, int],
    data: Mapping[str, Any],
    factors: Mapping[str, str] | None = ...,
    initial: Any = ...,
    local: str,
) -> PlateModel | NestedPlateModel: ...
def from_numpyro(
    model: Callable[..., Any],
    *,
    split: Mapping[str, int],
    data: Mapping[str, Any],
    factors: Mapping[str, str] | None = None,
    initial: Any = None,
    local: str | None = None,
) -> NumpyroModel | PlateModel | NestedPlateModel:
    """A model from a NumPyro program.

    Parameters
    ----------
    model
        The program, a function of keyword arguments. It must take any number of rows, so plates
        get their sizes from the data (`len(y)`).
    split
        The arguments that are cut into shards, and along which axis: {"X": 0, "y": 0}.
    data
        All its arguments. The model keeps a few rows to examine the program with. Arguments that
        are not in `split` are passed whole to every shard.
    factors
        For each `numpyro.factor`, whether it belongs to the `prior` or to the `likelihood`.
    initial
        The unconstrained point where the search for the mode starts; 0 by default.
    local
        The plate of groups. Latent variables within it are one for each group and are integrated
        out of the likelihood; all others are global. An array in `split` must hold the group of
        each row, a whole number from 0. Two plates whose groups nest are "outer/inner"; arrays in
        `split` hold the groups of both. An argument may hold the outer group of each inner one.

    Raises
    ------
    BadInputError
        The program has discrete latent variables, latent variables per row, parameters without a
        prior, subsampled plates, a prior that depends on the rows, or a likelihood that does not
        factor over rows. With `local`, also rows or local variables that depend on more than one
        group, and groups with more than three numbers.
    """
    require_installed({"jax": "numpyro", "numpyro": "numpyro"})
    jax = jax_in_float64()
    require(callable(model), f"model must be a NumPyro program, a function, not {model!r}.")
    cut = read_split(split, data)
    if local is not None:
        return from_local_numpyro(model, cut, data, factors, initial, local)
    constants = {name: value for name, value in data.items() if name not in cut.names}
    example = few_rows(cut.rows(data))
    sites, factor_names = discover(model, constants, cut, example)
    fewer, _ = discover(model, constants, cut, halves(example)[0][0])
    _compare(sites, fewer)
    program = Program(
        model, constants, cut, example, sites, read_roles(factor_names, factors, "factor")
    )
    dim = sum(len(site.labels) for site in sites)
    require(dim > 0, "The model has no latent variables, so there is nothing to draw.")
    start = np.zeros(dim) if initial is None else np.asarray(initial, dtype=np.float64)
    require(start.shape == (dim,), f"initial must hold {dim} numbers, not {initial!r}.")
    compiled = Compiled(program.log_prior, program.log_likelihood)
    variables = _stable_variables(program, jax.numpy, dim)
    built = NumpyroModel(program, tuple(map(float, start)), compiled, variables)
    require_factors(built.log_likelihood, list(probes(dim)), example)
    return built


def _compare(sites: tuple[Site, ...], fewer: tuple[Site, ...]) -> None:
    shapes = {site.name: site.shape for site in fewer}
    for site in sites:
        refuse_row_latent(site.name, site.shape, shapes.get(site.name, ()))
    names, others = ([site.name for site in found] for found in (sites, fewer))
    require(
        names == others,
        f"The latent variables are {names} for all rows and {others} for some of them. They must "
        "not depend on the number of rows.",
    )


def _stable_variables(program: Program, xp: Namespace, dim: int) -> tuple[str, ...]:
    """Names of variables that do not depend on the rows. Priors that do are refused."""
    (x,), (first, second) = probes(dim, 1), halves(program.example)[1]
    traces = [program.run(xp.asarray(x), rows, xp)[0] for rows in (first, second)]
    for name, site in traces[0].items():
        if is_latent(site):
            require_same_prior(name, *(np.asarray(log_prob(trace[name])) for trace in traces))
    values = [program.natural(xp.asarray(x), rows, xp) for rows in (first, second, program.example)]
    return tuple(
        name
        for name, value in values[0].items()
        if all(
            value.shape == other[name].shape and bool(np.allclose(value, other[name]))
            for other in values[1:]
        )
    )
