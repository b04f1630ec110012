"""Terms of a formula with a bar, such as `(1 + x | g)`: columns whose coefficients vary by group.

The notation is that of lme4 and brms. These terms are taken out of the formula by its tokens, which
are only text. What stands left of a bar is a formula of its own, which is checked like any other
before anything in it is evaluated. What stands right of it may only name columns.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from quorate.errors import BadInputError, require
from quorate.models.formulas.tokens import BAMBI, Token, offsets_of, response_of, tokens_of

_BARS = ("|", "||")
_CORRELATED = (
    "Residuals that depend on each other do not factor over rows: add lagged columns to the table."
)
_SEVERAL = "The posterior does not factor over groups if a row has several: choose one of them."
_SMOOTH = "Use a spline with a fixed number of columns: bs(x, df=5)."
_HSGP = "bambi has hsgp(x, m, c): build the model there, and give it to from_bambi."
_ERRORS_IN_X = "Use the column as it was measured, or write the model with from_numpyro."
# Functions of brms that have no counterpart here, and what to do instead.
SPECIALS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("mm", "mmc"), _SEVERAL),
        "bf": "Write the formula alone, without bf().",
        "gr": "Groups have no options here: write the column alone, as in (1 | g).",
        **dict.fromkeys(("s", "t2", "te", "ti"), f"There are no smooth terms. {_SMOOTH}"),
        "gp": f"There are no Gaussian processes. {_SMOOTH} {_HSGP}",
        **dict.fromkeys(("hsgp", "censored", "truncated", "constrained"), BAMBI),
        "mo": "There are no monotonic effects. Use the column itself, or C(x).",
        **dict.fromkeys(("me", "mi"), f"There are no errors in columns. {_ERRORS_IN_X}"),
        **dict.fromkeys(("ar", "ma", "arma", "cosy", "unstr", "sar", "car", "fcor"), _CORRELATED),
    }
)


@dataclass(frozen=True)
class BarTerm:
    """One term with a bar.

    Parameters
    ----------
    text
        As the user wrote it.
    left
        Formula of the columns whose coefficients vary.
    groups
        The column that defines the groups; two for groups within groups, the outer one first.
    is_correlated
        Whether its coefficients are correlated: `|`, and not `||`.
    """

    text: str
    left: str
    groups: tuple[str, ...]
    is_correlated: bool


@dataclass(frozen=True)
class Written:
    """A formula taken apart: the response, if it has one, the fixed terms, and those with bars.

    `extras` are the expressions of weights, trials and offsets, each with its name.
    """

    response: str | None
    right: str
    terms: tuple[BarTerm, ...]
    extras: tuple[tuple[str, str], ...] = ()

    @property
    def fixed(self) -> str:
        """The formula without its terms with bars."""
        return self.right if self.response is None else f"{self.response}~{self.right}"


def taken_apart(formula: str) -> Written:
    """Find the terms with bars. Nothing is evaluated.

    Raises
    ------
    BadInputError
        If a term is not supported. The message names it.
    """
    tokens = tokens_of(formula)
    tildes = [i for i, token in enumerate(tokens) if token.is_operator("~")]
    _refuse_specials(tokens, tildes)
    spans = _spans(formula, tokens)
    if len(tildes) != 1:
        require(not spans, f"Formula {formula!r} needs one `~`, as in `y ~ x + (1 | g)`.")
        return Written(None, formula, ())
    tilde = tokens[tildes[0]].start
    left = response_of(formula, tokens[: tildes[0] + 1])
    terms = [term for span in spans for term in _terms(formula, tokens, span, tildes[0])]
    offsets = list(offsets_of(tokens, tildes[0]))
    spans = sorted([*spans, *((i, i) for i, _ in offsets)])
    keep = _outside(formula, tokens, spans)[tilde + 1 :]
    right = re.sub(r"^\s*\+", "", keep) if spans else keep
    extras = (*left.extras, *(("offset", text) for _, text in offsets))
    return Written(left.text, right if right.strip() else "1", tuple(terms), extras)


def _refuse_specials(tokens: Sequence[Token], tildes: Sequence[int]) -> None:
    """Refuse functions of brms and bambi by their names, but those of responses."""
    for i, token in enumerate(tokens):
        name = token.function
        if tildes and i < tildes[0] and i and tokens[i - 1].has_bar:
            continue
        require(name not in SPECIALS, f"`{token.text}` is not supported. {SPECIALS.get(name)}")
        require(
            name != "cs" or "," in token.text,
            f"`{token.text}` is a cubic spline, which needs df, as in cs(x, df=4). There are no "
            "category-specific effects.",
        )


def _spans(formula: str, tokens: Sequence[Token]) -> list[tuple[int, int]]:
    """First and last token of each pair of parentheses that holds a bar."""
    opened: list[int] = []
    barred: dict[int, int] = {}
    for i, token in enumerate(tokens):
        if token.kind == "context" and token.text in "([":
            opened.append(i)
        elif token.kind == "context" and opened:
            first = opened.pop()
            if first in barred:
                barred[first] = i
        elif token.has_bar and opened and tokens[opened[-1]].text == "(":
            barred[opened[-1]] = -1
    unclosed = -1 in barred.values()
    require(not unclosed, f"Formula {formula!r} has a parenthesis that is not closed. Close it.")
    return sorted(barred.items())


def _outside(formula: str, tokens: Sequence[Token], spans: Iterable[tuple[int, int]]) -> str:
    """The formula with blanks in place of some of its terms and of the plus before each."""
    characters = list(formula)
    for first, last in spans:
        start = first - 1 if tokens[first - 1].is_operator("+") else first
        for position in range(tokens[start].start, tokens[last].start + len(tokens[last].text)):
            characters[position] = " "
    return "".join(characters)


def _terms(
    formula: str, tokens: Sequence[Token], span: tuple[int, int], tilde: int
) -> Iterator[BarTerm]:
    """What stands between two parentheses; `(1 | a/b)` is two terms."""
    first, last = span
    text = formula[tokens[first].start : tokens[last].start + 1]
    after = tokens[last + 1].text if last + 1 < len(tokens) else "+"
    added = first > tilde and tokens[first - 1].is_operator("+", "~") and after[0] in "+-"
    depth = sum({"(": 1, ")": -1}.get(one.text, 0) for one in tokens[:first])
    require(
        added and depth == 0,
        f"`{text}` must be added to the other terms on the right side, as in `y ~ x + {text}`.",
    )
    bars = [i for i in range(first, last) if tokens[i].has_bar]
    require(
        len(bars) == 1,
        f"`{text}` has several bars. Coefficients of different terms are not correlated here: "
        "write one bar, and terms that belong together in one, as in (1 + x | g).",
    )
    bar = tokens[bars[0]]
    require(bar.text in _BARS, f"`{text}` cannot be read. Name a column after the bar: (1 | g).")
    left = formula[tokens[first].start + 1 : bar.start].strip()
    has_tilde = any(token.is_operator("~") for token in tokens[first:last])
    require(bool(left) and not has_tilde, f"`{text}` has no columns before its bar: (1 | g).")
    for groups in _groups(text, tokens[bars[0] + 1 : last]):
        yield BarTerm(text, left, groups, bar.text == "|")


def _groups(text: str, tokens: Sequence[Token]) -> list[tuple[str, ...]]:
    """The groups right of a bar: `a`, `a:b`, or `a/b`, which is `a` and `a:b`."""
    names, symbols = [token.text for token in tokens[::2]], {token.text for token in tokens[1::2]}
    plain = len(tokens) % 2 == 1 and all(token.kind == "name" for token in tokens[::2])
    require(
        plain and len(symbols) <= 1 and symbols <= {"/", ":", "+"},
        f"`{text}` must name columns after its bar, as in (1 | g) or (1 | a/b).",
    )
    if symbols == {"+"}:
        raise _crossed(names)
    require(
        len(names) <= 2,
        f"`{text}` has {len(names)} levels of groups. There may be two: leave one out, or combine "
        "two columns into one.",
    )
    require(len(set(names)) == len(names), f"`{text}` names one column twice. Name it once.")
    return [(names[0],), tuple(names)] if symbols == {"/"} else [tuple(names)]


def nested(terms: Sequence[BarTerm]) -> tuple[str, ...]:
    """The columns that define groups, the outer one first; at most two.

    Raises
    ------
    BadInputError
        If groups of the terms do not nest.
    """
    single = list(dict.fromkeys(term.groups[0] for term in terms if len(term.groups) == 1))
    pairs = list(dict.fromkeys(frozenset(t.groups) for t in terms if len(t.groups) == 2))
    if terms and not single:
        raise BadInputError(
            f"`{terms[0].text}` has groups of two columns. Combine them into one column of the "
            f"table, or add a term for the outer one: (1 | {terms[0].groups[0]}) + …"
        )
    elsewhere = [":".join(sorted(pair)) for pair in pairs if single[0] not in pair]
    if len(single) > 1 or elsewhere:
        raise _crossed([*single, *elsewhere])
    inner = [next(iter(pair - {single[0]})) for pair in pairs]
    if len(inner) > 1:
        raise _crossed([f"{single[0]}:{name}" for name in inner])
    return (*single, *inner)


def _crossed(names: Sequence[str]) -> BadInputError:
    one, other = names[0], names[1]
    return BadInputError(
        f"Groups of `{one}` and `{other}` are crossed. Their posterior does not factor over "
        "groups, so no cut of the rows keeps both whole. Make the one with fewer values a global "
        f"term, as in C({other}) + (1 | {one}). If each group of `{other}` lies within one of "
        f"`{one}`, write (1 | {one}/{other})."
    )
