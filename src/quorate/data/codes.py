"""Codes of the values of a column: 0, 1, … in sorted order. Strata and groups are made of them.

A column is read once, batch by batch. Memory holds its distinct values, and four bytes a row.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._words import counted
from quorate.data.files import Files
from quorate.data.tables import Table
from quorate.errors import BadInputError, require

Codes = NDArray[np.int32]
OWNERS = "owners"  # stored with labels: the shard of every row
LEVELS = ("group", "inner")  # arrays of a shard that hold the codes of groups, outer level first
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")  # as a 64-bit integer is written
_LONGEST_LABEL = 200  # characters; labels have one width
_SECOND = 32  # bits of the code of the second column, in the key of a pair


@dataclass(frozen=True)
class Groups:
    """The groups of one level.

    Parameters
    ----------
    column
        The column that tells the groups of this level apart.
    codes
        The code of each row's group, shape (n_rows,).
    labels
        The value of each group, shape (n_groups,), in sorted order: text, numbers or dates. Groups
        of the second level are pairs of values: a structured array with a field for each column.
    """

    column: str
    codes: Codes
    labels: NDArray[Any]


def strata_of(table: Table, column: str, most: int) -> Codes:
    """The code of each row's stratum; there may be `most` strata."""
    values = _Values(column, "strata", most)
    parts = [values.add(batch[column]) for batch in table.batches([column])]
    return np.asarray(values.ranks()[np.concatenate(parts)])


def groups_of(table: Table, columns: tuple[str, ...]) -> dict[str, Groups]:
    """The groups that a column defines, by the name of their array; or those of two that nest."""
    read = table.with_text_ids(columns) if isinstance(table, Files) else table
    first, *more = [_Values(column, "groups") for column in columns]
    pairs: dict[int, int] = {}
    parts = []
    for batch in read.batches(columns):
        numbers = first.add(batch[first.column])
        for second in more:
            keys = numbers.astype(np.int64) << _SECOND | second.add(batch[second.column])
            numbers = _numbered(keys, pairs)
        parts.append(numbers)
    numbers = np.concatenate(parts)
    if read is not table:
        for values in (first, *more):
            values.settle_numbers()
    if more:
        return _nested(first, more[0], np.array(list(pairs)), numbers)
    return {LEVELS[0]: Groups(first.column, first.ranks()[numbers], first.labels())}


def _nested(
    first: "_Values", second: "_Values", keys: NDArray[np.int64], numbers: Codes
) -> dict[str, Groups]:
    """Groups of two levels. `keys[numbers]` are the pairs of the rows."""
    outer = first.ranks()[keys >> _SECOND]
    within = second.ranks()[keys & ((1 << _SECOND) - 1)]
    order = np.lexsort((within, outer))
    ranks = np.empty(len(keys), dtype=np.int32)
    ranks[order] = np.arange(len(keys))
    labels, parts = first.labels(), second.labels()
    kinds = [(first.column, labels.dtype), (second.column, parts.dtype)]
    both = np.empty(len(keys), dtype=kinds)
    both[first.column], both[second.column] = labels[outer[order]], parts[within[order]]
    groups = (
        Groups(first.column, outer[numbers], labels),
        Groups(second.column, ranks[numbers], both),
    )
    return dict(zip(LEVELS, groups, strict=True))


@dataclass
class _Values:
    """The distinct values of a column, numbered as they come."""

    column: str
    kind: str
    most: int | None = None
    numbers: dict[Any, int] = field(default_factory=dict)
    dates: np.dtype[Any] | None = None  # the type of a column of datetime64
    n_missing: int = 0

    @property
    def _what(self) -> str:
        return f"Column `{self.column}`, which defines {self.kind},"

    def add(self, values: NDArray[Any]) -> Codes:
        """The number of each value of a batch; 0 where it is missing."""
        require(values.ndim == 1, f"{self._what} must hold single values, not arrays.")
        gone = missing(values)
        self.n_missing += int(gone.sum())
        if values.dtype.kind in "mM":
            self.dates = self.dates or values.dtype.newbyteorder("=")
            values = values.astype(self.dates).view(np.int64)
        numbers = np.zeros(len(values), dtype=np.int32)
        numbers[~gone] = _numbered(values[~gone], self.numbers)
        require(
            self.most is None or len(self.numbers) <= self.most,
            f"{self._what} takes more than {self.most or 0:,} values. Cut it into intervals first.",
        )
        return numbers

    def settle_numbers(self) -> None:
        """Make whole numbers of text that says nothing else, as `7` does, and `007` does not."""
        if all(isinstance(text, str) and _WHOLE.fullmatch(text) for text in self.numbers):
            self.numbers = {int(text): number for text, number in self.numbers.items()}

    def _sorted(self) -> list[Any]:
        require(
            not self.n_missing,
            f"{self._what} is missing in {counted(self.n_missing, 'row')}. Fill them in, or give "
            "them a value of their own.",
        )
        try:
            return sorted(self.numbers)
        except TypeError as error:
            raise BadInputError(
                f"{self._what} holds kinds of values that cannot be compared. Make them all "
                "strings."
            ) from error

    def ranks(self) -> Codes:
        """The code of each number, which is the place of its value in sorted order."""
        ranks = np.empty(len(self.numbers), dtype=np.int32)
        ranks[[self.numbers[value] for value in self._sorted()]] = np.arange(len(ranks))
        return ranks

    def labels(self) -> NDArray[Any]:
        """The values in sorted order, as an array that is stored without pickle."""
        values = self._sorted()
        if self.dates is not None:
            length = self.dates.kind == "m"
            require(not length, f"{self._what} holds lengths of time. Make them numbers or text.")
            return np.array(values, dtype=np.int64).view(self.dates)
        kinds = set(map(type, values))
        if kinds <= {date}:
            return np.array(values, dtype="M8[D]")
        if all(issubclass(kind, datetime) for kind in kinds):
            aware = any(value.tzinfo for value in values)
            require(not aware, f"{self._what} holds times with time zones. Convert them to UTC.")
            return np.array(values, dtype="M8[us]")
        if kinds <= {str}:
            longest = max(map(len, values))
            require(
                longest <= _LONGEST_LABEL,
                f"{self._what} holds a text of {longest:,} characters. Names of groups may have up "
                f"to {_LONGEST_LABEL}: give the groups short names.",
            )
        return self._plain(np.array(values), values)

    def _plain(self, labels: NDArray[Any], values: list[Any]) -> NDArray[Any]:
        odd = next((value for value in values if isinstance(value, str | bytes)), values[0])
        fits = labels.dtype.kind in "biufUS" and labels.ndim == 1
        require(fits, f"{self._what} holds {odd!r}, a {type(odd).__name__}. Make it text.")
        return labels


def _numbered(values: NDArray[Any], numbers: dict[Any, int]) -> Codes:
    """The number of each value; new values get the next ones. Only fast types are sorted."""
    if values.dtype.kind in "OT":
        found = [numbers.setdefault(value, len(numbers)) for value in values.tolist()]
        return np.array(found, dtype=np.int32)
    distinct, inverse = np.unique(values, return_inverse=True)
    found = [numbers.setdefault(value, len(numbers)) for value in distinct.tolist()]
    return np.asarray(np.array(found, dtype=np.int32)[inverse])


def stored_labels(groups: Mapping[str, Groups]) -> dict[str, NDArray[Any]]:
    """The labels of each level, little-endian."""
    return {
        name: level.labels.astype(level.labels.dtype.newbyteorder("<"), copy=False)
        for name, level in groups.items()
    }


def missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where an array has NaN, NaT or None."""
    if values.dtype.kind in "fc":
        return np.asarray(np.isnan(values))
    if values.dtype.kind in "mM":
        return np.asarray(np.isnat(values))
    if values.dtype.kind == "O":
        gone = [_is_missing(value) for value in values.flat]
        return np.array(gone, dtype=np.bool_).reshape(values.shape)
    return np.zeros(values.shape, dtype=np.bool_)


def _is_missing(value: object) -> bool:
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")
