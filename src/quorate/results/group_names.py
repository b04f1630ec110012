"""Labels of groups as text: those of rows, and those that a user asks for."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._types import BoolArray
from quorate._words import counted
from quorate.errors import BadInputError

_MOST_NAMED = 5


def as_labels(values: Any, labels: NDArray[Any]) -> NDArray[np.str_]:
    """Text of `values`, written as `labels` of the same values are: 2.0 among 1, 2, 3 is "2".

    A column of whole numbers with a gap is one of floats in pandas, and dates have many types.
    """
    values = np.asarray(values)
    texts = values.astype(str)
    kind, of_labels = values.dtype.kind, labels.dtype.kind
    if kind == "f" and of_labels in "iu":
        whole = np.isfinite(values) & (values == np.floor(values))
        texts[whole] = values[whole].astype(np.int64).astype(str)
    elif kind in "iu" and of_labels == "f":
        texts = values.astype(labels.dtype).astype(str)
    elif of_labels == "M":
        with suppress(TypeError, ValueError):  # no dates
            texts = values.astype(labels.dtype).astype(str)
    return np.asarray(texts)


def shown(labels: NDArray[Any]) -> list[str]:
    """Text of labels for people: dates that are all whole days are days, as in tables of pandas."""
    if labels.dtype.kind == "M":
        labels = _coarsest(labels)
    return list(map(str, labels))


def _coarsest(dates: NDArray[np.datetime64]) -> NDArray[np.datetime64]:
    """The dates in the coarsest of some units in which all of them are whole."""
    known = dates[~np.isnat(dates)]
    for unit in ("D", "s", "ms", "us"):
        if np.all(known.astype(f"M8[{unit}]") == known):
            return dates.astype(f"M8[{unit}]")
    return dates


def of_rows(columns: Sequence[NDArray[Any]], labels: NDArray[Any]) -> list[NDArray[np.str_]]:
    """The label of each row's group, level by level: `WA`, and `WA:King` within it.

    `labels` are those of the outer groups that the run knows.
    """
    columns = [np.asarray(column) for column in columns]
    for column in columns:
        _require_no_gaps(column)
    texts = [as_labels(columns[0], labels)]
    if len(columns) > 1:
        inner = (str(value) for value in columns[1].tolist())
        texts.append(np.array([":".join(pair) for pair in zip(texts[0], inner, strict=True)]))
    return texts


def _require_no_gaps(column: NDArray[Any]) -> None:
    missing = _is_missing(column)
    if missing.any():
        where = np.flatnonzero(missing)
        rows = ", ".join(map(str, where[:_MOST_NAMED])) + ", …" * (len(where) > _MOST_NAMED)
        raise BadInputError(
            f"The group is missing in {len(where):,} of {counted(len(column), 'row')} "
            f"(row{'s' * (len(where) > 1)} {rows}). "
            "Name a group; rows with a name that the run does not know belong to a new group."
        )


def _is_missing(column: NDArray[Any]) -> BoolArray:
    if column.dtype.kind not in "OfM":
        return np.zeros(len(column), dtype=bool)
    return np.array([value is None or value != value for value in column.tolist()], dtype=bool)
