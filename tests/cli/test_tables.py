"""Tables of the command line: whatever the names are, all numbers are there."""

import io
from math import nan

import numpy as np
import pytest
from rich.console import Console

from quorate.cli import console, tables
from quorate.cli.tables import show, summary_table, table_of

NUMBERS = ["-12345.678", "0.123", "-0.001", "1.000"]
HEADINGS = ["mean", "sd", "3%", "97%"]


@pytest.fixture
def shown(monkeypatch):
    """A function that shows a table on a terminal of some width, and returns the lines."""

    def on_terminal(table, width, is_terminal=True):
        file = io.StringIO()
        terminal = Console(file=file, width=width, force_terminal=is_terminal, color_system=None)
        monkeypatch.setattr(tables, "out", terminal)
        show(table)
        return file.getvalue().splitlines()

    return on_terminal


def cells(lines, column):
    return [line.split("│")[column].strip() for line in lines if line.count("│") > 1]


@pytest.mark.parametrize("width", [30, 50, 80])
@pytest.mark.parametrize("name", ["x", "cor_s__Intercept__x", "many words " * 20, "L" * 200])
def test_numbers_are_never_shortened(name, width, shown):
    lines = shown(table_of(["group", "parameter"], HEADINGS, [([name, name], NUMBERS)]), width)
    first = next(line for line in lines if "12345" in line)
    assert [part.strip() for part in first.split("│")[3:-1]] == NUMBERS
    folded = "".join(cells(lines, 1)).replace(" ", "")
    start, _, end = folded.partition("…")
    whole = name.replace(" ", "")
    assert whole.startswith(start)
    assert whole.endswith(end)


def test_names_are_whole_in_a_pipe(shown):
    name = "cor_plane__Intercept__a_long_one"
    lines = shown(table_of(["parameter"], HEADINGS, [([name], NUMBERS)]), 40, is_terminal=False)
    assert len(lines) == 5
    assert f"│ {name} │ {NUMBERS[0]} │" in lines[3]


@pytest.mark.parametrize("name", ["\x1b[31mred", "two\nlines", "\u202ecba", "tab\tbed", "\u2066x"])
def test_names_move_no_cursor_and_turn_no_text(name, shown):
    lines = shown(table_of([name], HEADINGS, [([name], NUMBERS)]), 80)
    (row,) = [line for line in lines if "12345" in line]
    assert row.isprintable()


def test_markup_in_names_is_text(shown):
    assert "[bold]x[/bold]" in cells(shown(table_of(["g"], [], [(["[bold]x[/bold]"], [])]), 80), 1)


def test_what_is_not_known_is_a_dash_with_a_reason(shown):
    row = {"mean": 1.0, "ess": nan, "mcse": nan}
    lines = shown(summary_table([("a", row)]), 80)
    assert cells(lines, 3) == ["–"]
    assert not any("nan" in line for line in lines)
    assert "–: too few draws" in " ".join(lines)
    known = shown(summary_table([("a", dict.fromkeys(row, 1.0))]), 80)
    assert not any("–" in line for line in known)


def test_patience_that_was_not_needed_prints_nothing(monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=file))
    with console.Patience("waiting", seconds=100.0) as patience:
        patience.report(1, 2)
    assert file.getvalue() == ""


def test_infinite_numbers_are_told(shown):
    lines = shown(summary_table([("a", {"mean": np.inf})]), 80)
    assert cells(lines, 2) == ["inf"]
