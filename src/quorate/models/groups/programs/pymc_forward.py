"""What a PyMC model with dimensions of groups draws, by PyMC's own random variables.

Its functions draw at one point. They are compiled in mode FAST_COMPILE: random variables run in
Python in any mode, so code that a compiler makes would gain little.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate._extras import jax_in_float64, load
from quorate._types import Array, BoolArray
from quorate.errors import require
from quorate.models.arrays import AnyArray
from quorate.models.programs.pymc_graph import (
    compiled,
    drawn,
    drawn_from_prior,
    observed_in,
    open_input,
    prior_drawing,
    replaced,
    resized,
)
from quorate.models.rows import Seeds

if TYPE_CHECKING:
    from quorate.models.groups.programs.plates import Constants
    from quorate.models.groups.programs.pymc_graph import LocalGraph

_MODE = "FAST_COMPILE"


@dataclass(frozen=True)
class ForwardGraph:
    """Functions of a graph that draw, compiled at first use in each process."""

    graph: "LocalGraph"

    def responses(
        self,
        x: AnyArray,
        known: Mapping[str, AnyArray],
        is_known: Sequence[AnyArray],
        rows: Mapping[str, Any],
        constants: "Constants",
        seed: Seeds,
    ) -> dict[str, Array]:
        """Draws of all that is observed, by name.

        Parameters
        ----------
        x
            Unconstrained global parameters, (d,).
        known
            Variables of groups on their natural scale, groups first: (m, *shape) each.
        is_known
            Whether they count, (m,) for each level. Latent variables of other groups are drawn
            given x, and given those of the groups that they are in.
        """
        marks: list[BoolArray] = [np.asarray(each, dtype=bool) for each in is_known]
        names = tuple(
            name for name in self.graph.of_groups if name in known and self._level(name) >= 0
        )
        if names not in self._responses:
            self._responses[names] = self._responding(names), self._hidden(names)
        function, hidden = self._responses[names]
        require(
            not hidden or not any(mark.any() for mark in marks),
            f"quorate does not report {hidden} of groups, so it cannot predict rows of known "
            "groups. Ask for rows of new groups only.",
        )
        values = [np.moveaxis(np.asarray(known[n]), 0, self.graph.axis_of(n)) for n in names]
        inputs = [np.asarray(x), *values, *marks, *self._data(rows, constants)]
        return self._named(drawn(function, np.asarray(seed), *inputs))

    def prior_draw(self, seed: Seeds) -> Array:
        """A draw of the unconstrained global parameters from their prior, (d,)."""
        return drawn_from_prior(self._prior, np.asarray(seed))

    def observed(self, rows: Mapping[str, Any], constants: "Constants") -> dict[str, Array]:
        """All that was observed, by name."""
        found = self._observed(*self._data(rows, constants))
        return self._named(found)

    def _level(self, name: str) -> int:
        """The level of a variable of groups; -1 if its dimensions do not say."""
        dims = self.graph.dims_of(name)
        return next((i for i, one in enumerate(self.graph.dimensions) if one in dims), -1)

    def _hidden(self, names: Sequence[str]) -> str:
        """Latent variables of groups that rows depend on, even if these variables are known."""
        model, local = self.graph.model, self.graph.local
        known = [model[name] for name in names]
        reach = load("pytensor.graph.traversal", "pymc").ancestors
        targets = (*observed_in(model), *local)
        above = [set(reach([one], blockers=known)) - {one} for one in targets]
        matter = set().union(*above) - set(known)
        return ", ".join(rv.name for rv in local if rv in matter)

    def _named(self, found: list[Array]) -> dict[str, Array]:
        observed = observed_in(self.graph.model)
        return {rv.name: np.asarray(each) for rv, each in zip(observed, found, strict=True)}

    def _data(self, rows: Mapping[str, Any], constants: "Constants") -> list[Any]:
        """Rows and constants, in the order of `_inputs`."""
        held = self.graph.split.restored(rows).values()
        return [np.asarray(each) for each in (*held, *(constants[n] for n in self.graph.constants))]

    @property
    def _inputs(self) -> dict[Any, Any]:
        """Inputs that replace rows and other data."""
        values = {self.graph.model.rvs_to_values[rv] for rv in self.graph.local}
        return {held: new for held, new in self.graph.fresh.items() if held not in values}

    @cached_property
    def _observed(self) -> Callable[..., Any]:
        """Function of rows and constants: PyMC may compute what is observed from its data."""
        model, data = self.graph.model, self._inputs
        values = [model.rvs_to_values[rv] for rv in observed_in(model)]
        return compiled(list(data.values()), replaced(values, data), _MODE)

    @cached_property
    def _responses(self) -> dict[tuple[str, ...], tuple[Callable[..., Any], str]]:
        """By the names of known variables: the function, and what is hidden from it."""
        return {}

    def _responding(self, names: Sequence[str]) -> Callable[..., Any]:
        """Function of x, known variables, marks of groups that are known, rows and constants."""
        graph, model = self.graph, self.graph.model
        x, placed = graph.placed()
        data = self._inputs
        natural = replaced(model.replace_rvs_by_values(graph.globals), {**placed, **data})
        new = {**data, **dict(zip(graph.globals, natural, strict=True))}
        vector = load("pytensor.tensor", "pymc").vector
        marks = [vector(f"is_known_{one}", dtype="bool") for one in range(len(graph.levels))]
        latent = [rv.name for rv in graph.local]
        known = {name: open_input(model[name], name) for name in names}
        for name in graph.of_groups:
            if name not in known and name not in latent:
                continue
            variable, mark = model[name], marks[self._level(name)]
            size = self._resized(variable, mark) if name in latent else variable
            (value,) = replaced([size], new)
            new[variable] = self._known_or(value, known.get(name), mark, graph.axis_of(name))
        outputs = []
        for rv in observed_in(model):
            value = model.rvs_to_values[rv]
            outputs += replaced([resized(rv, data.get(value, value))], new)
            new[rv] = outputs[-1]
        return compiled([x, *known.values(), *marks, *data.values()], outputs, _MODE)

    def _resized(self, rv: Any, mark: Any) -> Any:
        """A latent variable of as many groups as there are marks."""
        n_batch = rv.ndim - rv.owner.op.ndim_supp
        size: list[Any] = list(self.graph.shapes[rv.name][:n_batch])
        size[self.graph.axis_of(rv.name)] = mark.shape[0]
        return load("pymc.distributions.shape_utils", "pymc").change_dist_size(rv, size)

    def _known_or(self, value: Any, known: Any, mark: Any, axis: int) -> Any:
        """The known value of some groups, and another of the others."""
        if known is None:
            return value
        order = [0 if place == axis else "x" for place in range(value.ndim)]
        switch = load("pytensor.tensor", "pymc").switch
        return switch(mark.dimshuffle(*order), known, value)

    @cached_property
    def _prior(self) -> Callable[..., Any]:
        made: Callable[..., Any] = prior_drawing(self.graph.model, self.graph.globals, _MODE)
        return made


def one_by_one(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A function of one point that JAX cannot trace, for many points; as `ManyPoints`."""

    def evaluate(points: Array, inputs: Any, n_rows: int = 1) -> Any:
        found = [function(x, inputs) for x in points]
        return jax_in_float64().tree.map(lambda *each: np.stack(each), *found)

    return evaluate
