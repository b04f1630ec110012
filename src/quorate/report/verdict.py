"""Section of a report about the verdict of the check."""

from collections.abc import Mapping
from typing import Any

from quorate.results.html import (
    Html,
    bullet_list,
    code,
    element,
    joined,
    note,
    number,
    scrolling,
    table,
)

_CLASSES = {"good": "good", "usable": "usable", "do not trust": "bad"}
_SHOWN = 100  # parameters
_NAMES = {"ess": "ESS", "r_hat": "R-hat", "p_value": "p-value"}


def section(verdict: dict[str, Any] | str | None, folder: str, kind: str = "merged") -> Html:
    """The verdict and its advice; or how to get one. `kind` says what the draws are."""
    if verdict is None:
        return note("The draws were not checked. Run ", code(f"quorate check {folder}"), ".")
    if isinstance(verdict, str):
        return note("The verdict cannot be read: ", verdict, ". Run quorate check again.")
    word = str(verdict.get("verdict", "unknown"))
    badge = element("strong", word, class_=f"badge {_CLASSES.get(word, 'usable')}")
    facts = []
    if verdict.get("k_hat") is not None:
        facts.append(f"Pareto k̂ {number(verdict['k_hat'], 2)}")
    if verdict.get("importance_ess") is not None:
        ess = number(verdict["importance_ess"], 3)
        facts.append(f"effective sample size of the importance weights {ess}")
    first = element("p", badge, " ", "; ".join(facts))
    advice = verdict.get("advice")
    return joined(
        [
            first,
            element("p", _sentence(str(advice))) if advice else "",
            *(element("p", _sentence(f"Remark: {said}")) for said in verdict.get("remarks") or ()),
            _corrected(verdict.get("raw"), verdict.get("corrected"), kind),
            _shards(verdict.get("shards")),
        ]
    )


def _corrected(raw: object, corrected: object, kind: str) -> Html:
    """Summaries of the draws and of the points of the check, side by side."""
    if not isinstance(raw, Mapping) or not isinstance(corrected, Mapping):
        return Html()
    shared = [name for name in raw if name in corrected][:_SHOWN]
    measures = list(dict.fromkeys(key for name in shared for key in _fields(raw[name])))
    head = ["parameter", *(f"{m}, {of}" for m in measures for of in (kind, "corrected"))]
    rows = [
        [name, *(_value(_fields(f[name]).get(m, "")) for m in measures for f in (raw, corrected))]
        for name in shared
    ]
    if not rows:
        return Html()
    summary = element("summary", f"{kind.capitalize()} and corrected draws, side by side")
    return element("details", summary, scrolling(table(head, rows)))


def _shards(shards: object) -> Html:
    if not isinstance(shards, list) or not shards:
        return Html()
    if not all(isinstance(shard, Mapping) for shard in shards):
        return bullet_list(_value(shard) for shard in shards)
    told = dict.fromkeys(key for shard in shards for key in shard if _says_something(shard[key]))
    columns = [column for column in told if column != "shard"]
    rows = [
        [f"shard {shard.get('shard', i)}", *(_value(shard.get(c, "")) for c in columns)]
        for i, shard in enumerate(shards)
    ]
    grid = table(["", *(_NAMES.get(c, c) for c in columns)], rows)
    return joined([element("h3", "Shards"), scrolling(grid)])


def _says_something(value: object) -> bool:
    """Whether a value is worth a column: exact runs have no draws of shards to count."""
    return bool(value) or value is False


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}".rstrip(".") + "."


def _fields(row: object) -> Mapping[str, Any]:
    return row if isinstance(row, Mapping) else {"value": row}


def _value(value: object) -> str:
    """A value of JSON as the text of a cell."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_value(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else number(value, 3)
