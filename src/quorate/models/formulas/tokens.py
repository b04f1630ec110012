"""Tokens of a formula, which are only text, and the response and offsets that they say.

`k | trials(n) + weights(w) ~ x + offset(z)` is the notation of brms. bambi's `p(k, n)`, k successes
in n trials, and `weighted(y, w)` are understood too. Nothing is evaluated here.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from quorate._extras import load
from quorate.errors import BadInputError, require

EXTRAS = ("weights", "trials", "offset")  # arrays that rows may have beside X and y
_OF_RESPONSE = EXTRAS[:2]
_PAIRS = {"p": "trials", "prop": "trials", "proportion": "trials", "weighted": "weights"}
BAMBI = "bambi has this: build the model there, and give it to from_bambi."
_ROWS = "Write the model with from_functions, whose likelihood may use any column."
_NOT_OURS = {"cens": BAMBI, "trunc": BAMBI, "mi": _ROWS, "se": _ROWS, "rate": _ROWS}


@dataclass(frozen=True)
class Token:
    """A token of formulaic, with the place of its first character in the formula."""

    kind: str
    text: str
    start: int

    def is_operator(self, *symbols: str) -> bool:
        """Whether the token is one of these operators."""
        return self.kind == "operator" and self.text in symbols

    @property
    def has_bar(self) -> bool:
        """Whether the token is a bar, or an operator that contains a bar."""
        return self.kind == "operator" and "|" in self.text

    @property
    def function(self) -> str:
        """The name of the function that it calls, or empty."""
        found = re.match(r"(\w+)\s*\(", self.text) if self.kind == "python" else None
        return found.group(1) if found else ""

    @property
    def argument(self) -> str:
        """What stands between the parentheses of a call, without braces around all of it."""
        inside = self.text[self.text.index("(") + 1 : self.text.rindex(")")].strip()
        return inside[1:-1].strip() if re.fullmatch(r"\{[^{}]*\}", inside) else inside


@dataclass(frozen=True)
class Response:
    """The left side of a formula: the response, and the expression of each of its extras."""

    text: str
    extras: tuple[tuple[str, str], ...] = ()


def tokens_of(formula: str) -> list[Token]:
    """The tokens of a formula. A tilde is one of its own, also before a sign as in `~ -1`."""
    tokenize = load("formulaic.parser.algos.tokenize", "formula").tokenize
    found = (Token(one.kind.value, one.token, one.source_start) for one in tokenize(formula))
    return [token for one in found for token in _with_own_tilde(one, formula)]


def _with_own_tilde(token: Token, formula: str) -> Iterator[Token]:
    signs = token.text[1:]
    if token.kind == "operator" and token.text.startswith("~") and signs:
        yield Token(token.kind, "~", token.start)
        yield Token(token.kind, signs, formula.index(signs[0], token.start + 1))
    else:
        yield token


def response_of(formula: str, tokens: Sequence[Token]) -> Response:
    """The left side of a formula, from the tokens before its tilde and the tilde itself."""
    *left, tilde = tokens
    if len(left) == 1 and left[0].function in _PAIRS:
        return _pair(left[0], _PAIRS[left[0].function])
    bars = [i for i, token in enumerate(left) if token.has_bar and not _is_nested(left[:i])]
    if not bars:
        return Response(formula[: tilde.start])
    bar = left[bars[0]]
    said = formula[bar.start : tilde.start].strip()
    right = left[bars[0] + 1 :]
    calls, pluses = right[::2], right[1::2]
    require(
        len(right) % 2 == 1 and all(plus.is_operator("+") for plus in pluses),
        f"`{said}` cannot be read. Write weights(w), trials(n), or both with a plus between.",
    )
    extras = tuple(_extra(call) for call in calls)
    names = [name for name, _ in extras]
    require(len(set(names)) == len(names), f"`{said}` has {names[0]} twice. Write it once.")
    return Response(formula[: bar.start], extras)


def _is_nested(before: Sequence[Token]) -> bool:
    return sum({"(": 1, ")": -1}.get(token.text, 0) for token in before) > 0


def _extra(call: Token) -> tuple[str, str]:
    name = call.function
    if name not in _OF_RESPONSE:
        way = _NOT_OURS.get(name, "After the bar stand weights(w) and trials(n).")
        raise BadInputError(f"`| {call.text}` is not supported. {way}")
    require(bool(call.argument), f"`{call.text}` is empty. Name a column: {name}(n).")
    return name, call.argument


def _pair(call: Token, extra: str) -> Response:
    """A response in bambi's notation: `p(k, n)` or `weighted(y, w)`."""
    try:
        arguments = ast.parse(call.text, mode="eval").body
    except SyntaxError:
        arguments = ast.Constant(None)
    match arguments:
        case ast.Call(args=[response, other], keywords=[]):
            return Response(f"{{{ast.unparse(response)}}}", ((extra, ast.unparse(other)),))
    raise BadInputError(f"`{call.text}` cannot be read. Write `y | {extra}(n) ~ ...`.")


def offsets_of(tokens: Sequence[Token], tilde: int) -> Iterator[tuple[int, str]]:
    """The place and the expression of each `offset(...)`, which must be added to other terms."""
    for i, token in enumerate(tokens):
        if token.function != "offset":
            continue
        after = tokens[i + 1].text if i + 1 < len(tokens) else "+"
        added = i > tilde and tokens[i - 1].is_operator("+", "~") and after[0] in "+-"
        require(
            added and not _is_nested(tokens[:i]),
            f"`{token.text}` must be added to the other terms on the right side, as in "
            f"`y ~ x + {token.text}`.",
        )
        require(bool(token.argument), "`offset()` is empty. Name a column: offset(log(e)).")
        yield i, token.argument
