"""A model from a PyMC model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate._extras import load
from quorate._types import Array
from quorate.errors import BadInputError, require
from quorate.models.arrays import indexed
from quorate.models.checks import call, settled, settled_gradient
from quorate.models.protocol import Shard
from quorate.models.pymc_graph import Graph, ancestors, data_of, value_of
from quorate.models.splitting import (
    PER_ROW,
    Split,
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

    @property
    def dim(self) -> int:
        return len(self.names)

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


def from_pymc(
    model: Any,
    split: Mapping[str, int],
    *,
    potentials: Mapping[str, str] | None = None,
    initial: Any = None,
    mode: str | None = None,
) -> PymcModel:
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

    Raises
    ------
    BadInputError
        The model has discrete latent variables, latent variables per row, a prior that depends on
        the data, or a likelihood that does not factor over rows.
    """
    pymc = load("pymc", "pymc")
    is_model = isinstance(model, pymc.Model)
    require(is_model, f"model must be a pm.Model, not a {type(model).__name__}.")
    data = data_of(model)
    cut = read_split(split, {name: value_of(variable) for name, variable in data.items()})
    for value in model.value_vars:
        if value.dtype.startswith(("int", "uint", "bool")):
            refuse_discrete(model.values_to_rvs[value].name)
    _refuse_rows_in_prior(model, cut)
    names = tuple(potential.name for potential in model.potentials)
    point = model.initial_point()
    shapes = tuple(np.shape(point[value.name]) for value in model.value_vars)
    graph = Graph(model, cut, read_roles(names, potentials, "potential"), shapes, mode)
    start = [np.ravel(point[value.name]) for value in model.value_vars] or [np.zeros(0)]
    x = np.concatenate(start) if initial is None else np.asarray(initial, dtype=np.float64)
    labels = _labels(model, shapes)
    dim = len(labels)
    require(dim > 0, "The model has no latent variables, so there is nothing to draw.")
    require(x.shape == (dim,), f"initial must hold {dim} numbers, not {initial!r}.")
    kind = JaxPymcModel if mode == "JAX" else PymcModel
    built = kind(graph, labels, tuple(map(float, x)))
    _require_fewer_rows_work(built)
    require_factors(built.log_likelihood, list(probes(built.dim)), few_rows(built.rows()))
    return built


def _refuse_rows_in_prior(model: Any, split: Split) -> None:
    data, dims = data_of(model), model.named_vars_to_dims
    row_dims = {dims[name][axis] for name, axis in split.axes if name in dims} - {None}
    lengths = {model.dim_lengths[dim] for dim in row_dims if dim in model.dim_lengths}
    sources = {data[name]: name for name in split.names}
    for rv in model.free_RVs:
        above = ancestors(rv)
        per_row = row_dims & set(dims.get(rv.name, ())) or lengths & above
        require(not per_row, f"Latent variable {rv.name} is one per row. {PER_ROW}")
        used = sorted(name for variable, name in sources.items() if variable in above)
        require(
            not used,
            f"The size or the prior of latent variable {rv.name} depends on {', '.join(used)}, "
            "which is cut, so shards would have different latent variables or priors. Compute what "
            "it needs beforehand, as a number; integrate out latent variables per row.",
        )


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


def _labels(model: Any, shapes: tuple[tuple[int, ...], ...]) -> tuple[str, ...]:
    labels: list[str] = []
    for rv, value, shape in zip(model.free_RVs, model.value_vars, shapes, strict=True):
        kind = value.name.removeprefix(rv.name).strip("_")
        wrap = {"": "{}", "log": "log({})", "logodds": "logit({})"}.get(kind, "free({})")
        labels.extend(wrap.format(label) for label in indexed(rv.name, shape))
    return tuple(labels)
