"""From a formula and a table to `X` and `y`, with one encoding for all shards.

The encoding (levels of categories, names of columns) is learned once, from the whole table or from
a stream of its chunks. It can then be applied to any part of the table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate._types import Array
from quorate.data.complete import NA, require_way
from quorate.data.cut import Cut
from quorate.errors import BadInputError, require
from quorate.models.formulas.columns import (
    CONSTANT,
    chunks,
    encoded,
    floats,
    frame_of,
    require_finite,
    require_known,
)
from quorate.models.formulas.learning import Learner
from quorate.models.formulas.missing import Completeness
from quorate.models.formulas.syntax import FUNCTIONS, evaluated
from quorate.models.formulas.teacher import Teacher
from quorate.models.groups.levels import VARYING, Level

_INTERCEPT = "Intercept"


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
    terms
        The columns of X that belong to each term.
    extras
        formulaic's record of `weights`, `trials` and `offset`, for those that the formula has.
    na
        What to do about rows with missing values: raise, or drop them.
    completeness
        How many rows of the table were incomplete, and in which columns.
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
    terms: tuple[tuple[str, tuple[str, ...]], ...] = ()
    extras: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    na: NA = "raise"
    completeness: Completeness | None = None

    @property
    def n_dropped(self) -> int:
        """Number of rows of the table that were dropped because a value is missing."""
        return 0 if self.completeness is None else self.completeness.n_incomplete

    def arrays(self, table: Any, *, response: bool = True) -> dict[str, Array]:
        """The arrays of any rows of the table.

        They are `X` (n, p) and `y` (n,), and for formulas with bars the varying columns: `Z` (n, q)
        of the outer level, and `Z_inner` of the inner one. There are `weights`, `trials` and
        `offset`, (n,) each, if the formula has them. Without `response` there are no `y` and no
        `weights`, and the table need not have their columns. Incomplete rows are dropped if the
        design drops them, but never from rows without a response, which are to be predicted.
        """
        frame = frame_of(table, self.variables if response else self.predictors)
        if response and self.na == "drop":
            frame = frame.dropna().reset_index(drop=True)
        require_known(frame, self.categories)
        frame = encoded(frame, self.categories)
        arrays = {"X": self._matrix(self.names, [self.spec.rhs], frame)}
        if response:
            arrays["y"] = self._matrix([self.response], [self.spec.lhs], frame)[:, 0]
        for array, level, specs in zip(VARYING, self.levels, self.varying, strict=False):
            arrays[array] = self._matrix(level.names, specs, frame)
        for name, specs in self.extras:
            if response or name != "weights":
                names = [f"{name} {i}" for i in range(len(specs))]
                arrays[name] = self._matrix(names, specs, frame).sum(axis=1)
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
        made_by: dict[str, Any] = {"formula": self.formula, "allow_python": self.allow_python}
        if self.na == "drop":
            made_by |= {"na": self.na, "n_dropped": self.n_dropped}
        return Cut(by, columns=self.variables, transform=self.arrays, made_by=made_by, na=self.na)


def design(formula: str, table: Any, *, allow_python: bool = False, na: NA = "raise") -> Design:
    """Learn the encoding of a formula.

    Parameters
    ----------
    formula
        `late ~ hour + C(month) + origin`, in the grammar of formulaic; arithmetic and comparisons
        in braces: `{delay > 15} ~ hour`. Text becomes categories, of which the first is the
        baseline. `quorate.models.formulas.syntax.TRANSFORMS` lists the transforms. Coefficients
        vary by group in terms with a bar, as in lme4 and brms: `late ~ hour + (1 + hour | plane)`.
        `offset(z)` adds z to the linear predictor, with no coefficient. The response may have
        weights and trials, `k | trials(n) + weights(w) ~ x`.
    table
        A pandas or polars data frame, an Arrow table or a dictionary of columns; or an iterable
        of such chunks, which is read once and never held whole.
    allow_python
        Whether to run any Python that the formula contains. It can do whatever you can do: allow it
        only for formulas that you trust.
    na
        What to do about rows with a missing value in a column that the formula reads: `raise`, or
        `drop` them. `Design.n_dropped` is their number.
    """
    require_way(na)
    learner = Learner(formula, allow_python)
    first, n_chunks = None, 0
    for chunk in chunks(table):
        frame, n_chunks = learner.add(chunk), n_chunks + 1
        first = frame if first is None or not len(first) else first
    if first is None:
        raise BadInputError("The table is empty. It must have rows.")
    return learned_design(learner, first, na, whole=n_chunks == 1)


def learned_design(learner: Learner, first: Any, na: NA, *, whole: bool) -> Design:
    """The design of a formula whose learner has seen all rows.

    Parameters
    ----------
    first
        Some rows, from which formulaic learns the names of columns.
    whole
        Whether these are all rows.
    """
    formula, written, columns = learner.formula, learner.written, learner.read
    require(learner.completeness.n_rows > 0, "The table is empty. It must have rows.")
    assert columns is not None
    learner.completeness.require_usable(na)
    _require_usable_response(str(learner.parsed.lhs).strip(), learner)
    categories = learner.scan.settled_levels(columns.only_in_extras)
    teacher = Teacher(formula, encoded(first, categories), whole, learner.moments)
    fixed, extras = teacher.fixed(written.fixed), teacher.extras(written.extras)
    levels, varying = teacher.levels(written.terms, learner.groups)
    learned = Design(
        formula,
        fixed.names,
        fixed.response,
        columns.all,
        columns.right,
        categories,
        fixed.spec,
        learner.allow_python,
        levels,
        "/".join(learner.groups),
        varying,
        tuple(fixed.terms.items()),
        tuple(extras.items()),
        na,
        learner.completeness,
    )
    if whole:
        _require_varying(learned, learned.arrays(first))
    return learned


def _require_usable_response(name: str, learner: Learner) -> None:
    require(
        name not in learner.scan.levels,
        f'Column `{name}` is text. The response must be a number: write {{{name} == "..."}} ~ ...',
    )
    require(
        name not in learner.groups,
        f"`{name}` is both the response and the column that defines groups. Group rows by another "
        "column.",
    )
    assert learner.read is not None
    require(
        name not in learner.read.right,
        f"`{name}` is the response, and the right side has it, too. Take it out there.",
    )
    low, high = learner.scan.ranges.get(name, (0.0, 1.0))
    require(
        low < high,
        f"The response `{name}` is {low} in every row, so there is nothing to explain. Check the "
        "column, or take more rows.",
    )


def _require_varying(learned: Design, arrays: Mapping[str, Array]) -> None:
    named = {"X": learned.names}
    named |= {array: level.names for array, level in zip(VARYING, learned.levels, strict=False)}
    for array, names in named.items():
        for name, column in zip(names, arrays[array].T, strict=True):
            same = name != _INTERCEPT and len(column) > 1 and np.ptp(column) == 0
            require(not same, f"Column `{name}` is {column[0]} {CONSTANT}")
