"""The arrays of a shard of a regression that belong to a level of groups."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quorate._types import Array, IntArray
from quorate.data.codes import LEVELS
from quorate.errors import BadInputError, require
from quorate.models.groups.levels import VARYING, Level
from quorate.models.regressions.glm import numbers


def group_columns(levels: Sequence[Level]) -> str:
    """The columns that define groups, as `by="group:…"` takes them: `county`, or `a/b`."""
    outer = levels[0].name
    return "/".join([outer, *(level.name.removeprefix(f"{outer}:") for level in levels[1:])])


def codes_of_level(
    shard: Mapping[str, Any], n_rows: int, levels: Sequence[Level], place: int
) -> IntArray:
    """The code of each row's group on the level with this place, (n,)."""
    name = LEVELS[place]
    if name not in shard:
        raise BadInputError(
            f"No array named `{name}`. The data are {', '.join(sorted(shard))}; this model has "
            f"groups: cut its rows by='group:{group_columns(levels)}'."
        )
    codes = np.asarray(shard[name])
    right = codes.shape == (n_rows,)
    require(right, f"{name} has shape {codes.shape}. Each of the {n_rows} rows needs one.")
    return codes


def varying_of_level(shard: Mapping[str, Any], n_rows: int, level: Level, place: int) -> Array:
    """The columns (n, q) whose coefficients vary; without them, groups have intercepts."""
    name, wanted = VARYING[place], (n_rows, len(level.names))
    if name not in shard:
        intercepts = level.names == ("Intercept",)
        require(intercepts, f"No array named `{name}`. It needs shape {wanted}.")
        return np.ones(wanted)
    varying = numbers(name, shard[name])
    right = varying.shape == wanted
    require(right, f"{name} has shape {varying.shape}. It needs shape {wanted}.")
    finite = bool(np.isfinite(varying).all())
    require(finite, f"{name} must be finite: drop or fill such rows.")
    return varying
