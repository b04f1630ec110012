"""Reads a PyMC model with dimensions of groups: its variables, its data, and its terms."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from quorate._types import Array
from quorate.errors import require
from quorate.models.groups.programs.plates import Constants, started
from quorate.models.groups.programs.pymc_graph import LocalGraph
from quorate.models.groups.programs.pymc_terms import Term
from quorate.models.groups.programs.refusals import require_few_dimensions
from quorate.models.programs.pymc_graph import (
    ancestors,
    data_of,
    labels_of,
    observed_in,
    refuse_rows_in_prior,
    value_of,
)
from quorate.models.protocol import Shard
from quorate.models.splitting import Split, read_roles


class Reading(NamedTuple):
    """A PyMC model with groups, and all its data.

    `sizes` are the numbers of groups, and `local_dims` those of the parameters that a group has.
    """

    graph: LocalGraph
    rows: Shard
    constants: Constants
    names: tuple[str, ...]
    start: tuple[float, ...]
    sizes: tuple[int, ...]
    local_dims: tuple[int, ...]
    terms: tuple[Term, ...]

    def zeros(self, sizes: Sequence[int]) -> tuple[Array, ...]:
        """Local parameters of so many groups, all 0."""
        return tuple(np.zeros(shape) for shape in zip(sizes, self.local_dims, strict=True))


def read(
    model: Any,
    split: Split,
    potentials: Mapping[str, str] | None,
    initial: Any,
    dimensions: tuple[str, ...],
) -> Reading:
    """Read a PyMC model whose latent variables with these dimensions are those of groups."""
    dims = ", ".join(map(str, model.coords)) or "none"
    for one in dimensions:
        require(one in model.coords, f"The model has no dimension named {one!r}. It has {dims}.")
    point = model.initial_point()
    shapes = {rv.name: np.shape(point[model.rvs_to_values[rv].name]) for rv in model.free_RVs}
    roles = read_roles(tuple(p.name for p in model.potentials), potentials, "potential")
    graph = LocalGraph(model, split, dimensions, roles, shapes)
    _refuse(graph)
    rows = held_rows(graph)
    data = data_of(model)
    constants = {name: value_of(data[name]) for name in graph.constants}
    firsts = [level[0] for level in graph.levels]
    sizes = tuple(shapes[rv.name][graph.axis_of(rv.name)] for rv in firsts)
    local_dims = tuple(sum(prod(graph.local_shape(rv)) for rv in level) for level in graph.levels)
    require_few_dimensions(sum(local_dims), ", ".join(rv.name for rv in graph.local))
    values = [model.rvs_to_values[rv] for rv in graph.globals]
    names = labels_of(graph.globals, values, [shapes[rv.name] for rv in graph.globals])
    points = [np.zeros(0), *(np.ravel(point[value.name]) for value in values)]
    start = started(initial, np.concatenate(points), names)
    reading = Reading(graph, rows, constants, names, start, sizes, local_dims, ())
    return reading._replace(terms=_terms(reading))


def held_rows(graph: LocalGraph, data: Mapping[str, Any] | None = None) -> Shard:
    """The data of shards, rows first; by default those in the PyMC model."""
    held = {name: value_of(variable) for name, variable in data_of(graph.model).items()}
    return graph.split.rows(held if data is None else data)


def _refuse(graph: LocalGraph) -> None:
    """Refuse a model without local variables, or whose prior depends on them or on rows."""
    found = ", ".join(rv.name for rv in graph.model.free_RVs)
    for dimension, level in zip(graph.dimensions, graph.levels, strict=True):
        require(
            bool(level),
            f"No latent variable has the dimension {dimension!r}, so nothing is local. They are "
            f"{found}: give those of groups `dims={dimension!r}`.",
        )
    twice = sorted({rv.name for rv in graph.local if graph.local.count(rv) > 1})
    require(
        not twice,
        f"{', '.join(twice)} has both dimensions. Give a variable that of its own groups only, and "
        "hold the outer group of each inner one as pm.Data.",
    )
    refuse_rows_in_prior(graph.model, graph.globals, graph.split)
    local = set(graph.local)
    priors = [p for p in graph.model.potentials if graph.roles[p.name] == "prior"]
    for variable in [*graph.globals, *priors]:
        used = ", ".join(sorted(rv.name for rv in ancestors(variable) & local))
        message = f"The prior of {variable.name} depends on the local variables {used}."
        require(not used, f"{message} Give it a prior of its own, or make it local, too.")


def _terms(reading: Reading) -> tuple[Term, ...]:
    """The terms of the likelihood, with their axes of rows."""
    graph, sizes = reading.graph, reading.sizes
    n_rows = len(next(iter(reading.rows.values())))
    names = [rv.name for rv in observed_in(graph.model)]
    names += [name for name, role in graph.roles.items() if role != "prior"]
    x, zeros = np.array(reading.start), reading.zeros(sizes)
    densities = graph.terms(x, zeros, reading.rows, reading.constants)[len(graph.local) :]
    terms = []
    for name, density in zip(names, densities, strict=True):
        shape = np.shape(density)
        of_level = [level for level, size in enumerate(sizes) if shape[:1] == (size,)]
        require(
            n_rows in shape or bool(of_level),
            f"{name} has log densities of shape {shape}, for {n_rows} rows. It must have one for "
            "each row.",
        )
        of_rows = Term(name, len(sizes), shape.index(n_rows)) if n_rows in shape else None
        terms.append(of_rows or Term(name, of_level[0], 0))
    require(any(term.level == len(sizes) for term in terms), "The model observes no rows.")
    return tuple(terms)
