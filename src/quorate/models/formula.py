"""From a formula and a table to `X` and `y`, with one encoding for all shards.

The encoding (levels of categories, names of columns) is learned once, from the whole table or from
a stream of its chunks. It can then be applied to any part of the table.
"""

import builtins
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate._extras import load
from quorate._types import Array
from quorate.data.cut import Cut
from quorate.errors import BadInputError, require
from quorate.models.formula_columns import (
    CONSTANT,
    Scan,
    chunks,
    column_names,
    encoded,
    floats,
    frame_of,
    require_finite,
    require_known,
    require_names,
)
from quorate.models.formula_groups import BarTerm, Written, nested, taken_apart
from quorate.models.formula_syntax import FUNCTIONS, columns_of, evaluated, require_plain_text
from quorate.models.groups.levels import Level

_INTERCEPT = "Intercept"
_VARYING = ("Z", "Z_inner")  # arrays of the varying columns, outer level first


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
        Columns that the formula reads, other than those that only define groups.
    predictors
        Those of them that the right side reads.
    categories
        Levels of each categorical column; the first is the baseline.
    spec
        formulaic's own record of the encoding.
    allow_python
        Whether the formula was allowed to run any Python.
    levels
        Levels of groups, the outer one first, for models to take as `groups`. Empty for a formula
        without bars.
    group_columns
        The columns that define groups, `county` or `state/county`; empty for a formula without.
    varying
        formulaic's record of the columns whose coefficients vary, for each term of each level.
    """

    formula: str
    names: tuple[str, ...]
    response: str
    variables: tuple[str, ...]
    predictors: tuple[str, ...]
    categories: Mapping[str, tuple[Any, ...]]
    spec: Any
    allow_python: bool = False
    levels: tuple[Level, ...] = ()
    group_columns: str = ""
    varying: tuple[tuple[Any, ...], ...] = ()

    def arrays(self, table: Any, *, response: bool = True) -> dict[str, Array]:
        """The arrays of any rows of the table.

        They are `X` (n, p) and `y` (n,), and for formulas with bars the varying columns: `Z` (n, q)
        of the outer level, and `Z_inner` of the inner one. Without `response` there is no `y`, and
        the table need not have its column.
        """
        frame = frame_of(table, self.variables if response else self.predictors)
        require_known(frame, self.categories)
        frame = encoded(frame, self.categories)
        arrays = {"X": self._matrix(self.names, [self.spec.rhs], frame)}
        if response:
            arrays["y"] = self._matrix([self.response], [self.spec.lhs], frame)[:, 0]
        for array, level, specs in zip(_VARYING, self.levels, self.varying, strict=False):
            arrays[array] = self._matrix(level.names, specs, frame)
        return arrays

    def _matrix(self, names: Sequence[str], specs: Sequence[Any], frame: Any) -> Array:
        """Columns of several specs, side by side."""
        parts = [
            floats(evaluated(self.formula, spec.get_model_matrix, frame, context=FUNCTIONS))
            for spec in specs
        ]
        whole = np.hstack(parts) if len(parts) > 1 else parts[0]
        for name, column in zip(names, whole.T, strict=True):
            require_finite(name, column)
        return whole

    def cut(self, by: str | None = None) -> Cut:
        """The cut of a table into shards of this design: `sample(model, table, by=design.cut())`.

        Parameters
        ----------
        by
            As for `Cut`. By default rows are shuffled, or stay together by group.
        """
        made_by = {"formula": self.formula, "allow_python": self.allow_python}
        return Cut(by, columns=self.variables, transform=self.arrays, made_by=made_by)


def design(formula: str, table: Any, *, allow_python: bool = False) -> Design:
    """Learn the encoding of a formula.

    Parameters
    ----------
    formula
        `late ~ hour + C(month) + origin`, in the grammar of formulaic; arithmetic and comparisons
        in braces: `{delay > 15} ~ hour`. Text becomes categories, of which the first is the
        baseline. `quorate.models.formula_syntax.TRANSFORMS` lists the transforms. Coefficients vary
        by group in terms with a bar, as in lme4 and brms: `late ~ hour + (1 + hour | plane)`.
    table
        A pandas or polars data frame, an Arrow table or a dictionary of columns; or an iterable
        of such chunks, which is read once and never held whole.
    allow_python
        Whether to run any Python that the formula contains. It can do whatever you can do: allow it
        only for formulas that you trust.
    """
    formula = re.sub(r"\s", " ", formula)
    if not allow_python:
        require_plain_text(formula)
    written = evaluated(formula, taken_apart, formula)
    groups = nested(written.terms)
    named = None if allow_python else _named(formula, written)
    parsed = _parsed(formula, written)
    scan = Scan(frozenset(re.findall(r"\bC\(\s*(\w+)", formula)))
    columns: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    first, n_chunks = None, 0
    for chunk in chunks(table):
        columns = columns or _columns_read(written, parsed, named, column_names(chunk))
        require_names(chunk, groups)
        frame = frame_of(chunk, columns[0])
        scan.add(frame)
        first, n_chunks = (frame if first is None else first), n_chunks + 1
    if first is None or columns is None or not len(first):
        raise BadInputError("The table is empty. It must have rows.")
    _require_numeric_response(parsed, scan)
    categories = scan.settled_levels()
    teacher = _Teacher(formula, encoded(first, categories), whole=n_chunks == 1)
    names, response, spec = teacher.fixed(written.fixed)
    levels, varying = teacher.levels(written.terms, groups)
    learned = Design(
        formula,
        names,
        response,
        *columns,
        categories,
        spec,
        allow_python,
        levels,
        "/".join(groups),
        varying,
    )
    if n_chunks == 1:
        _require_varying(learned, learned.arrays(first))
    return learned


def _named(formula: str, written: Written) -> tuple[frozenset[str], frozenset[str]]:
    """Columns that all of the formula reads, and its right side. Nothing has been evaluated."""
    whole = evaluated(formula, columns_of, written.fixed)
    lefts = [evaluated(formula, columns_of, term.left) for term in written.terms]
    right = evaluated(formula, columns_of, written.right).union(*lefts)
    return whole | right, right


def _parsed(formula: str, written: Written) -> Any:
    """formulaic's parse of the fixed terms."""
    parsed = evaluated(formula, load("formulaic", "formula").Formula, written.fixed)
    two_sided = hasattr(parsed, "lhs") and hasattr(parsed, "rhs")
    require(two_sided, f"Formula {formula!r} has one side. Write the response first: `y ~ x`.")
    parts = isinstance(parsed.lhs, tuple) or isinstance(parsed.rhs, tuple)
    require(
        not parts,
        f"Formula {formula!r} has several parts. Use `+` in place of `|`, or put a term with a bar "
        "in parentheses: (1 | g).",
    )
    return parsed


@dataclass(frozen=True)
class _Teacher:
    """Lets formulaic learn encodings from the first rows of a table."""

    formula: str
    frame: Any
    whole: bool

    def _matrices(self, formula: str) -> Any:
        model_matrix = load("formulaic", "formula").model_matrix
        options = {"na_action": "ignore", "context": FUNCTIONS}
        return evaluated(self.formula, model_matrix, formula, self.frame, **options)

    def fixed(self, formula: str) -> tuple[tuple[str, ...], str, Any]:
        """Names of the columns of X, that of y, and formulaic's record of both."""
        matrices = self._matrices(formula)
        names = self._names(matrices.rhs)
        require(len(names) > 0, f"Formula {self.formula!r} has no term on its right side. Add one.")
        responses = tuple(map(str, matrices.lhs.columns))
        require(
            len(responses) == 1,
            f"The left side of the formula is {', '.join(responses)}. It must be one column of "
            "numbers.",
        )
        return names, responses[0], matrices.model_spec

    def levels(
        self, terms: Sequence[BarTerm], groups: tuple[str, ...]
    ) -> tuple[tuple[Level, ...], tuple[tuple[Any, ...], ...]]:
        """Levels of groups, and formulaic's record of the columns that vary in each."""
        found = [
            self._level(":".join(groups[:size]), [t for t in terms if len(t.groups) == size])
            for size in range(1, len(groups) + 1)
        ]
        return tuple(level for level, _ in found), tuple(specs for _, specs in found)

    def _level(self, name: str, terms: Sequence[BarTerm]) -> tuple[Level, tuple[Any, ...]]:
        names: list[str] = []
        blocks: list[int] = []
        specs = []
        for term in terms:
            matrix = self._matrices(term.left)
            require(hasattr(matrix, "columns"), f"`{term.text}` has several parts. Use one bar.")
            new = self._names(matrix)
            require(bool(new), f"`{term.text}` has no column that varies. Write (1 | {name}).")
            twice = [column for column in new if column in names]
            require(
                not twice,
                f"{', '.join(twice)} varies by `{name}` in two terms. Name it in one, and begin "
                f"the other with 0: (0 + x | {name}).",
            )
            names += new
            blocks += [len(new)] if term.is_correlated else [1] * len(new)
            specs.append(matrix.model_spec)
        return Level(name, tuple(names), tuple(blocks)), tuple(specs)

    def _names(self, matrix: Any) -> tuple[str, ...]:
        states = map(str, matrix.model_spec.transform_state)
        stateful = sorted(state for state in states if not state.startswith("C("))
        require(
            self.whole or not stateful,
            f"{', '.join(stateful)} depends on all rows, so it cannot be streamed: compute the "
            "column beforehand.",
        )
        return tuple(map(str, matrix.columns))


def _require_numeric_response(parsed: Any, scan: Scan) -> None:
    name = str(parsed.lhs).strip()
    require(
        name not in scan.levels,
        f'Column `{name}` is text. The response must be a number: write {{{name} == "..."}} ~ ...',
    )


def _require_varying(learned: Design, arrays: Mapping[str, Array]) -> None:
    named = {"X": learned.names}
    named |= {array: level.names for array, level in zip(_VARYING, learned.levels, strict=False)}
    for array, names in named.items():
        for name, column in zip(names, arrays[array].T, strict=True):
            same = name != _INTERCEPT and len(column) > 1 and np.ptp(column) == 0
            require(not same, f"Column `{name}` is {column[0]} {CONSTANT}")


def _columns_read(
    written: Written,
    parsed: Any,
    named: tuple[frozenset[str], frozenset[str]] | None,
    names: Sequence[str],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Columns that all of the formula reads, and its right side."""
    if named is not None:
        return tuple(sorted(named[0])), tuple(sorted(named[1]))
    lefts = [term.left for term in written.terms]
    parts = [load("formulaic", "formula").Formula(left) for left in lefts]
    whole = _found([written.fixed, *lefts], [parsed, *parts], names)
    return whole, _found([written.right, *lefts], [parsed.rhs, *parts], names)


def _found(texts: Sequence[str], parsed: Sequence[Any], names: Sequence[str]) -> tuple[str, ...]:
    """Columns that formulas with any Python read. formulaic misses those inside `center`."""
    written = set(re.findall(r"[^\W\d]\w*", " ".join(texts))) & set(names)
    needed = {str(name) for one in parsed for name in one.required_variables}
    needed -= set(dir(builtins))
    return tuple(sorted(written | {n for n in needed if n in names or n.isidentifier()}))
