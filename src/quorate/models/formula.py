"""From a formula and a table to `X` and `y`, with one encoding for all shards.

The encoding (levels of categories, names of columns) is learned once, from the whole table or from
a stream of its chunks. It can then be applied to any part of the table.
"""

import builtins
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from quorate._extras import load
from quorate._types import Array
from quorate.errors import BadInputError, require
from quorate.models.formula_syntax import FUNCTIONS, columns_of, evaluated

_MOST_LEVELS = 200
_INTERCEPT = "Intercept"
_CONSTANT = "in every row: leave it out of the formula."


@dataclass(frozen=True)
class Design:
    """An encoding, which turns rows of a table into rows of `X` and `y`.

    Parameters
    ----------
    formula
        As the user wrote it.
    names
        Names of the columns of X.
    response
        Name of y.
    variables
        Columns that the formula reads.
    levels
        Levels of each categorical column; the first is the baseline.
    spec
        formulaic's own record of the encoding.
    allow_python
        Whether the formula was allowed to run any Python.
    """

    formula: str
    names: tuple[str, ...]
    response: str
    variables: tuple[str, ...]
    levels: Mapping[str, tuple[Any, ...]]
    spec: Any
    allow_python: bool = False

    def arrays(self, table: Any) -> dict[str, Array]:
        """`X` (n, p) and `y` (n,) of any rows of the table."""
        frame = _frame(table, self.variables)
        for name in self.variables:
            _require_complete(name, frame[name])
            if name in self.levels:
                strange = sorted(set(frame[name].unique()) - set(self.levels[name]), key=str)
                if strange:
                    raise BadInputError(
                        f"Column `{name}` has level {strange[0]!r}, which it did not have when the "
                        "encoding was learned: learn it again from all rows."
                    )
        matrices = evaluated(
            self.formula,
            self.spec.get_model_matrix,
            _encoded(frame, self.levels),
            context=FUNCTIONS,
        )
        arrays = {"X": _floats(matrices.rhs), "y": _floats(matrices.lhs)[:, 0]}
        for name, column in zip(self.names, arrays["X"].T, strict=True):
            _require_finite(name, column)
        _require_finite(self.response, arrays["y"])
        return arrays


@dataclass
class _Scan:
    """Levels and ranges of the columns seen so far, chunk by chunk."""

    categories: frozenset[str]  # numeric columns that the formula wraps in C()
    levels: dict[str, set[Any]] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    orders: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def add(self, frame: Any) -> None:
        """Take in one more chunk."""
        for name in frame.columns if len(frame) else ():
            column = frame[name]
            _require_complete(name, column)
            if hasattr(column.dtype, "categories"):
                self.orders[name] = tuple(column.dtype.categories)
            if _is_text(column) or name in self.categories:
                self.levels.setdefault(name, set()).update(column.unique().tolist())
                n_levels = len(self.levels[name])
                require(
                    n_levels <= _MOST_LEVELS,
                    f"Column `{name}` has {n_levels} levels. A category may have up to "
                    f"{_MOST_LEVELS}: convert the column to numbers, or group its levels.",
                )
            else:
                values = _numbers(name, column)
                if len(values):
                    low, high = self.ranges.get(name, (np.inf, -np.inf))
                    self.ranges[name] = (
                        min(low, float(values.min())),
                        max(high, float(values.max())),
                    )

    def settled_levels(self) -> dict[str, tuple[Any, ...]]:
        """Levels in their order. Constant columns are refused."""
        for name, (low, high) in self.ranges.items():
            require(low < high, f"Column `{name}` is {low} {_CONSTANT}")
        for name, levels in self.levels.items():
            one = min(map(str, levels))
            require(len(levels) > 1, f"Column `{name}` is {one!r} {_CONSTANT}")
            if all(isinstance(level, str) and _is_number(level) for level in levels):
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


def design(formula: str, table: Any, *, allow_python: bool = False) -> Design:
    """Learn the encoding of a formula.

    Parameters
    ----------
    formula
        `late ~ hour + C(month) + origin`, in the grammar of formulaic; arithmetic and comparisons
        in braces: `{delay > 15} ~ hour`. Text becomes categories, of which the first is the
        baseline. `quorate.models.formula_syntax.TRANSFORMS` lists the transforms.
    table
        A pandas or polars data frame, an Arrow table or a dictionary of columns; or an iterable
        of such chunks, which is read once and never held whole.
    allow_python
        Whether to run any Python that the formula contains. It can do whatever you can do: allow it
        only for formulas that you trust.
    """
    formulaic = load("formulaic", "formula")
    formula = re.sub(r"\s", " ", formula)
    named = None if allow_python else evaluated(formula, columns_of, formula)
    parsed = evaluated(formula, formulaic.Formula, formula)
    two_sided = hasattr(parsed, "lhs") and hasattr(parsed, "rhs")
    require(two_sided, f"Formula {formula!r} has one side. Write the response first: `y ~ x`.")
    parts = isinstance(parsed.lhs, tuple) or isinstance(parsed.rhs, tuple)
    require(not parts, f"Formula {formula!r} has several parts. Use `+` in place of `|`.")
    scan = _Scan(frozenset(re.findall(r"\bC\(\s*(\w+)", formula)))
    variables: tuple[str, ...] = ()
    first, n_chunks = None, 0
    for chunk in _chunks(table):
        variables = variables or _variables(formula, parsed, named, _column_names(chunk))
        frame = _frame(chunk, variables)
        scan.add(frame)
        first, n_chunks = (frame if first is None else first), n_chunks + 1
    if first is None or not len(first):
        raise BadInputError("The table is empty. It must have rows.")
    _require_numeric_response(parsed, scan)
    levels = scan.settled_levels()
    matrices = evaluated(
        formula,
        formulaic.model_matrix,
        formula,
        _encoded(first, levels),
        na_action="ignore",
        context=FUNCTIONS,
    )
    learned = _learned(formula, matrices, variables, levels, whole=n_chunks == 1)
    learned = replace(learned, allow_python=allow_python)
    if n_chunks == 1:
        _require_varying(learned, learned.arrays(first)["X"])
    return learned


def _learned(
    formula: str,
    matrices: Any,
    variables: tuple[str, ...],
    levels: dict[str, tuple[Any, ...]],
    *,
    whole: bool,
) -> Design:
    spec = matrices.model_spec
    stateful = sorted(
        str(name) for name in spec.rhs.transform_state if not str(name).startswith("C(")
    )
    require(
        whole or not stateful,
        f"{', '.join(stateful)} depends on all rows, so it cannot be streamed: compute the column "
        "beforehand.",
    )
    names = tuple(map(str, matrices.rhs.columns))
    require(len(names) > 0, f"Formula {formula!r} has no term on its right side. Add one.")
    responses = tuple(map(str, matrices.lhs.columns))
    require(
        len(responses) == 1,
        f"The left side of the formula is {', '.join(responses)}. It must be one column of "
        "numbers.",
    )
    return Design(formula, names, responses[0], variables, levels, spec)


def _require_numeric_response(parsed: Any, scan: _Scan) -> None:
    name = str(parsed.lhs).strip()
    require(
        name not in scan.levels,
        f'Column `{name}` is text. The response must be a number: write {{{name} == "..."}} ~ ...',
    )


def _require_varying(learned: Design, columns: Array) -> None:
    for name, column in zip(learned.names, columns.T, strict=True):
        same = name != _INTERCEPT and len(column) > 1 and np.ptp(column) == 0
        require(not same, f"Column `{name}` is {column[0]} {_CONSTANT}")


def _chunks(table: Any) -> Iterator[Any]:
    if hasattr(table, "columns") or hasattr(table, "column_names") or isinstance(table, Mapping):
        yield table
    elif isinstance(table, Iterable) and not isinstance(table, str):
        yield from table
    else:
        raise BadInputError(
            f"{type(table).__name__} is not a table. Give a data frame, an Arrow table or a "
            "dictionary of columns."
        )


def _frame(table: Any, variables: tuple[str, ...]) -> Any:
    pandas = load("pandas", "formula")
    names = _column_names(table)
    for name in variables:
        if name not in names:
            close = get_close_matches(name, names, n=1)
            hint = f"Did you mean `{close[0]}`? " if close else ""
            listed = ", ".join(names[:20])
            raise BadInputError(f"No column named `{name}`. {hint}The columns are {listed}.")
    picked = {name: _column(pandas, table[name]) for name in variables}
    lengths = {name: len(column) for name, column in picked.items()}
    require(len(set(lengths.values())) <= 1, f"Columns differ in length: {lengths}.")
    if not variables:
        return pandas.DataFrame(index=range(len(table)))
    return pandas.DataFrame(picked)


def _variables(
    formula: str, parsed: Any, named: frozenset[str] | None, names: list[str]
) -> tuple[str, ...]:
    """Columns that the formula reads. formulaic misses those inside `center` and the like."""
    if named is not None:
        return tuple(sorted(named))
    written = set(re.findall(r"[^\W\d]\w*", formula)) & set(names)
    needed = {str(name) for name in parsed.required_variables if not hasattr(builtins, name)}
    return tuple(sorted(written | {n for n in needed if n in names or n.isidentifier()}))


def _column_names(table: Any) -> list[str]:
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


def _encoded(frame: Any, levels: Mapping[str, tuple[Any, ...]]) -> Any:
    """The columns as formulas see them: whole numbers are floats, which do not overflow."""
    pandas = load("pandas", "formula")
    whole = [name for name in frame.columns if frame[name].dtype.kind in "iu"]
    encoded = frame.astype(dict.fromkeys(whole, np.float64))
    for name, known in levels.items():
        values = np.asarray(frame[name], dtype=object)
        encoded[name] = pandas.Categorical(values, categories=list(known))
    return encoded


def _require_complete(name: str, column: Any) -> None:
    missing = column.isna().to_numpy()
    if missing.any():
        raise BadInputError(
            f"Column `{name}` is missing in {missing.sum()} rows, the first being row "
            f"{np.argmax(missing)}. Drop or fill those rows."
        )


def _require_finite(name: str, column: Array) -> None:
    bad = ~np.isfinite(column)
    if bad.any():
        row = int(np.argmax(bad))
        message = f"Column `{name}` is {column[row]} in row {row}. Every entry must be finite."
        raise BadInputError(message)


def _is_text(column: Any) -> bool:
    if hasattr(column.dtype, "categories"):
        return True
    return column.dtype.kind not in "buif" and any(isinstance(value, str) for value in column)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(name: str, column: Any) -> Array:
    require(
        column.dtype.kind in "buif",
        f"Column `{name}` has type {column.dtype}. It must hold numbers or text: convert dates and "
        "the like to numbers first.",
    )
    values = column.to_numpy(dtype=np.float64)
    _require_finite(name, values)
    return np.asarray(values)


def _floats(matrix: Any) -> Array:
    return np.ascontiguousarray(matrix.to_numpy(dtype=np.float64))
