"""The wheel and the sdist of this tree, built by hatchling as `python -m build` would."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def built(kind: str, source: Path, target: Path) -> Path:
    """Build a distribution. hatchling reads the working directory, so it gets its own process."""
    script = f"from hatchling.build import build_{kind}; print(build_{kind}({str(target)!r}))"
    made = subprocess.run(
        [sys.executable, "-c", script], cwd=source, check=True, capture_output=True, text=True
    )
    return target / made.stdout.split()[-1]


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of this tree, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built("sdist", ROOT, folder)) as archive:
        archive.extractall(folder, filter="data")
    return next(path for path in folder.iterdir() if path.is_dir())


@pytest.fixture(scope="session")
def wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built from the sdist."""
    return built("wheel", unpacked, tmp_path_factory.mktemp("wheel"))
