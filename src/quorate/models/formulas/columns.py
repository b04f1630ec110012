"""Columns of tables as formulas see them: read from any kind of table, checked and encoded."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np

from quorate._extras import load
from quorate._types import Array
from quorate.data.numerals import number_in
from quorate.errors import BadInputError, require
from quorate.models.formulas.missing import require_complete

CONSTANT = "in every row: leave it out of the formula."
_MOST_LEVELS = 200


@dataclass
class Scan:
    """Levels and ranges of the columns seen so far, chunk by chunk."""

    categories: frozenset[str]  # numeric columns that the formula wraps in C()
    levels: dict[str, set[Any]] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    orders: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def add(self, frame: Any) -> None:
        """Take in one more chunk."""
        for name in frame.columns if len(frame) else ():
            column = frame[name]
            if hasattr(column.dtype, "categories"):
                self.orders[name] = tuple(column.dtype.categories)
            if _is_text(column) or name in self.categories:
                self._add_levels(name, column.unique().tolist())
            else:
                values = _numbers(name, column)
                if len(values):
                    self._add_range(name, float(values.min()), float(values.max()))

    def take(
        self, levels: Mapping[str, Sequence[Any]], ranges: Mapping[str, tuple[float, float]]
    ) -> None:
        """Take in levels and ranges of other rows."""
        for name, found in levels.items():
            self._add_levels(name, found)
        for name, (low, high) in ranges.items():
            self._add_range(name, low, high)
        both = sorted(self.levels.keys() & self.ranges.keys())
        require(not both, f"Column `{''.join(both[:1])}` holds text in some files only. Use one.")

    def _add_levels(self, name: str, found: Iterable[Any]) -> None:
        levels = self.levels.setdefault(name, set())
        levels.update(found)
        require(
            len(levels) <= _MOST_LEVELS,
            f"Column `{name}` has {len(levels)} levels. A category may have up to "
            f"{_MOST_LEVELS}: convert the column to numbers, or group its levels.",
        )

    def _add_range(self, name: str, low: float, high: float) -> None:
        lowest, highest = self.ranges.get(name, (np.inf, -np.inf))
        self.ranges[name] = min(lowest, low), max(highest, high)

    def settled_levels(self, may_be_constant: Collection[str]) -> dict[str, tuple[Any, ...]]:
        """Levels in their order. Constant columns are refused, but for those that may be."""
        for name, (low, high) in self.ranges.items():
            fine = low < high or name in may_be_constant
            require(fine, f"Column `{name}` is {low} {CONSTANT}")
        for name, levels in self.levels.items():
            one = min(map(str, levels))
            require(len(levels) > 1, f"Column `{name}` is {one!r} {CONSTANT}")
            if all(isinstance(level, str) and number_in(level) is not None for level in levels):
                require(
                    name in self.categories,
                    f"Column `{name}` holds numbers written as text, such as {one!r}: convert it, "
                    f"or write C({name}).",
                )
        return {
            name: tuple(level for level in self.orders[name] if level in levels)
            if name in self.orders
            else tuple(sorted(levels))
            for name, levels in self.levels.items()
        }


def chunks(table: Any) -> Iterator[Any]:
    """The table, or the chunks of one."""
    require(
        type(table).__name__ != "LazyFrame",
        "A LazyFrame has no rows yet. Give data.collect(), or the path of the file.",
    )
    if hasattr(table, "columns") or hasattr(table, "column_names") or isinstance(table, Mapping):
        yield table
    elif isinstance(table, Iterable) and not isinstance(table, str):
        yield from table
    else:
        raise BadInputError(
            f"{type(table).__name__} is not a table. Give a data frame, an Arrow table or a "
            "dictionary of columns."
        )


def require_names(table: Any, wanted: Sequence[str]) -> None:
    """Raise unless a table has all these columns."""
    names = column_names(table)
    for name in wanted:
        if name not in names:
            close = get_close_matches(name, names, n=1)
            hint = f"Did you mean `{close[0]}`? " if close else ""
            listed = ", ".join(names[:20])
            raise BadInputError(f"No column named `{name}`. {hint}The columns are {listed}.")


def frame_of(table: Any, variables: tuple[str, ...]) -> Any:
    """Some columns of a table as a data frame of pandas."""
    pandas = load("pandas", "formula")
    require_names(table, variables)
    picked = {name: _column(pandas, table[name]) for name in variables}
    lengths = {name: len(column) for name, column in picked.items()}
    require(len(set(lengths.values())) <= 1, f"Columns differ in length: {lengths}.")
    if not variables:
        return pandas.DataFrame(index=range(len(table)))
    return pandas.DataFrame(picked)


def column_names(table: Any) -> list[str]:
    """Names of the columns of a table."""
    arrow = getattr(table, "column_names", None)
    if arrow is not None:
        return list(map(str, arrow))
    return list(map(str, table.keys() if isinstance(table, Mapping) else table.columns))


def _column(pandas: Any, column: Any) -> Any:
    if isinstance(column, pandas.Series):
        plain = column.reset_index(drop=True)
    elif hasattr(column, "to_pandas") and type(column).__module__.startswith("pyarrow"):
        plain = pandas.Series(column.to_pandas())
    else:
        plain = pandas.Series(column.to_numpy() if hasattr(column, "to_numpy") else column)
    return plain.astype(float) if plain.dtype.kind == "b" and not plain.isna().any() else plain


def require_known(frame: Any, categories: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise if a column has missing values, text for numbers, or levels that are not known."""
    require_complete(frame)
    for name in frame.columns:
        if name not in categories:
            _require_no_text(name, frame[name])
            continue
        strange = set(frame[name].unique()) - set(categories[name])
        if strange:
            raise BadInputError(
                f"Column `{name}` has level {min(strange, key=str)!r}, which it did not have when "
                "the encoding was learned: learn it again from all rows."
            )


def _require_no_text(name: str, column: Any) -> None:
    """Refuse text in a column that had numbers."""
    if _is_text(column):
        one = next(iter(column))
        raise BadInputError(
            f"Column `{name}` holds text, such as {one!r}; when the encoding was learned, it held "
            "numbers. Convert it to numbers."
        )


def encoded(frame: Any, categories: Mapping[str, tuple[Any, ...]]) -> Any:
    """The columns as formulas see them: whole numbers are floats, which do not overflow."""
    pandas = load("pandas", "formula")
    whole = [name for name in frame.columns if frame[name].dtype.kind in "iu"]
    encoded = frame.astype(dict.fromkeys(whole, np.float64))
    for name in categories.keys() & set(frame.columns):
        values = np.asarray(frame[name], dtype=object)
        encoded[name] = pandas.Categorical(values, categories=list(categories[name]))
    return encoded


def require_finite(name: str, column: Array) -> None:
    """Raise if a column has a value that is not finite."""
    bad = ~np.isfinite(column)
    if bad.any():
        row = int(np.argmax(bad))
        message = f"Column `{name}` is {column[row]} in row {row}. Every entry must be finite."
        raise BadInputError(message)


def _is_text(column: Any) -> bool:
    if hasattr(column.dtype, "categories"):
        return True
    return column.dtype.kind not in "buif" and any(isinstance(value, str) for value in column)


def _numbers(name: str, column: Any) -> Array:
    require(
        column.dtype.kind in "buif",
        f"Column `{name}` has type {column.dtype}. It must hold numbers or text: convert dates and "
        "the like to numbers first.",
    )
    values = column.to_numpy(dtype=np.float64)
    require_finite(name, values)
    return np.asarray(values)


def floats(matrix: Any) -> Array:
    """A matrix of formulaic as an array."""
    return np.ascontiguousarray(matrix.to_numpy(dtype=np.float64))
