"""Means and sds for `center`, `scale` and `standardize`, gathered over all chunks of a table.

formulaic learns them from the rows that it is shown. Where those are not all rows, this module
gathers the moments of what is centred, and puts them into formulaic's record.
"""

import ast
import re
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np

from quorate._extras import load
from quorate.models.formulas.syntax import FUNCTIONS, TRANSFORMS, evaluated
from quorate.numerics.moments import Moments

_CENTRED = ("center", "scale", "standardize")
_CALL = re.compile(rf"\b(?:{'|'.join(_CENTRED)})\s*\(")


def centred_in(formula: str) -> tuple[str, ...]:
    """The expressions that a formula centres or scales, each once."""
    found = (_inner(call) for text in _calls(formula) if (call := _parsed(text)) is not None)
    return tuple(dict.fromkeys(text for text in found if not _CALL.search(text)))


def moments_of(formula: str, expression: str, frame: Any) -> Moments:
    """Moments of an expression over some rows."""
    model_matrix = load("formulaic", "formula").model_matrix
    options = {"na_action": "ignore", "context": FUNCTIONS}
    values = evaluated(formula, model_matrix, f"0 + {{{expression}}}", frame, **options)
    return Moments.of(values.to_numpy(dtype=np.float64)[:, :1])


def settle(states: MutableMapping[str, Any], moments: Mapping[str, Moments]) -> list[str]:
    """Put moments of all rows into formulaic's states; returns the states that stay unknown."""
    unknown = []
    for text, state in states.items():
        call = _parsed(str(text))
        known = None if call is None else moments.get(_inner(call))
        if call is None or known is None:
            unknown.append(str(text))
        else:
            _settle(state, _options(call), known)
    return sorted(text for text in unknown if not text.startswith("C("))


def _settle(state: MutableMapping[str, Any], options: Mapping[str, Any], known: Moments) -> None:
    mean, scatter, n = float(known.mean[0]), float(known.scatter[0, 0]), known.count
    if options.get("center", True) is True:
        state["center"] = np.float64(mean)
    centre = 0.0 if state["center"] is None else float(state["center"])
    if state["scale"] is not None and options.get("scale", True) is True:
        squares = scatter + n * (mean - centre) ** 2
        state["scale"] = np.sqrt(squares / (n - state["ddof"]))


def _calls(formula: str) -> Iterator[str]:
    """Texts of the calls in a formula, from the name to the parenthesis that closes."""
    for found in _CALL.finditer(formula):
        depth = 1
        for place in range(found.end(), len(formula)):
            depth += {"(": 1, ")": -1}.get(formula[place], 0)
            if not depth:
                yield formula[found.start() : place + 1]
                break


def _parsed(text: str) -> ast.Call | None:
    """A call of a function that centres; None for all else."""
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    is_ours = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and bool(call.args)
    return call if is_ours and call.func.id in _CENTRED else None  # type: ignore[attr-defined,return-value]


def _inner(call: ast.Call) -> str:
    return ast.unparse(call.args[0])


def _options(call: ast.Call) -> dict[str, Any]:
    """Options of a call by name: `center` and `scale`, which `standardize` calls `rescale`."""
    assert isinstance(call.func, ast.Name)
    names = TRANSFORMS[call.func.id]
    given = dict(zip(names, call.args[1:], strict=False))
    given |= {each.arg: each.value for each in call.keywords if each.arg is not None}
    values = {name: ast.literal_eval(node) for name, node in given.items()}
    return {"scale" if name == "rescale" else name: value for name, value in values.items()}
