"""From a formula and a table to `X` and `y`, with one encoding for all shards.

The encoding (levels of categories, names of columns) is learned once, from the whole table or from
its chunks as they stream by, and is then applied to any part of it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np

from quorate._extras import load
from quorate._types import Array
from quorate.errors import BadInputError, require

_MOST_LEVELS = 200
_INTERCEPT = "Intercept"
_CONSTANT = "it is the same in every row: leave it out of the formula"


@dataclass(frozen=True)
class Design:
    """An encoding: what turns rows of a table into rows of `X` and `y`.

    Parameters
    ----------
    formula
        As the user wrote it.
    names
        Of the columns of X.
    response
        What y is.
    variables
        Columns that the formula reads.
    levels
        Of the columns that are categories; the first is the baseline.
    spec
        formulaic's own record of the encoding.
    """

    formula: str
    names: tuple[str, ...]
    response: str
    variables: tuple[str, ...]
    levels: Mapping[str, tuple[Any, ...]]
    spec: Any

    def arrays(self, table: Any) -> dict[str, Array]:
        """`X` (n, p) and `y` (n,) of any rows of the table."""
        frame = _frame(table, self.variables)
        for name in self.variables:
            _require_complete(name, frame[name])
            if name in self.levels:
                strange = sorted(set(frame[name].unique()) - set(self.levels[name]), key=str)
                way_out = "this level was not there when the encoding was learned: learn it anew"
                require(not strange, f"column {name}", strange[:1], way_out)
        matrices = _evaluated(
            self.formula, self.spec.get_model_matrix, _encoded(frame, self.levels)
        )
        arrays = {"X": _floats(matrices.rhs), "y": _floats(matrices.lhs)[:, 0]}
        for name, column in zip(self.names, arrays["X"].T, strict=True):
            _require_finite(name, column)
        _require_finite(self.response, arrays["y"])
        return arrays


@dataclass
class _Scan:
    """What has been seen of the columns, chunk by chunk."""

    categories: frozenset[str]  # numeric columns that the formula wraps in C()
    levels: dict[str, set[Any]] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    orders: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def add(self, frame: Any) -> None:
        """See one more chunk."""
        for name in frame.columns if len(frame) else ():
            column = frame[name]
            _require_complete(name, column)
            if hasattr(column.dtype, "categories"):
                self.orders[name] = tuple(column.dtype.categories)
            if _is_text(column) or name in self.categories:
                self.levels.setdefault(name, set()).update(column.unique().tolist())
                n_levels = len(self.levels[name])
                way_out = (
                    f"more than {_MOST_LEVELS} levels are too many for a category: convert the "
                    "column to numbers, or group its levels"
                )
                require(n_levels <= _MOST_LEVELS, f"column {name}", f"{n_levels} levels", way_out)
            else:
                values = _numbers(name, column)
                if len(values):
                    low, high = self.ranges.get(name, (np.inf, -np.inf))
                    self.ranges[name] = (
                        min(low, float(values.min())),
                        max(high, float(values.max())),
                    )

    def settled_levels(self) -> dict[str, tuple[Any, ...]]:
        """Levels in their order; columns that tell nothing are refused."""
        for name, (low, high) in self.ranges.items():
            require(low < high, f"column {name}", low, _CONSTANT)
        for name, levels in self.levels.items():
            one = sorted(map(str, levels))[:1]
            require(len(levels) > 1, f"column {name}", one, _CONSTANT)
            if all(isinstance(level, str) and _is_number(level) for level in levels):
                way_out = "it holds numbers written as text: convert it, or write C() around it"
                require(name in self.categories, f"column {name}", one, way_out)
        return {
            name: tuple(level for level in self.orders[name] if level in levels)
            if name in self.orders
            else tuple(sorted(levels))
            for name, levels in self.levels.items()
        }


def design(formula: str, table: Any) -> Design:
    """Learn the encoding of a formula.

    Parameters
    ----------
    formula
        `late ~ hour + C(month) + origin`, in the grammar of formulaic; Python in braces:
        `{delay > 15} ~ hour`. Text becomes categories, of which the first is the baseline.
    table
        A pandas or polars data frame, an Arrow table or a dictionary of columns; or an iterable
        of such chunks, which is passed through once and never held whole.
    """
    formulaic = load("formulaic", "formula")
    parsed = _evaluated(formula, formulaic.Formula, formula)
    two_sided = hasattr(parsed, "lhs") and hasattr(parsed, "rhs")
    require(two_sided, "formula", formula, "write what is explained on the left: `y ~ x`")
    scan = _Scan(frozenset(re.findall(r"\bC\(\s*(\w+)", formula)))
    variables: tuple[str, ...] = ()
    first, n_chunks = None, 0
    for chunk in _chunks(table):
        variables = variables or _variables(formula, parsed, _column_names(chunk))
        frame = _frame(chunk, variables)
        scan.add(frame)
        first, n_chunks = (frame if first is None else first), n_chunks + 1
    if first is None or not len(first):
        raise BadInputError("table", "empty", "it must have rows")
    _require_numeric_response(parsed, scan)
    levels = scan.settled_levels()
    matrices = _evaluated(
        formula, formulaic.model_matrix, formula, _encoded(first, levels), na_action="ignore"
    )
    learned = _learned(formula, matrices, variables, levels, whole=n_chunks == 1)
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
    way_out = "it is worked out from all rows, so it cannot be streamed: compute the column first"
    require(whole or not stateful, "formula", ", ".join(stateful), way_out)
    names = tuple(map(str, matrices.rhs.columns))
    require(len(names) > 0, "formula", formula, "there must be a term on its right side")
    responses = tuple(map(str, matrices.lhs.columns))
    way_out = "what is explained must be one column of numbers"
    require(len(responses) == 1, "left side of the formula", responses, way_out)
    return Design(formula, names, responses[0], variables, levels, spec)


def _require_numeric_response(parsed: Any, scan: _Scan) -> None:
    name = str(parsed.lhs).strip()
    way_out = f'it is text; what is explained must be a number: write {{{name} == "..."}} ~ ...'
    require(
        name not in scan.levels, f"column {name}", sorted(scan.levels.get(name, ()))[:3], way_out
    )


def _require_varying(learned: Design, columns: Array) -> None:
    for name, column in zip(learned.names, columns.T, strict=True):
        same = name != _INTERCEPT and len(column) > 1 and np.ptp(column) == 0
        require(not same, f"column {name}", float(column[0]), _CONSTANT)


def _chunks(table: Any) -> Iterator[Any]:
    if hasattr(table, "columns") or hasattr(table, "column_names") or isinstance(table, Mapping):
        yield table
    elif isinstance(table, Iterable) and not isinstance(table, str):
        yield from table
    else:
        raise BadInputError("table", type(table).__name__, "give a data frame or a dictionary")


def _frame(table: Any, variables: tuple[str, ...]) -> Any:
    pandas = load("pandas", "formula")
    names = _column_names(table)
    for name in variables:
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        way_out = f"{hint}the table has {', '.join(names[:20])}"
        require(name in names, f"column {name}", "missing", way_out)
    picked = {name: _column(pandas, table[name]) for name in variables}
    lengths = {name: len(column) for name, column in picked.items()}
    require(len(set(lengths.values())) <= 1, "lengths of columns", lengths, "they must be equal")
    if not variables:
        return pandas.DataFrame(index=range(len(table)))
    return pandas.DataFrame(picked)


def _variables(formula: str, parsed: Any, names: list[str]) -> tuple[str, ...]:
    """Columns that the formula reads; formulaic overlooks those inside `center` and the like."""
    written = set(re.findall(r"[^\W\d]\w*", formula)) & set(names)
    return tuple(sorted(written | set(map(str, parsed.required_variables))))


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
    pandas = load("pandas", "formula")
    encoded = frame.copy(deep=False)
    for name, known in levels.items():
        values = np.asarray(frame[name], dtype=object)
        encoded[name] = pandas.Categorical(values, categories=list(known))
    return encoded


def _evaluated(formula: str, function: Any, *args: Any, **options: Any) -> Any:
    try:
        return function(*args, **options)
    except BadInputError:
        raise
    except Exception as error:
        said = re.sub(r"\x1b\[[0-9;]*m|[⧛⧚]", "", " ".join(str(error).split()))
        way_out = f"{said} (columns of text cannot be computed with; Python goes in braces)"
        raise BadInputError("formula", formula, way_out) from error


def _require_complete(name: str, column: Any) -> None:
    missing = column.isna().to_numpy()
    way_out = f"from row {int(np.argmax(missing)) if len(missing) else 0}: drop or fill those rows"
    require(not missing.any(), f"column {name}", f"missing in {int(missing.sum())} rows", way_out)


def _require_finite(name: str, column: Array) -> None:
    bad = ~np.isfinite(column)
    if bad.any():
        row = int(np.argmax(bad))
        way_out = f"in row {row}: every entry must be a finite number"
        raise BadInputError(f"column {name}", float(column[row]), way_out)


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
    way_out = "it must hold numbers or text: convert dates and the like to numbers first"
    require(column.dtype.kind in "buif", f"type of column {name}", str(column.dtype), way_out)
    values = column.to_numpy(dtype=np.float64)
    _require_finite(name, values)
    return np.asarray(values)


def _floats(matrix: Any) -> Array:
    return np.ascontiguousarray(matrix.to_numpy(dtype=np.float64))
