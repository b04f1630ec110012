"""How a result shows in a notebook: small HTML that needs no style sheet and no script."""

from collections.abc import Mapping, Sequence

from quorate.results.html import Html, bullet_list, code, count, element, joined, number, table

_MOST_ROWS = 30


def page(story: Sequence[str], rows: Mapping[str, Mapping[str, float]]) -> str:
    """What happened, sentence by sentence, and a table of the parameters."""
    return element("div", bullet_list(story), _table(rows))


def _table(rows: Mapping[str, Mapping[str, float]]) -> Html:
    if not rows:
        return Html()
    columns = next(iter(rows.values()))
    shown = list(rows.items())[:_MOST_ROWS]
    lines = [[name, *(_cell(*entry) for entry in row.items())] for name, row in shown]
    grid = table(["", *columns], lines, style="text-align:right")
    n_more = len(rows) - len(shown)
    more = element("p", f"… and {n_more} more: see ", code("summary()")) if n_more else ""
    return joined([grid, more])


def _cell(column: str, value: float) -> str:
    return count(value) if column == "ess" else number(value)
