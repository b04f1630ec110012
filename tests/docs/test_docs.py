"""Every code block of the READMEs, CONTRIBUTING.md and docs/ runs, or says why it does not."""

import os
import sys
from pathlib import Path

import click
import pytest
import yaml

import quorate
from helpers.doc_pages import run_page

ROOT = Path(__file__).parents[2]
PATTERNS = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "examples/*/README.md")
PAGES = sorted(str(page.relative_to(ROOT)) for each in PATTERNS for page in ROOT.glob(each))


@pytest.fixture(autouse=True)
def _a_fresh_folder(tmp_path, monkeypatch):
    """A folder to run a page in, where `quorate` is the one under test."""
    folder = tmp_path / "reader"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(Path(quorate.__file__).parents[1]))


@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_a_page(page):
    run_page(ROOT / page)


@pytest.fixture
def write(tmp_path):
    """Writes a page from its parts."""

    def written(*parts):
        page = tmp_path / "page.md"
        page.write_text("\n".join(parts))
        return page

    return written


def fenced(language, *lines):
    return "\n".join([f"```{language}", *lines, "```", ""])


NOT_RUN = "<!-- not run: for a test -->\n"


def test_blocks_run_in_order_and_share_what_they_make(write):
    page = write(
        "<!-- setup:\nfrom pathlib import Path\nn = 1\n-->\n",
        fenced("python", "# twice.py", "n += 1"),
        NOT_RUN + fenced("python", "n += 1"),
        fenced("sh", "cp twice.py again.py", "export there=again.py", "cat $there"),
        fenced("console", "$ wc -l \\", "  again.py", "2 …", "$ cat again.py", "# twice.py", "…1"),
        fenced("python", ">>> n, len(list(Path().iterdir()))", "(2, 2)"),
    )
    run_page(page)


def test_the_quorate_of_a_page_is_the_one_under_test(write):
    where = "$ python -c 'import quorate; print(quorate.__file__)'"
    script = str(Path(sys.executable).with_name("quorate"))
    run_page(write(fenced("console", where, quorate.__file__, "$ which quorate", script)))


BROKEN = {
    "python": (fenced("python", "1 / 0"), ZeroDivisionError, "zero"),
    "session": (fenced("python", ">>> 1 + 1", "3"), AssertionError, "Expected:\n *3"),
    "shell": (fenced("sh", "false", "true"), AssertionError, "exit code 1"),
    "quorate": (fenced("sh", "quorate summary nowhere"), AssertionError, "exit code 2"),
    "console": (fenced("console", "$ echo one", "two"), AssertionError, "printed:\none"),
    "no prompt": (fenced("console", "false"), AssertionError, "before what is typed"),
    "yaml": (fenced("yaml", "[1, 2"), yaml.YAMLError, "expected"),
    "no language": (fenced("", "what?"), AssertionError, "no language known"),
    "setup": ("<!-- setup:\n1 / 0\n-->\n", ZeroDivisionError, "zero"),
    "no reason": ("<!-- not run: -->\n" + fenced("python", "1 / 0"), ZeroDivisionError, "zero"),
    "not right above": (
        NOT_RUN + "It is.\n" + fenced("python", "1 / 0"),
        ZeroDivisionError,
        "zero",
    ),
    "python not run": (NOT_RUN + fenced("python", "1 +"), SyntaxError, "page.md, line 3"),
    "shell not run": (NOT_RUN + fenced("sh", "if true"), AssertionError, "syntax error"),
    "option not run": (
        NOT_RUN + fenced("sh", "quorate \\", "  watch late --prot 1"),
        click.NoSuchOption,
        "prot",
    ),
    "command not run": (NOT_RUN + fenced("console", "$ quorate wach late"), KeyError, "wach"),
    "prose": ("See `quorate plan --form late`.", click.NoSuchOption, "form"),
}


@pytest.mark.parametrize(("part", "error", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_page_fails(write, part, error, message):
    with pytest.raises(error, match=message):
        run_page(write(part))
