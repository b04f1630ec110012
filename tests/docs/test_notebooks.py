"""Every notebook runs from its first cell to its last, and says nothing on standard error."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import quorate

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def executed(notebook, folder):
    """The cells of a notebook after nbconvert has run it in a folder of its own."""
    copy = folder / notebook.name
    copy.write_bytes(notebook.read_bytes())
    sources = str(Path(quorate.__file__).parents[1])
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "nbconvert",
            "--to",
            "notebook",
            "--execute",
            "--inplace",
            copy.name,
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": sources},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(copy.read_text())["cells"]


def outputs(cells):
    return [output for cell in cells for output in cell.get("outputs", [])]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook, tmp_path):
    made = outputs(executed(notebook, tmp_path))
    assert [output for output in made if output.get("name") == "stderr"] == []
    shown = [output["data"]["text/plain"] for output in made if "data" in output]
    assert any("verdict: good" in "".join(lines) for lines in shown)


def test_a_notebook_that_fails_is_noticed(tmp_path):
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "source": "1 / 0"}
    broken = {"cells": [{**cell, "execution_count": None}], "metadata": {}, "nbformat": 4}
    page = tmp_path / "broken.ipynb"
    page.write_text(json.dumps({**broken, "nbformat_minor": 5}))
    (tmp_path / "run").mkdir()
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        executed(page, tmp_path / "run")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_name_no_folder_of_a_machine(notebook):
    stored = json.dumps(outputs(json.loads(notebook.read_text())["cells"]))
    assert "site-packages" not in stored
    assert str(Path.home()) not in stored
