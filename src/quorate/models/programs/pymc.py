"""A model from a PyMC model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np

from quorate._extras import load_all
from quorate._types import Array
from quorate.errors import BadInputError, require
from quorate.models.axes import Axes
from quorate.models.checks import call, settled, settled_gradient
from quorate.models.groups.programs.nested_plates import NestedPlateModel
from quorate.models.groups.programs.plates import PlateModel
from quorate.models.groups.programs.pymc import from_local_pymc
from quorate.models.programs.pymc_axes import axes_of_pymc
from quorate.models.programs.pymc_graph import (
    Graph,
    data_of,
    labels_of,
    refuse_rows_in_prior,
    value_of,
)
from quorate.models.programs.pymc_row_graph import PymcRows, RowGraph
from quorate.models.protocol import Shard
from quorate.models.rows import Ability
from quorate.models.splitting import (
    few_rows,
    probes,
    read_roles,
    read_split,
    refuse_discrete,
    require_factors,
)


@dataclass(frozen=True)
class PymcModel:
    """A model with gradients, from a PyMC model."""

    graph: Graph
    names: tuple[str, ...]
    start: tuple[float, ...]

    is_compiled = True

    @property
    def dim(self) -> int:
        return len(self.names)

    @property
    def axes(self) -> Axes:
        """Dims and coords of the PyMC model."""
        return axes_of_pymc(self.graph.model, self.graph.names, self.graph.split)

    def initial(self) -> Array:
        return np.array(self.start)

    def rows(self, data: Mapping[str, Any] | None = None) -> Shard:
        """The data of shards, rows first; by default those in the PyMC model."""
        held = {name: value_of(variable) for name, variable in data_of(self.graph.model).items()}
        return self.graph.split.rows(held if data is None else data)

    def log_prior(self, x: Array) -> float:
        (value,) = self.graph.prior_alone(x)
        return settled("log_prior", value, x, self.names)

    def log_likelihood(self, x: Array, shard: Shard) -> float:
        (value,) = self._on_rows(self.graph.likelihood_alone, x, shard)
        return settled("log_likelihood", value, x, self.names)

    def log_prior_and_gradient(self, x: Array) -> tuple[float, Array]:
        value, gradient = self.graph.prior(x)
        number = settled("log_prior", value, x, self.names)
        return number, settled_gradient("log_prior", number, gradient, x, self.names)

    def log_likelihood_and_gradient(self, x: Array, shard: Shard) -> tuple[float, Array]:
        value, gradient = self._on_rows(self.graph.likelihood, x, shard)
        number = settled("log_likelihood", value, x, self.names)
        return number, settled_gradient("log_likelihood", number, gradient, x, self.names)

    def constrain(self, draws: Array) -> dict[str, Array]:
        names, natural = self.graph.natural
        columns = zip(*(natural(x) for x in draws), strict=True)
        return {name: np.array(column) for name, column in zip(names, columns, strict=True)}

    def lacks(self, ability: Ability) -> str:
        return self.row_graph.lacks(ability)

    @property
    def observed_names(self) -> tuple[str, ...]:
        """Names of what the model observes."""
        return self.row_graph.observed_names

    def rows_at(self, points: Array, rows: Shard) -> PymcRows:
        return PymcRows(self.row_graph, points, rows)

    def new_rows(self, rows: Mapping[str, Any]) -> Shard:
        """Rows to predict, as `rows_at` takes them."""
        return self.row_graph.new_rows(rows)

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        return self.row_graph.prior_draws(n, rng)

    @cached_property
    def row_graph(self) -> RowGraph:
        """The graph, row by row."""
        return RowGraph(self.graph, self.start)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "row_graph"}

    def _on_rows(self, function: Callable[..., Any], x: Array, shard: Shard) -> Any:
        arrays = self.graph.split.restored(shard)
        return call("log_likelihood", lambda x, rows: function(x, *rows.values()), x, arrays)


@dataclass(frozen=True)
class JaxPymcModel(PymcModel):
    """A PyMC model in mode JAX, which is evaluated at many points at once."""

    def log_prior_many(self, points: Array) -> Array:
        return self.graph.many("prior_alone", points)[0]

    def log_likelihood_many(self, points: Array, shard: Shard) -> Array:
        return self._many("likelihood_alone", points, shard)[0]

    def log_prior_and_gradient_many(self, points: Array) -> tuple[Array, Array]:
        values, gradients = self.graph.many("prior", points)
        return values, gradients

    def log_likelihood_and_gradient_many(self, points: Array, shard: Shard) -> tuple[Array, Array]:
        values, gradients = self._many("likelihood", points, shard)
        return values, gradients

    def _many(self, name: str, points: Array, shard: Shard) -> list[Array]:
        outputs: list[Array] = call("log_likelihood", self.graph.many, name, points, shard)
        return outputs


@overload
def from_pymc(
    model: Any,
    split: Mapping[str, int],
    *,
    potentials: Mapping[str, str] | None = ...,
    initial: Any = ...,
    mode: str | None = ...,
    local: None = ...,
) -> PymcModel: ...
@overload
def from_pymc(
    model: Any,
    split: Mapping[str, int],
    *,
    potentials: Mapping[str, str] | None = ...,
    initial: Any = ...,
    mode: str | None = ...,
    local: str,
) -> PlateModel | NestedPlateModel: ...
def from_pymc(
    model: Any,
    split: Mapping[str, int],
    *,
    potentials: Mapping[str, str] | None = None,
    initial: Any = None,
    mode: str | None = None,
    local: str | None = None,
) -> PymcModel | PlateModel | NestedPlateModel:
    """A model from a PyMC model.

    Parameters
    ----------
    model
        The PyMC model. It must hold the arrays that are cut as `pm.Data` or as `observed` values.
    split
        Names of these arrays (of the `pm.Data`, or of the observed variable) and the axis along
        which each is cut: {"X": 0, "y": 0}.
    potentials
        For each `pm.Potential`, whether it belongs to the `prior` or to the `likelihood`.
    initial
        The unconstrained point where the search for the mode starts; PyMC's own by default.
    mode
        PyTensor's compilation mode: its default, or `JAX` or `NUMBA`, which have their own BLAS.
        In mode `JAX` the model is evaluated at many points at once.
    local
        The dimension of groups. Latent variables with it are one for each group and are integrated
        out of the likelihood, under JAX; all others are global. An array in `split` must hold the
        group of each row, a whole number from 0. Where groups nest, both dimensions, the outer
        one first: "states/counties".

    Raises
    ------
    BadInputError
        The model has discrete latent variables, latent variables per row, a prior that depends on
        the data, or a likelihood that does not factor over rows. With `local`, also rows or local
        variables that depend on more than one group, and groups with more than three numbers.
    """
    in_jax = {"jax": "jax"} if local is not None or mode == "JAX" else {}
    pymc = load_all({"pymc": "pymc", **in_jax})
    is_model = isinstance(model, pymc.Model)
    require(is_model, f"model must be a pm.Model, not a {type(model).__name__}.")
    data = data_of(model)
    cut = read_split(split, {name: value_of(variable) for name, variable in data.items()})
    for value in model.value_vars:
        if value.dtype.startswith(("int", "uint", "bool")):
            refuse_discrete(model.values_to_rvs[value].name)
    if local is not None:
        require(mode in (None, "JAX"), f"Local variables need mode 'JAX', not {mode!r}.")
        return from_local_pymc(model, cut, potentials, initial, local)
    refuse_rows_in_prior(model, model.free_RVs, cut)
    names = tuple(potential.name for potential in model.potentials)
    point = model.initial_point()
    shapes = tuple(np.shape(point[value.name]) for value in model.value_vars)
    graph = Graph(model, cut, read_roles(names, potentials, "potential"), shapes, mode)
    start = [np.ravel(point[value.name]) for value in model.value_vars] or [np.zeros(0)]
    x = np.concatenate(start) if initial is None else np.asarray(initial, dtype=np.float64)
    labels = labels_of(model.free_RVs, model.value_vars, shapes)
    dim = len(labels)
    require(dim > 0, "The model has no latent variables, so there is nothing to draw.")
    require(x.shape == (dim,), f"initial must hold {dim} numbers, not {initial!r}.")
    kind = JaxPymcModel if mode == "JAX" else PymcModel
    built = kind(graph, labels, tuple(map(float, x)))
    _require_fewer_rows_work(built)
    require_factors(built.log_likelihood, list(probes(built.dim)), few_rows(built.rows()))
    return built


def _require_fewer_rows_work(built: PymcModel) -> None:
    rows = built.rows()
    few = few_rows(rows)
    fewer = {name: array[:-1] for name, array in few.items()}
    try:
        built.log_likelihood(built.initial(), fewer)
    except BadInputError as error:
        n_rows = len(next(iter(rows.values())))
        shapes = zip(built.graph.model.value_vars, built.graph.shapes, strict=True)
        guilty = [str(value.name) for value, shape in shapes if n_rows in shape]
        culprit = f" Latent variable {', '.join(guilty)} is one per row." if guilty else ""
        message = (
            f"The log-likelihood cannot be evaluated on some of the rows.{culprit} Name in `split` "
            f"every array with rows, as pm.Data, and declare no latent variable per row. {error}"
        )
        raise BadInputError(message) from error
