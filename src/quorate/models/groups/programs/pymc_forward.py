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
            Local variables on their natural scale, groups first: (m, *shape) each.
        is_known
            Whether they count, (m,) for each level. The variables of other groups are drawn given
            x, and given those of the groups that they are in.
        """
        marks: list[BoolArray] = [np.asarray(each, dtype=bool) for each in is_known]
        levels = zip(self.graph.levels, marks, strict=True)
        local = [self._known(rv, known, mark) for level, mark in levels for rv in level]
        inputs = [np.asarray(x), *local, *marks, *self._data(rows, constants)]
        return self._named(drawn(self._responses, np.asarray(seed), *inputs))

    def prior_draw(self, seed: Seeds) -> Array:
        """A draw of the unconstrained global parameters from their prior, (d,)."""
        return drawn_from_prior(self._prior, np.asarray(seed))

    def observed(self, rows: Mapping[str, Any], constants: "Constants") -> dict[str, Array]:
        """All that was observed, by name."""
        found = self._observed(*self._data(rows, constants))
        return self._named(found)

    def _known(self, rv: Any, known: Mapping[str, AnyArray], is_known: BoolArray) -> Array:
        """The known values of a local variable, as the model has its axes."""
        require(
            rv.name in known or not is_known.any(),
            f"quorate does not report {rv.name} of groups, so it cannot predict rows of known "
            "groups. Ask for rows of new groups only.",
        )
        graph = self.graph
        nothing = np.zeros((len(is_known), *graph.local_shape(rv)))
        return np.moveaxis(np.asarray(known.get(rv.name, nothing)), 0, graph.axis_of(rv))

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
    def _responses(self) -> Callable[..., Any]:
        """Function of x, local variables, marks of those that are known, rows and constants."""
        graph, model = self.graph, self.graph.model
        x, placed = graph.placed()
        data = self._inputs
        natural = replaced(model.replace_rvs_by_values(graph.globals), {**placed, **data})
        new = {**data, **dict(zip(graph.globals, natural, strict=True))}
        known, marks = [], []
        for level, variables in enumerate(graph.levels):
            marks.append(load("pytensor.tensor", "pymc").vector(f"is_known_{level}", dtype="bool"))
            for rv in variables:
                known.append(open_input(rv, rv.name))
                new[rv] = self._known_or_drawn(rv, known[-1], marks[-1], new)
        outputs = []
        for rv in observed_in(model):
            value = model.rvs_to_values[rv]
            outputs += replaced([resized(rv, data.get(value, value))], new)
            new[rv] = outputs[-1]
        return compiled([x, *known, *marks, *data.values()], outputs, _MODE)

    def _known_or_drawn(self, rv: Any, known: Any, mark: Any, new: Mapping[Any, Any]) -> Any:
        """A local variable: the known value of some groups, and a draw of the others."""
        graph, axis = self.graph, self.graph.axis_of(rv)
        n_batch = rv.ndim - rv.owner.op.ndim_supp
        size: list[Any] = list(graph.shapes[rv.name][:n_batch])
        size[axis] = mark.shape[0]
        shapes = load("pymc.distributions.shape_utils", "pymc")
        (drawn_now,) = replaced([shapes.change_dist_size(rv, size)], new)
        order = [0 if place == axis else "x" for place in range(rv.ndim)]
        switch = load("pytensor.tensor", "pymc").switch
        return switch(mark.dimshuffle(*order), known, drawn_now)

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
