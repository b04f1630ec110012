"""The sdist has what its tests need, and the wheel has what users need."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "docs", "examples", "benchmarks", "recipe")
QUICK = ("tests/numerics/test_streams.py", "tests/docs/test_links.py")


def files(root, *folders):
    """All files below some folders that are no traces of running Python."""
    return {
        str(path.relative_to(root))
        for folder in folders
        for path in (root / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and ".egg-info" not in str(path)
    }


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_sdist_has_every_file_of(folder, unpacked):
    assert files(unpacked, folder) == files(ROOT, folder)


def test_the_sdist_has_what_the_folders_are_used_with(unpacked):
    for name in ("Makefile", "constraints.txt", "LICENSE", "CITATION.cff", "SECURITY.md"):
        assert (unpacked / name).read_text() == (ROOT / name).read_text()


def test_tests_pass_in_the_sdist(unpacked):
    environment = {**os.environ, "PYTHONPATH": str(unpacked / "src")}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *QUICK]
    done = subprocess.run(
        command, cwd=unpacked, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_the_wheel_is_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        entry_points = archive.read(f"{wheel.name.rsplit('-', 3)[0]}.dist-info/entry_points.txt")
    assert names == files(ROOT / "src", "quorate")
    assert "quorate/py.typed" in names
    assert b"quorate = quorate.cli:main" in entry_points
