"""What formulaic learns of a formula from the first rows of a table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quorate._extras import load
from quorate.errors import require
from quorate.models.formulas.groups import BarTerm
from quorate.models.formulas.moments import settle
from quorate.models.formulas.syntax import FUNCTIONS, evaluated
from quorate.models.groups.levels import Level
from quorate.numerics.moments import Moments


class Fixed(NamedTuple):
    """What is learned of the fixed terms of a formula."""

    names: tuple[str, ...]  # of the columns of X
    response: str
    spec: Any  # formulaic's record of X and y
    terms: Mapping[str, tuple[str, ...]]  # columns of each term


def expression(text: str) -> str:
    """A formula of one column, which holds the values of an expression."""
    return f"0 + {{{text}}}"


@dataclass(frozen=True)
class Teacher:
    """Lets formulaic learn encodings from the first rows of a table.

    If these are not the `whole` table, `moments` are those of what the formula centres, over all
    rows.
    """

    formula: str
    frame: Any
    whole: bool
    moments: Mapping[str, Moments] = field(default_factory=dict)

    def _matrices(self, formula: str) -> Any:
        model_matrix = load("formulaic", "formula").model_matrix
        options = {"na_action": "ignore", "context": FUNCTIONS}
        return evaluated(self.formula, model_matrix, formula, self.frame, **options)

    def fixed(self, formula: str) -> "Fixed":
        """What is learned of the fixed terms and of the response."""
        matrices = self._matrices(formula)
        names = self._names(matrices.rhs)
        self._names(matrices.lhs)  # it may be centred, too
        require(len(names) > 0, f"Formula {self.formula!r} has no term on its right side. Add one.")
        responses = tuple(map(str, matrices.lhs.columns))
        require(
            len(responses) == 1,
            f"The left side of the formula is {', '.join(responses)}. It must be one column of "
            "numbers.",
        )
        slices = matrices.model_spec.rhs.term_slices.items()
        terms = {str(term): names[where] for term, where in slices if names[where]}
        has_constant = terms.pop("1", None) is not None  # the intercept, which has a name
        require(
            not (has_constant and "Intercept" in matrices.model_spec.rhs.required_variables),
            f"The table has a column named `Intercept`, and formula {self.formula!r} has a "
            "constant term of that name. Rename the column, or begin with `0 +`.",
        )
        return Fixed(names, responses[0], matrices.model_spec, terms)

    def extras(self, written: Iterable[tuple[str, str]]) -> dict[str, tuple[Any, ...]]:
        """formulaic's record of weights, trials and offsets."""
        found: dict[str, tuple[Any, ...]] = {}
        for name, text in written:
            matrix = self._matrices(expression(text))
            require(
                len(self._names(matrix)) == 1,
                f"`{name}({text})` is text. It must be a number in each row.",
            )
            found[name] = (*found.get(name, ()), matrix.model_spec)
        return found

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
        states = matrix.model_spec.transform_state
        stateful = [] if self.whole else settle(states, self.moments)
        require(
            not stateful,
            f"{', '.join(stateful)} depends on all rows, so it cannot be streamed: compute the "
            "column beforehand.",
        )
        return tuple(map(str, matrix.columns))
