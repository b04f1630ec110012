"""What a formula may contain, checked before anything in it is evaluated.

formulaic evaluates parts of a formula as Python: what stands in braces, and calls such as `log(x)`.
It even evaluates some of it while it parses. So this check comes first. It takes formulaic's own
tokens, which are only text, and walks the syntax tree that formulaic would evaluate. Columns,
numbers, operators, comparisons and the transforms listed here pass. All else is refused by name.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from quorate._extras import load
from quorate.errors import BadInputError, require

_LONGEST = 100_000  # characters
_MOST_TERMS = 10_000
_HIGHEST_POWER = 100

_SPLINE = ("df", "knots", "lower_bound", "upper_bound", "constraints", "extrapolation")
# Transforms, each with the options that may follow its first argument, in their order.
TRANSFORMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("I", "abs", "center", "exp", "exp2", "expm1"), ()),
        **dict.fromkeys(("log", "log10", "log1p", "log2", "sqrt"), ()),
        "C": ("contrasts", "levels", "spans_intercept"),
        "bs": ("df", "knots", "degree", "include_intercept", *_SPLINE[2:4], "extrapolation"),
        "cc": _SPLINE,
        "cr": _SPLINE,
        "cs": _SPLINE,
        "poly": ("degree", "raw"),
        "scale": ("center", "scale", "ddof"),
        "standardize": ("center", "rescale", "ddof"),
    }
)
# Contrasts, each with its options. They stand only in `C(column, contrast)`.
CONTRASTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Treatment": ("reference",),
        "contr.treatment": ("base",),
        "contr.SAS": ("base",),
        **dict.fromkeys(("Sum", "contr.sum", "contr.diff", "contr.helmert", "contr.poly"), ()),
    }
)


def _category(data: Any, contrasts: Any = None, *, levels: Any = None, **options: Any) -> Any:
    """`C` of formulaic, which would count rows of levels that are not listed as none of them."""
    if levels is not None:
        column = load("pandas", "formula").Series(data)
        lacking = sorted(set(column.unique()) - set(levels), key=str)
        if lacking:
            raise BadInputError(
                f"Column `{column.name}` has level {lacking[0]!r}, which `levels={list(levels)}` "
                "omits. List all levels, or drop those rows."
            )
    encoded = load("formulaic.transforms", "formula").C
    return encoded(data, contrasts, levels=levels, **options)


# Functions that formulaic does not have, or that are stricter than its own.
FUNCTIONS: Mapping[str, Any] = MappingProxyType(
    {"C": _category, "abs": np.abs, "expm1": np.expm1, "log1p": np.log1p, "sqrt": np.sqrt}
)
_SIZES = ("degree", "df", "knots", "ddof")  # options that cost memory
_OPERATORS = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow,
    ast.BitAnd, ast.BitOr, ast.Invert, ast.UAdd, ast.USub,
)  # fmt: skip
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_REFUSED_TEXT = {"\\": "a backslash", "#": "a `#`", "_formulaic": "`_formulaic`"}


def evaluated(formula: str, function: Any, *args: Any, **options: Any) -> Any:
    """Call a function of formulaic. If it raises, the error names the formula."""
    try:
        return function(*args, **options)
    except BadInputError:
        raise
    except Exception as error:
        if isinstance(error.__cause__, BadInputError):
            raise error.__cause__ from None
        said = re.sub(r"\x1b\[[0-9;]*m|[⧛⧚]", "", " ".join(str(error).split()))
        raise BadInputError(
            f"Formula {formula[:200]!r} cannot be used: {said[:200].rstrip('.')}. Text cannot be "
            "computed with; arithmetic goes in braces."
        ) from error


def columns_of(formula: str) -> frozenset[str]:
    """Names of the columns that a formula reads, if it contains nothing that is not allowed.

    Raises
    ------
    BadInputError
        If the formula contains Python other than the operators and transforms listed above, or if
        it has too many terms. Nothing has been evaluated then.
    """
    require_plain_text(formula)
    tokenized = load("formulaic.parser.algos.tokenize", "formula").tokenize(formula)
    sanitized = load("formulaic.parser.algos.sanitize_tokens", "formula").sanitize_tokens(tokenized)
    columns: set[str] = set()
    for kind, text in [(token.kind.value, token.token) for token in sanitized]:
        if kind == "python":
            columns |= _columns_of_python(text)
        elif kind == "name":
            columns.add(text)
        require(text != ".", "A formula cannot contain `.`. Write out the columns.")
    _require_few_terms(formula)
    return frozenset(columns)


def require_plain_text(formula: str) -> None:
    """Refuse formulas that are too long, or whose characters formulaic reads as something else."""
    require(
        len(formula) <= _LONGEST,
        f"The formula has {len(formula)} characters. It may have up to {_LONGEST}.",
    )
    for text, words in _REFUSED_TEXT.items():
        require(text not in formula.lower(), f"A formula cannot contain {words}. Leave it out.")
    strange = [character for character in formula if not character.isprintable()]
    require(not strange, f"A formula cannot contain the character {strange[:1]}. Leave it out.")


def _columns_of_python(code: str) -> set[str]:
    """Columns that a Python part of a formula reads, if all of it is allowed."""
    names: dict[str, str] = {}  # as in backquotes, by their names in Python
    formulaic_code = load("formulaic.utils.code", "formula")
    parsed = ast.parse(formulaic_code.sanitize_variable_names(code, {}, names), mode="eval")
    return {names.get(name, name) for name in _expression(parsed.body)}


def _expression(node: ast.expr) -> Iterator[str]:
    """Check an expression of columns and numbers, and give the names of its columns."""
    match node:
        case ast.Name(id=name):
            yield name
        case ast.Constant(value=bool() | int() | float()):
            pass
        case ast.UnaryOp(op=operator, operand=operand) if isinstance(operator, _OPERATORS):
            yield from _expression(operand)
        case ast.BinOp(left=left, op=operator, right=right) if isinstance(operator, _OPERATORS):
            found = [*_expression(left), *_expression(right)]
            vast = isinstance(operator, ast.Pow) and not found
            require(not vast, f"`{_shown(node)}` is a power of numbers. Write the number itself.")
            yield from found
        case ast.Compare(left=left, ops=operators, comparators=others):
            require(all(isinstance(one, _COMPARISONS) for one in operators), _refusal(node))
            for side in (left, *others):
                if not _is_text(side):
                    yield from _expression(side)
        case ast.Call(func=ast.Name(id=name), args=[first, *more], keywords=options) if (
            name in TRANSFORMS
        ):
            yield from _expression(first)
            _check_options(node, name, TRANSFORMS[name], more, options)
        case _:
            raise BadInputError(_refusal(node))


def _check_options(
    call: ast.Call,
    function: str,
    known: tuple[str, ...],
    values: list[ast.expr],
    keywords: list[ast.keyword],
) -> None:
    """Check that the options of a transform or contrast are known to it, and constants."""
    listed = ", ".join(known) or "none"
    too_many = f"`{_shown(call)}` has too many arguments. The options of {function} are: {listed}."
    require(len(values) <= len(known), too_many)
    options = [*zip(known, values, strict=False), *((one.arg, one.value) for one in keywords)]
    for name, value in options:
        require(
            name in known,
            f"{function} has no option named {name}, as in `{_shown(call)}`. Its options are: "
            f"{listed}.",
        )
        if name == "contrasts":
            _check_contrast(value)
        else:
            _check_constant(name or "", value)


def _check_contrast(node: ast.expr) -> None:
    match node:
        case ast.Call(func=function, args=values, keywords=keywords) if (
            ast.unparse(function) in CONTRASTS
        ):
            name = ast.unparse(function)
            _check_options(node, name, CONTRASTS[name], values, keywords)
        case _:
            raise BadInputError(
                f"`{_shown(node)}` is not a contrast. Use one of {', '.join(CONTRASTS)}, with "
                "parentheses."
            )


def _check_constant(name: str, node: ast.expr) -> None:
    """Check that an option is a number, a text, true or false, none, or a list of such."""
    match node:
        case ast.Constant(value=int(number)) if name in _SIZES:
            require(
                number <= _HIGHEST_POWER,
                f"{name} may be up to {_HIGHEST_POWER}, not {_shown(node)}.",
            )
        case ast.Constant(value=bool() | int() | float() | None):
            pass
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            pass
        case ast.List(elts=entries) | ast.Tuple(elts=entries):
            for entry in entries:
                _check_constant("", entry)
        case _:
            require(_is_text(node), _refusal(node))


def _is_text(node: ast.expr) -> bool:
    """Whether this is a quoted text. formulaic cannot keep quotes inside of one apart from code."""
    match node:
        case ast.Constant(value=str(text)):
            within = sorted(set(text) & set("\"'`"))
            require(not within, f"A text in a formula cannot contain {within}: {_shown(node)}.")
            return True
    return False


def _refusal(node: ast.expr) -> str:
    start = f"`{_shown(node)}` is not allowed in a formula"
    match node:
        case ast.Call(func=ast.Name(id=name), args=args) if name not in TRANSFORMS or args:
            start = f"`{name}` is not a transform that formulas know"
        case ast.Constant(value=str()):
            start += ": a text can only be compared with a column, as in {column == 'text'}"
    return (
        f"{start}. A formula consists of columns, numbers, operators and {', '.join(TRANSFORMS)}. "
        "To run any Python in it, use allow_python=True, or --allow-python on the command line. A "
        "model that bambi can build may be given to from_bambi."
    )


def _shown(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else text[:57] + "…"


def _require_few_terms(formula: str) -> None:
    """Refuse products and powers of sums that have more terms than memory."""
    tree = load("formulaic.parser", "formula").DefaultFormulaParser().get_ast(formula)
    counts: dict[int, int] = {}
    for node in reversed(list(_nodes(tree))):
        counts[id(node)] = count = min(_n_terms(node, counts), 10 * _MOST_TERMS)
        require(
            count <= _MOST_TERMS,
            f"The formula has more than {_MOST_TERMS} terms. Write out the products that you need.",
        )


def _nodes(tree: Any) -> Iterator[Any]:
    """All nodes of formulaic's tree, parents before children. Sums of many columns are deep."""
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(_arguments(node))


def _arguments(node: Any) -> Sequence[Any]:
    return getattr(node, "args", ())


def _n_terms(node: Any, counts: Mapping[int, int]) -> int:
    """At most how many terms a node of the tree has."""
    symbol = node.operator.symbol if hasattr(node, "operator") else ""
    first, *more = [counts[id(argument)] for argument in _arguments(node)] or [1]
    second = more[0] if more else 0
    if symbol in ("*", ":"):
        return first + second + first * second
    if symbol in ("**", "^"):
        power = str(_arguments(node)[1])
        return int(first ** min(int(power), 20)) if power.isdecimal() else first
    return first + second
