"""What a formula needs to know of a table, learned chunk by chunk, here or by several workers.

Levels and ranges of columns, means of what is centred, and how many rows are incomplete: a few
numbers and names, whatever the number of rows. A learner that read some rows tells them as JSON,
and another one takes that in.
"""

import builtins
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from quorate._extras import load
from quorate.errors import require
from quorate.models.formulas.columns import (
    Scan,
    column_names,
    encoded,
    frame_of,
    require_names,
)
from quorate.models.formulas.groups import Written, nested, taken_apart
from quorate.models.formulas.missing import Completeness
from quorate.models.formulas.moments import centred_in, moments_of
from quorate.models.formulas.syntax import columns_of, evaluated, require_plain_text
from quorate.models.formulas.teacher import expression
from quorate.numerics.moments import Moments

TELLS = frozenset({"n_rows", "n_incomplete", "missing", "levels", "ranges", "moments"})


@dataclass(frozen=True)
class Read:
    """Columns that a formula reads, and those of them that predictions need."""

    all: tuple[str, ...]
    right: tuple[str, ...]
    only_in_extras: frozenset[str]  # weights, trials and offsets, which may be constant

    @classmethod
    def of(
        cls, fixed: Iterable[str], right: Iterable[str], extras: Sequence[tuple[str, Iterable[str]]]
    ) -> "Read":
        """Columns to read, from those of the formula, of its right side, and of each extra."""
        at_prediction = {c for name, columns in extras if name != "weights" for c in columns}
        everywhere = {c for _, columns in extras for c in columns}
        terms = {*fixed, *right}
        return cls(
            tuple(sorted(terms | everywhere)),
            tuple(sorted({*right} | at_prediction)),
            frozenset(everywhere - terms),
        )


@dataclass
class Learner:
    """Learns from chunks of a table. It is packed for workers before it has seen any.

    Parameters
    ----------
    formula, allow_python
        As for `quorate.models.design`.
    """

    formula: str
    allow_python: bool = False
    completeness: Completeness = field(default_factory=Completeness)
    moments: dict[str, Moments] = field(default_factory=dict)
    read: Read | None = None

    def __post_init__(self) -> None:
        self.formula = re.sub(r"\s", " ", self.formula)
        if not self.allow_python:
            require_plain_text(self.formula)

    @cached_property
    def written(self) -> Written:
        """The formula, taken apart."""
        found: Written = evaluated(self.formula, taken_apart, self.formula)
        return found

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The columns that define groups, the outer one first."""
        return nested(self.written.terms)

    @cached_property
    def parsed(self) -> Any:
        """formulaic's parse of the fixed terms."""
        return _parsed(self.formula, self.written)

    @cached_property
    def scan(self) -> Scan:
        """Levels and ranges so far."""
        return Scan(frozenset(re.findall(r"\bC\(\s*(\w+)", self.formula)))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read, once it has begun."""
        assert self.read is not None
        return tuple(dict.fromkeys((*self.read.all, *self.groups)))

    def begin(self, names: Sequence[str]) -> None:
        """Find the columns to read, in a table with these."""
        if self.read is None:
            named = None if self.allow_python else _named(self.formula, self.written)
            self.read = _columns_read(self.written, self.parsed, named, names)
            require_names(dict.fromkeys(names), self.columns)

    def add(self, chunk: Any) -> Any:
        """Take in one more chunk, and return the columns of its complete rows."""
        self.begin(column_names(chunk))
        assert self.read is not None
        require_names(chunk, self.groups)
        frame = frame_of(chunk, self.columns)
        complete = self.completeness.add(frame)
        frame = frame[complete].reset_index(drop=True)[list(self.read.all)]
        self.scan.add(frame)
        for text in centred_in(self.formula) if len(frame) else ():
            found = moments_of(self.formula, text, encoded(frame, {}))
            self.moments[text] = self.moments.get(text, Moments.none(1)).merge(found)
        return frame

    def told(self) -> dict[str, Any]:
        """What was learned, as JSON values."""
        lacking = self.completeness
        return {
            "n_rows": lacking.n_rows,
            "n_incomplete": lacking.n_incomplete,
            "missing": {name: count for name, (count, _) in lacking.columns.items()},
            "levels": {name: sorted(found, key=str) for name, found in self.scan.levels.items()},
            "ranges": {name: list(found) for name, found in self.scan.ranges.items()},
            "moments": {
                text: [known.count, known.mean.item(), known.scatter.item()]
                for text, known in self.moments.items()
            },
        }

    def take(self, told: Mapping[str, Any]) -> None:
        """Take in what another learner has told of other rows."""
        self.completeness.take(told["n_rows"], told["n_incomplete"], told["missing"])
        self.scan.take(told["levels"], told["ranges"])
        for text, (count, mean, scatter) in told["moments"].items():
            found = Moments(count, np.array([mean]), np.array([[scatter]]))
            self.moments[text] = self.moments.get(text, Moments.none(1)).merge(found)

    def typical_rows(self) -> Any:
        """A few rows with all levels and with the ends of all ranges, for formulaic to learn from.

        None of them is a row of the table.
        """
        assert self.read is not None
        values = {name: sorted(found, key=str) for name, found in self.scan.levels.items()}
        values |= {name: list(ends) for name, ends in self.scan.ranges.items()}
        n_rows = max(map(len, values.values()), default=1)
        return frame_of({name: np.resize(values[name], n_rows) for name in values}, self.read.all)


def _named(formula: str, written: Written) -> Read:
    """Columns that the formula reads. Nothing has been evaluated."""
    whole = evaluated(formula, columns_of, written.fixed)
    lefts = [evaluated(formula, columns_of, term.left) for term in written.terms]
    right = evaluated(formula, columns_of, written.right).union(*lefts)
    extras = [
        (name, evaluated(formula, columns_of, expression(text))) for name, text in written.extras
    ]
    return Read.of(whole, right, extras)


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


def _columns_read(
    written: Written,
    parsed: Any,
    named: Read | None,
    names: Sequence[str],
) -> Read:
    """Columns that a formula reads, if it may contain any Python and they are not `named`."""
    if named is not None:
        return named
    parse, lefts = load("formulaic", "formula").Formula, [term.left for term in written.terms]
    parts = [parse(left) for left in lefts]
    extras = [
        (name, _found([text], [parse(expression(text))], names)) for name, text in written.extras
    ]
    return Read.of(
        _found([written.fixed, *lefts], [parsed, *parts], names),
        _found([written.right, *lefts], [parsed.rhs, *parts], names),
        extras,
    )


def _found(texts: Sequence[str], parsed: Sequence[Any], names: Sequence[str]) -> tuple[str, ...]:
    """Columns that formulas with any Python read. formulaic misses those inside `center`."""
    written = set(re.findall(r"[^\W\d]\w*", " ".join(texts))) & set(names)
    needed = {str(name) for one in parsed for name in one.required_variables}
    needed -= set(dir(builtins))
    return tuple(sorted(written | {n for n in needed if n in names or n.isidentifier()}))
