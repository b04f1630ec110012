"""What functions with local parameters return, checked; and what they lack."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from quorate._types import Array
from quorate.errors import WrongShapeError
from quorate.models.checks import call, require_real
from quorate.models.groups.programs.refusals import NO_PRIOR
from quorate.models.programs.function_rows import checked_responses, named_responses
from quorate.models.protocol import Shard
from quorate.models.rows import Ability


def lacks_of_functions(ability: Ability, simulate: Callable[..., Any] | None) -> str:
    """What is missing for something that a result asks for; empty if nothing is."""
    if ability == "responses" and simulate is None:
        return (
            "The model cannot draw responses. Give `simulate` to from_functions: a function of "
            "parameters, local parameters of each row, rows and a numpy Generator that "
            "returns a response for each row."
        )
    return "" if ability != "prior_draws" else NO_PRIOR


def drawn_responses(
    simulate: Callable[..., Any] | None, each: Iterable[tuple[Any, Any, Any]], rows: Shard
) -> dict[str, Array]:
    """Responses of rows at each of some draws: parameters, local ones of each row, and a seed."""
    assert simulate is not None
    found = []
    for parameters, local, seed in each:
        rng = np.random.default_rng(seed)
        found.append(named_responses(call("simulate", simulate, parameters, local, rows, rng)))
    return {
        name: checked_responses(name, np.array([one[name] for one in found]), rows)
        for name in found[0]
    }


def require_shape(what: str, values: Any, n: int, each: str) -> None:
    """Refuse an array without one number for each of `n` rows or groups."""
    shape = np.shape(values)
    if shape != (n,):
        raise WrongShapeError(
            f"{what} returned an array of shape {shape} for {n} {each}s. It must return one number "
            f"for each {each}, shape ({n},): sum over the parameters of a group, not over {each}s."
        )
    require_real(what, values)
