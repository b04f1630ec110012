"""Factors of a formula: which coefficients belong to the levels of which factor."""

import re
from collections.abc import Sequence
from itertools import product

import numpy as np

from quorate.models.axes import Axes, Labels

# `origin[T.JFK]`, or `origin[JFK]` where the baseline has a coefficient too
_LEVEL = re.compile(r"\[(?:T\.)?([^\[\]]*)\]")


def axes_of_columns(columns: Sequence[str]) -> Axes:
    """Axes of the columns that formulaic makes.

    The coefficients `origin[T.JFK]` and `origin[T.LGA]` become one variable `origin` with the
    labels JFK and LGA. An interaction of two factors has two axes. Coefficients that do not fill
    such a table stay scalars.
    """
    found: dict[str, dict[tuple[str, ...], str]] = {}
    for column in columns:
        levels = tuple(_LEVEL.findall(column))
        if levels:
            found.setdefault(_LEVEL.sub("", column), {})[levels] = column
    dims: dict[str, tuple[str, ...]] = {}
    coords: dict[str, Labels] = {}
    gathered: dict[str, tuple[str, ...]] = {}
    for name, entries in found.items():
        labels = [list(dict.fromkeys(part)) for part in zip(*entries, strict=False)]
        places = list(product(*labels))
        is_table = len({len(levels) for levels in entries}) == 1 and set(places) == set(entries)
        if not is_table or name in columns:
            continue
        dims[name] = _dims(name, len(labels))
        coords |= {dim: np.array(part) for dim, part in zip(dims[name], labels, strict=True)}
        gathered[name] = tuple(entries[place] for place in places)
    return Axes(dims, coords, gathered)


def _dims(name: str, n_factors: int) -> tuple[str, ...]:
    """Names of axes as bambi gives them: `origin_dim`."""
    if n_factors == 1:
        return (f"{name}_dim",)
    return tuple(f"{name}_dim_{i}" for i in range(n_factors))
