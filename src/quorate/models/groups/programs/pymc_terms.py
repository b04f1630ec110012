"""The terms of a PyMC model with dimensions of groups, and what they draw, by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array
from quorate.models.arrays import AnyArray
from quorate.models.groups.programs.plates import Constants, sums_along
from quorate.models.groups.programs.pymc_forward import one_by_one
from quorate.models.groups.programs.pymc_graph import LocalGraph
from quorate.models.rows import Seeds


class Term(NamedTuple):
    """A term of the likelihood: one log density for each group of a level, or for each row.

    `level` is the number of levels if they are for rows, which lie along `axis`.
    """

    name: str
    level: int
    axis: int


@dataclass(frozen=True)
class PymcTerms:
    """What plates of PyMC models have in common, whatever the number of their levels.

    Parameters
    ----------
    graph
        Functions of the model.
    terms
        Terms of the likelihood.
    """

    graph: LocalGraph
    terms: tuple[Term, ...]

    def log_prior(self, x: AnyArray) -> AnyArray:
        return self.graph.log_prior(x)

    def constrain(self, draws: Array) -> dict[str, Array]:
        return self.graph.constrain(draws)

    def prior_draw(self, key: Seeds) -> Array:
        return self.graph.forward.prior_draw(key)

    def at_points(self, function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        return one_by_one(function)

    @property
    def roles(self) -> Mapping[str, str]:
        return self.graph.roles

    @property
    def observed_names(self) -> tuple[str, ...]:
        return tuple(self._axes_of_rows)

    def densities_at(
        self, x: AnyArray, z: tuple[AnyArray, ...], rows: Mapping[str, Any], constants: Constants
    ) -> list[AnyArray]:
        """Log densities of the groups of each level, and of rows; z has an array for each level."""
        graph = self.graph
        sums: list[list[AnyArray]] = [[] for _ in range(len(graph.dimensions) + 1)]
        found = iter(graph.terms(x, z, rows, constants))
        for level, variables in enumerate(graph.levels):
            sums[level] += [sums_along(next(found), graph.axis_of(rv.name)) for rv in variables]
        for term, density in zip(self.terms, found, strict=True):
            sums[term.level].append(sums_along(density, term.axis))
        return [sum(some) for some in sums]

    def drawn(
        self,
        x: AnyArray,
        known: Mapping[str, AnyArray],
        is_known: Sequence[AnyArray],
        rows: Mapping[str, Any],
        constants: Constants,
        key: Seeds,
    ) -> dict[str, Array]:
        """Draws of what is observed of rows, rows first; see `ForwardGraph.responses`."""
        found = self.graph.forward.responses(x, known, is_known, rows, constants, key)
        return self._rows_first(found)

    def held(self, rows: Mapping[str, Any], constants: Constants) -> dict[str, Array]:
        """What was observed of rows, rows first."""
        return self._rows_first(self.graph.forward.observed(rows, constants))

    @property
    def _axes_of_rows(self) -> dict[str, int]:
        """The axis of rows of each variable that is observed of rows."""
        n_levels = len(self.graph.dimensions)
        of_rows = (term for term in self.terms if term.level == n_levels)
        return {term.name: term.axis for term in of_rows if term.name not in self.graph.roles}

    def _rows_first(self, found: Mapping[str, Array]) -> dict[str, Array]:
        return {
            name: np.moveaxis(found[name], axis, 0) for name, axis in self._axes_of_rows.items()
        }


def shown_values(told: Mapping[str, AnyArray], names: Sequence[str], n_groups: int) -> AnyArray:
    """Values of some variables of groups, side by side: (n_groups, r)."""
    xp = jax_in_float64().numpy
    return xp.concatenate([told[name].reshape(n_groups, -1) for name in names], axis=1)
