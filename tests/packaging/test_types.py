"""The installed package is typed: mypy --strict passes good programs, and finds mistakes."""

import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "typed"


@pytest.fixture(scope="module")
def complaints(wheel, tmp_path_factory):
    """What mypy says of both programs where the wheel is installed: lines by file."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", symlinks=True)
    packages = next((folder / "venv").glob("lib/python*/site-packages"))
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))  # numpy and its like
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    python = folder / "venv" / "bin" / "python"
    programs = [str(FOLDER / name) for name in ("uses.py", "misuses.py")]
    options = ["--strict", "--config-file=", f"--cache-dir={folder / 'cache'}"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, f"--python-executable={python}", *programs],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = re.findall(r"^\S*?(\w+)\.py:(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    return {
        name: {int(line): text for file, line, text in found if file == name}
        for name in ("uses", "misuses")
    }


def test_a_program_that_uses_the_package_well_passes(complaints):
    assert complaints["uses"] == {}


def test_every_mistake_is_found(complaints):
    lines = (FOLDER / "misuses.py").read_text().splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if line.endswith("# wrong")]
    assert sorted(complaints["misuses"]) == wrong
