"""Tables of the command line: names fold in narrow terminals; numbers are never shortened."""

from collections.abc import Iterable, Sequence
from math import isnan

from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from quorate.cli.console import out
from quorate.results.html import without_middle

_SHORTEST, _LONGEST = 12, 60  # characters of a name: on a line at least, and in all
_BORDERS = 3  # characters around a cell
_BOUNDLESS = 10_000
_UNKNOWN = "–: too few draws to tell, or all draws are equal"


def table_of(
    names: Sequence[str],
    numbers: Sequence[str],
    rows: Iterable[tuple[Sequence[str], Sequence[str]]],
) -> Table:
    """A table with columns of names, and of numbers to their right.

    Parameters
    ----------
    names, numbers
        Headings of the columns.
    rows
        Names and numbers of each row. Control characters in names are replaced, as in the report.
    """
    table = Table()
    cells = [(*map(_name, of), *map(Text, values)) for of, values in rows]
    for i, heading in enumerate([*names, *numbers]):
        longest = max((row[i].cell_len for row in cells), default=0)
        if i < len(names):
            least = min(longest, _SHORTEST)
            table.add_column(_name(heading), overflow="fold", min_width=least)
        else:
            least = max(longest, len(heading))
            table.add_column(Text(heading), justify="right", no_wrap=True, min_width=least)
    for row in cells:
        table.add_row(*row)
    return table


def show(table: Table) -> None:
    """Print a table; one that is wider than the terminal goes on in its next lines, uncut.

    In files and pipes nothing folds, so that names can be searched for.
    """
    least = sum((column.min_width or 0) + _BORDERS for column in table.columns) + 1
    if not out.is_terminal:
        boundless = out.options.update(max_width=_BOUNDLESS)
        table.width = Measurement.get(out, boundless, table).maximum
    elif least > out.width:
        table.width = least
    out.print(table, crop=False)


def summary_table(rows: Iterable[tuple[str, dict[str, float]]]) -> Table:
    """A table with a row for each scalar and a column for each statistic."""
    rows = list(rows)
    columns = list(rows[0][1]) if rows else []
    lines = (([name], [_shown(column, row[column]) for column in columns]) for name, row in rows)
    table = table_of(["parameter"], columns, lines)
    if any(isnan(row[column]) for _, row in rows for column in columns):
        table.caption, table.caption_justify = _UNKNOWN, "left"
    return table


def _shown(column: str, value: float) -> str:
    if isnan(value):
        return "–"
    return f"{value:.0f}" if column == "ess" else f"{value:.3f}"


def _name(name: str) -> Text:
    """A name on one line, without the middle if it is very long."""
    return Text(without_middle(name, _LONGEST))
