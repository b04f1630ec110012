"""How a result shows in a notebook: small HTML that needs nothing else."""

from collections.abc import Mapping, Sequence
from html import escape

_MOST_ROWS = 30
_CELL = "text-align:right;padding:0 0.6em"


def page(story: Sequence[str], rows: Mapping[str, Mapping[str, float]]) -> str:
    """What happened, sentence by sentence, and a table of the parameters."""
    told = "".join(f"<li>{escape(sentence)}</li>" for sentence in story)
    return f"<div><ul>{told}</ul>{_table(rows)}</div>"


def _table(rows: Mapping[str, Mapping[str, float]]) -> str:
    if not rows:
        return ""
    columns = next(iter(rows.values()))
    head = "".join(f'<th style="{_CELL}">{escape(column)}</th>' for column in columns)
    shown = list(rows.items())[:_MOST_ROWS]
    body = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        + "".join(f'<td style="{_CELL}">{number(c, value)}</td>' for c, value in row.items())
        + "</tr>"
        for name, row in shown
    )
    more = f"<p>… and {len(rows) - len(shown)} more: see <code>summary()</code></p>"
    table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"
    return table + (more if len(rows) > len(shown) else "")


def number(column: str, value: float) -> str:
    """Effective draws are counted; all else has four digits that matter."""
    return f"{value:.0f}" if column == "ess" else f"{value:.4g}"
