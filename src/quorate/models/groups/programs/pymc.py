"""PyMC models with a dimension of groups, whose latent variables are integrated out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array
from quorate.errors import require
from quorate.models.arrays import AnyArray, indexed
from quorate.models.axes import Axes, Labels
from quorate.models.axes import labels_of as coord_labels
from quorate.models.groups.levels import Level
from quorate.models.groups.programs.backends import JaxBackend
from quorate.models.groups.programs.examination import examined
from quorate.models.groups.programs.plates import (
    Constants,
    PlateModel,
    PlateProgram,
    started,
    sums_along,
)
from quorate.models.groups.programs.pymc_graph import LocalGraph
from quorate.models.groups.programs.refusals import require_few_dimensions
from quorate.models.programs.pymc_axes import axes_of_pymc
from quorate.models.programs.pymc_graph import (
    ancestors,
    data_of,
    labels_of,
    refuse_rows_in_prior,
    value_of,
)
from quorate.models.protocol import Shard
from quorate.models.splitting import Split, read_roles


@dataclass(frozen=True)
class PymcPlate:
    """A PyMC model with a dimension of groups of any size.

    Parameters
    ----------
    graph
        Its functions.
    row_axes
        The axis of rows of each term of the likelihood; None for one that belongs to groups.
    shown
        Names of what is reported of groups.
    """

    graph: LocalGraph
    row_axes: tuple[int | None, ...] = ()
    shown: tuple[str, ...] = ()

    def log_prior(self, x: AnyArray) -> AnyArray:
        return self.graph.log_prior(x)

    def densities(
        self, x: AnyArray, z: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> tuple[AnyArray, AnyArray]:
        terms = iter(self.graph.terms(x, z, rows, constants))
        own = [sums_along(next(terms), self.graph.axis_of(rv)) for rv in self.graph.local]
        of_rows = []
        for term, axis in zip(terms, self.row_axes, strict=True):
            if axis is None:
                own.append(sums_along(term, 0))
            else:
                of_rows.append(sums_along(term, axis))
        return sum(own), sum(of_rows)

    def reported(
        self, x: AnyArray, z: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> AnyArray:
        values = self.graph.told(x, z, rows, constants)
        xp = jax_in_float64().numpy
        return xp.concatenate([values[name].reshape(len(z), -1) for name in self.shown], axis=1)

    def constrain(self, draws: Array) -> dict[str, Array]:
        jax = jax_in_float64()
        values = jax.vmap(self.graph.natural)(jax.numpy.asarray(draws))
        return {name: np.asarray(value) for name, value in values.items()}

    def axes(self, n_groups: int) -> Axes:
        graph = self.graph
        return axes_of_pymc(graph.model, (*graph.global_names, *self.shown), graph.split)

    def group_axis(self, name: str) -> int:
        dims = self.graph.model.named_vars_to_dims.get(name, ())
        return dims.index(self.graph.dimension) if self.graph.dimension in dims else 0

    def group_names(self) -> Labels | None:
        values = self.graph.model.coords[self.graph.dimension]
        return None if values is None else coord_labels(values)


@dataclass(frozen=True)
class LocalPymcModel(PlateModel):
    """A model with gradients from a PyMC model with a dimension of groups."""

    def rows(self, data: Mapping[str, Any] | None = None) -> Shard:
        """The data of shards, rows first; by default those in the PyMC model."""
        plate = self.program.plate
        assert isinstance(plate, PymcPlate)
        held = {name: value_of(variable) for name, variable in data_of(plate.graph.model).items()}
        return self.program.split.rows(held if data is None else data)


def from_local_pymc(
    model: Any, split: Split, potentials: Mapping[str, str] | None, initial: Any, local: str
) -> LocalPymcModel:
    """The model of `from_pymc` with `local`."""
    require(
        isinstance(local, str) and bool(local),
        f"local must name the dimension of the one level of groups that a PyMC model has, not "
        f"{local!r}. Where levels nest, name the inner one, and make the variables of the outer "
        'one global. NumPyro programs and functions have both levels: "outer/inner".',
    )
    dims = ", ".join(map(str, model.coords)) or "none"
    require(local in model.coords, f"The model has no dimension named {local!r}. It has {dims}.")
    point = model.initial_point()
    shapes = {rv.name: np.shape(point[model.rvs_to_values[rv].name]) for rv in model.free_RVs}
    roles = read_roles(tuple(p.name for p in model.potentials), potentials, "potential")
    graph = LocalGraph(model, split, local, roles, shapes)
    _refuse(graph)
    held = {name: value_of(variable) for name, variable in data_of(model).items()}
    rows = split.rows(held)
    constants = {name: held[name] for name in graph.constants}
    n_groups = shapes[graph.local[0].name][graph.axis_of(graph.local[0])]
    local_dim = sum(prod(graph.local_shape(rv)) for rv in graph.local)
    require_few_dimensions(local_dim, ", ".join(rv.name for rv in graph.local))
    values = [model.rvs_to_values[rv] for rv in graph.globals]
    names = labels_of(graph.globals, values, [shapes[rv.name] for rv in graph.globals])
    points = [np.zeros(0), *(np.ravel(point[value.name]) for value in values)]
    start = started(initial, np.concatenate(points), names)
    x, zeros = np.array(start), np.zeros((n_groups, local_dim))
    plate = _with_rows(graph, x, zeros, rows, constants)
    whole = PlateProgram(
        plate, split, constants, None, n_groups, names, Level("", (), ()), local_dim
    )
    program, (some_rows, some_constants, n_some), _ = examined(whole, rows)
    told = graph.told(x, np.zeros((n_some, local_dim)), some_rows, some_constants)
    shown = {name: np.shape(v)[1:] for name, v in told.items() if np.shape(v)[:1] == (n_some,)}
    labels = tuple(label for name, shape in shown.items() for label in indexed(name, shape))
    level = Level(program.level.name, labels, (len(labels),))
    program = replace(program, plate=replace(plate, shown=tuple(shown)), level=level)
    return LocalPymcModel(program, start, JaxBackend())


def _refuse(graph: LocalGraph) -> None:
    """Refuse a model without local variables, or whose prior depends on them or on rows."""
    found = [rv.name for rv in graph.model.free_RVs]
    require(
        bool(graph.local),
        f"No latent variable has the dimension {graph.dimension!r}, so nothing is local. They are "
        f"{', '.join(found)}: give those of groups `dims={graph.dimension!r}`.",
    )
    refuse_rows_in_prior(graph.model, graph.globals, graph.split)
    local = set(graph.local)
    priors = [p for p in graph.model.potentials if graph.roles[p.name] == "prior"]
    for variable in [*graph.globals, *priors]:
        used = ", ".join(sorted(rv.name for rv in ancestors(variable) & local))
        message = f"The prior of {variable.name} depends on the local variables {used}."
        require(not used, f"{message} Give it a prior of its own, or make it local, too.")


def _with_rows(
    graph: LocalGraph, x: Array, z: Array, rows: Mapping[str, Any], constants: Constants
) -> PymcPlate:
    """The plate with the axes of rows of its terms."""
    n_rows = len(next(iter(rows.values())))
    names = [rv.name for rv in graph.model.observed_RVs]
    names += [name for name, role in graph.roles.items() if role != "prior"]
    axes: list[int | None] = []
    terms = graph.terms(x, z, rows, constants)[len(graph.local) :]
    for name, term in zip(names, terms, strict=True):
        shape = np.shape(term)
        of_groups = n_rows not in shape and shape[:1] == (len(z),)
        require(
            n_rows in shape or of_groups,
            f"{name} has log densities of shape {shape}, for {n_rows} rows. It must have one for "
            "each row.",
        )
        axes.append(None if of_groups else shape.index(n_rows))
    require(any(axis is not None for axis in axes), "The model observes no rows.")
    return PymcPlate(graph, tuple(axes))
