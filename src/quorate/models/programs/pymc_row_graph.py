"""Single rows of a PyMC model: their log-likelihoods, and draws of what it observes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from quorate._extras import load
from quorate._types import Array
from quorate.errors import require
from quorate.models.checks import call
from quorate.models.programs.jaxed_many import rows_in
from quorate.models.programs.pymc_graph import (
    Graph,
    data_of,
    drawn,
    drawn_from_prior,
    observed_in,
    observed_terms,
    prior_drawing,
    resized,
    value_of,
)
from quorate.models.protocol import Shard
from quorate.models.rows import Ability, Random, Seeds
from quorate.models.splitting import few_rows, some_missing


class RowGraph:
    """Functions of the rows of a PyMC model, compiled at first use in each process."""

    def __init__(self, graph: Graph, start: tuple[float, ...]) -> None:
        self._graph = graph
        self._start = start

    def lacks(self, ability: Ability) -> str:
        """What is missing for something that a result asks for; empty if nothing is."""
        potentials = [name for name, role in self._graph.roles.items() if role == "prior"]
        if ability == "prior_draws" and potentials:
            listed = ", ".join(potentials)
            return f"The prior has potentials ({listed}), so it cannot be drawn from."
        if ability == "responses" and not self.observed_names:
            return "All that the model observes are potentials, which have no responses."
        return ""

    @property
    def observed_names(self) -> tuple[str, ...]:
        """Names of the variables that are observed."""
        return tuple(str(rv.name) for rv in observed_in(self._graph.model))

    def log_likelihoods(self, points: Array, rows: Shard) -> Array:
        """Log-likelihoods (n_points, n_rows)."""
        total = np.zeros((len(points), rows_in(rows)))
        for term, axis in zip(self._terms_at(points, rows), self._axes, strict=True):
            by_row = np.moveaxis(term, axis + 1, 1)
            total += by_row.reshape(*total.shape, -1).sum(axis=2)
        return total

    def _terms_at(self, points: Array, rows: Shard) -> list[Array]:
        """Log densities of the entries of all terms of the likelihood, points first."""
        arrays = list(self._graph.split.restored(rows).values())
        found = [call("log_likelihood", self._terms, x, *arrays) for x in points]
        return [np.array(term) for term in zip(*found, strict=True)]

    @cached_property
    def _terms(self) -> Callable[..., Any]:
        graph = self._graph
        return graph.compiled([*observed_terms(graph.model, graph.fresh), *graph.likelihood_parts])

    @cached_property
    def _axes(self) -> list[int]:
        """The axis of rows of each term of the likelihood."""
        few, point = few_rows(self._held), np.array([self._start])
        fewer = {name: array[:-1] for name, array in few.items()}
        pairs = zip(self._terms_at(point, few), self._terms_at(point, fewer), strict=True)
        return [_row_axis(one.shape[1:], other.shape[1:]) for one, other in pairs]

    def responses(self, points: Array, rows: Shard, seeds: Seeds) -> dict[str, Array]:
        """Draws (n_points, n_rows, ...) of what is observed."""
        arrays = list(self._graph.split.restored(rows).values())
        found = [
            drawn(self._responses, seed, x, *arrays) for x, seed in zip(points, seeds, strict=True)
        ]
        named = zip(self.observed_names, self._axes, zip(*found, strict=True), strict=False)
        return {name: np.moveaxis(np.array(draws), axis + 1, 1) for name, axis, draws in named}

    @cached_property
    def _responses(self) -> Callable[..., Any]:
        graph, model = self._graph, self._graph.model
        values = model.replace_rvs_by_values(model.free_RVs)
        fresh = graph.fresh
        observed = [
            resized(rv, fresh.get(value := model.rvs_to_values[rv], value))
            for rv in observed_in(model)
        ]
        free = dict(zip(model.free_RVs, values, strict=True))
        outputs = load("pytensor", "pymc").clone_replace(observed, free, rebuild_strict=False)
        return graph.compiled(outputs, random=True)

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        """Draws of the unconstrained parameters from the prior, (n, dim)."""
        seeds = rng.integers(1 << 32, size=(n, 2), dtype=np.uint32)
        return np.array([drawn_from_prior(self._prior, seed) for seed in seeds])

    @cached_property
    def _prior(self) -> Callable[..., Any]:
        model = self._graph.model
        compiled: Callable[..., Any] = prior_drawing(model, model.free_RVs)
        return compiled

    def observed(self, rows: Shard) -> dict[str, Array]:
        """What is observed, rows first, by the name of its variable."""
        model, data = self._graph.model, data_of(self._graph.model)
        names = {variable: name for name, variable in data.items()}
        held = {rv.name: names.get(model.rvs_to_values[rv], "") for rv in observed_in(model)}
        return {rv: np.asarray(rows[name]) for rv, name in held.items() if name in rows}

    def new_rows(self, rows: Mapping[str, Any]) -> Shard:
        """Rows that a user gives; what is only observed may be missing."""
        model, data = self._graph.model, data_of(self._graph.model)
        values = [model.rvs_to_values[rv] for rv in observed_in(model)]
        split = self._graph.split
        observed = [name for name in split.names if any(data[name] is v for v in values)]
        return some_missing(split, rows, self._held, observed)

    @property
    def _held(self) -> Shard:
        held = {name: value_of(variable) for name, variable in data_of(self._graph.model).items()}
        return self._graph.split.rows(held)

    def __reduce__(self) -> tuple[type["RowGraph"], tuple[Graph, tuple[float, ...]]]:
        return RowGraph, (self._graph, self._start)


@dataclass(frozen=True)
class PymcRows:
    """Some rows at points; a `quorate.models.rows.RowsAt`."""

    of: RowGraph
    points: Array
    rows: Shard

    def log_likelihoods(self) -> Array:
        return self.of.log_likelihoods(self.points, self.rows)

    def expected(self) -> None:
        """None: PyMC does not tell it."""

    def responses(self, random: Random) -> dict[str, Array]:
        return self.of.responses(self.points, self.rows, random.seeds())

    def observed(self) -> dict[str, Array]:
        return self.of.observed(self.rows)


def _row_axis(shape: tuple[int, ...], fewer: tuple[int, ...]) -> int:
    """The axis whose length is the number of rows."""
    axes = [axis for axis, (n, m) in enumerate(zip(shape, fewer, strict=True)) if n != m]
    require(
        len(axes) == 1,
        f"The likelihood has a term of shape {shape}, so log-likelihoods of single rows are not "
        "known. Give it one log density for each row.",
    )
    return axes[0]
