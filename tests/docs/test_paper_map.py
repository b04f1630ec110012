"""The paper map names things that exist, and leaves no equation out."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| (.+?) \| `(\S+)` \| `(\S+?)::(\S+)` \|$", (ROOT / "docs/paper-map.md").read_text(), re.M
)


def find(path):
    """The object with a dotted path below `quorate`, in the longest module that can be imported."""
    parts = ["quorate", *path.split(".")]
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return found
    raise AssertionError(path)


def test_nothing_is_left_out():
    named = " ".join(row[0] for row in ROWS)
    for equation in range(1, 15):
        assert f"({equation}) " in named
    for box in ("Algorithm 1", "Algorithm 2", "Algorithm 3", "Fig. 3", "Fig. 4"):
        assert box in named


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_functions_and_tests_exist(row):
    _, function, file, test = row
    assert callable(find(function))
    assert f"def {test}(" in (ROOT / "tests" / file).read_text()
