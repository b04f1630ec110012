"""What functions with local parameters draw: responses, parameters of groups, and the prior."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import require
from quorate.models.checks import call
from quorate.models.parameters import Parameters
from quorate.models.programs.function_rows import checked_responses, named_responses
from quorate.models.protocol import Shard
from quorate.models.rows import Ability, Seeds

Function = Callable[..., Any]
_NO_RESPONSES = (
    "The model cannot draw responses. Give `simulate` to from_functions: a function of parameters, "
    "local parameters of each row, rows and a numpy Generator that returns a response for each row."
)
_NO_PRIOR = (
    "The model cannot draw from its prior. Give `draw_prior` and `draw_local` to from_functions: "
    "functions that draw the global parameters, and those of groups given these."
)


class GroupsOfRows(NamedTuple):
    """The groups of some rows on one level, n in all, and which of them are known."""

    parameters: Parameters
    place: IntArray  # of each row's group, (n_rows,)
    known: IntArray  # places of the groups that are known, (k,)
    values: Array  # of these, on their natural scale, (n_points, k, r)

    @classmethod
    def unknown(cls, parameters: Parameters, place: IntArray, n_points: int) -> "GroupsOfRows":
        """Groups of which none is known."""
        values = np.empty((n_points, 0, len(parameters.value_names)))
        return cls(parameters, place, np.empty(0, dtype=np.int64), values)


@dataclass(frozen=True)
class Simulators:
    """Functions of a user that draw; see `from_functions`. Each may be missing.

    `draw_local` has a function for each level of groups, the outer one first.
    """

    simulate: Function | None = None
    draw_prior: Function | None = None
    draw_local: tuple[Function, ...] = ()

    def lacks(self, ability: Ability) -> str:
        """What is missing for something that a result asks for; empty if nothing is."""
        if ability == "responses":
            return _NO_RESPONSES if self.simulate is None else ""
        complete = self.draw_prior is not None and self.draw_local
        return _NO_PRIOR if ability == "prior_draws" and not complete else ""

    def responses(
        self, each: Iterable[tuple[Any, Any, np.random.Generator]], rows: Shard
    ) -> dict[str, Array]:
        """Responses of rows at some points: parameters, local ones of each row, and numbers."""
        simulate = self.simulate
        assert simulate is not None
        found = [
            named_responses(call("simulate", simulate, parameters, local, rows, rng))
            for parameters, local, rng in each
        ]
        return {
            name: checked_responses(name, np.array([one[name] for one in found]), rows)
            for name in found[0]
        }

    def responses_of(
        self, parameters: Iterable[Any], levels: Sequence[GroupsOfRows], rows: Shard, seeds: Seeds
    ) -> dict[str, Array]:
        """Responses of rows at some points. Groups that are not known are drawn there."""
        rngs = map(np.random.default_rng, seeds)
        each = (
            (given, self._local(given, levels, point, rng), rng)
            for point, (given, rng) in enumerate(zip(parameters, rngs, strict=True))
        )
        return self.responses(each, rows)

    def _local(
        self, parameters: Any, levels: Sequence[GroupsOfRows], point: int, rng: np.random.Generator
    ) -> dict[str, Any]:
        """The parameters of the groups of each row, of all levels, at a point."""
        of_rows: list[Array] = []
        for level, groups in enumerate(levels):
            _, first = np.unique(groups.place, return_index=True)  # a row of each group
            around = [
                outer.parameters.of_values(values[first])
                for outer, values in zip(levels, of_rows, strict=False)
            ]
            values = np.empty((len(first), groups.values.shape[2]))
            if len(groups.known) < len(first):
                given = parameters, *around, len(first), rng
                drawn = call("draw_local", self.draw_local[level], *given)
                values = groups.parameters.values_of(drawn, len(first), "draw_local")
            values[groups.known] = groups.values[point]
            of_rows.append(values[groups.place])
        both = zip(levels, of_rows, strict=True)
        named = (groups.parameters.of_values(values) for groups, values in both)
        return {name: value for some in named for name, value in some.items()}


def simulators(
    simulate: Any, draw_prior: Any, draw_local: Any, columns: Sequence[str]
) -> Simulators:
    """The functions that a user gives for groups of these columns, the outer one first."""
    for name, function in (("simulate", simulate), ("draw_prior", draw_prior)):
        fine = function is None or callable(function)
        require(fine, f"{name} must be a function, not {function!r}.")
    if draw_local is None:
        return Simulators(simulate, draw_prior)
    if len(columns) == 1:
        require(callable(draw_local), f"draw_local must be a function, not {draw_local!r}.")
        return Simulators(simulate, draw_prior, (draw_local,))
    first, second = columns
    both = isinstance(draw_local, Mapping) and set(draw_local) == set(columns)
    require(
        both and all(map(callable, draw_local.values())),
        f'draw_local must have a function for each level, {{"{first}": ..., "{second}": ...}}, not '
        f"{draw_local!r}. That of {second} also gets the parameters of the {first} of each group.",
    )
    return Simulators(simulate, draw_prior, tuple(draw_local[name] for name in columns))
