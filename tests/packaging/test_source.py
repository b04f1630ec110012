"""The source stays readable: modules are short, and nothing is written twice."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "quorate"
MOST_LINES = 350  # of a module
MOST_SHARED = 9  # lines in a row that two places may share


def statements(path):
    """Lines of a module with their numbers, without imports and blank lines."""
    text = path.read_text()
    imports = (ast.Import, ast.ImportFrom)
    left_out = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, imports)
        for number in range(node.lineno, node.end_lineno + 1)
    }
    lines = enumerate(map(str.strip, text.splitlines()), start=1)
    return [(number, line) for number, line in lines if line and number not in left_out]


def written_twice(modules, n_lines):
    """Places at which the same lines begin, for all runs of so many lines that stand twice."""
    places = defaultdict(list)
    for path, lines in modules.items():
        for first in range(len(lines) - n_lines + 1):
            run = tuple(line for _, line in lines[first : first + n_lines])
            places[run].append(f"{path}:{lines[first][0]}")
    return [found for found in places.values() if len(found) > 1]


def test_no_module_is_long():
    lengths = {path: len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert len(lengths) > 100
    assert {path: n for path, n in lengths.items() if n > MOST_LINES} == {}


def test_no_two_places_share_ten_lines():
    modules = {path.relative_to(SOURCE): statements(path) for path in SOURCE.rglob("*.py")}
    assert written_twice(modules, MOST_SHARED + 1) == []
    assert written_twice(modules, 3)  # the control: a few lines are shared
