"""A scheme from an installed package works everywhere, without a change in quorate."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import quorate

EXAMPLE = Path(__file__).parents[2] / "examples" / "backup_scheme"
pytestmark = pytest.mark.xdist_group("outside_scheme")


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """Runs Python, or the command line, where the package is installed."""
    site = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(site), str(EXAMPLE)], check=True)
    sources = str(Path(quorate.__file__).parents[1])
    path = os.pathsep.join([str(site), sources])
    environment = {**os.environ, "PYTHONPATH": path}

    def run(*words):
        found = subprocess.run(
            [sys.executable, *words], env=environment, capture_output=True, text=True, check=False
        )
        assert found.returncode == 0, found.stderr
        return found.stdout

    return run


def cli(outside, *words):
    return outside("-c", "from quorate.cli import main; main()", *words)


def test_it_conforms(outside, seed):
    outside(
        "-c",
        "from backup_scheme import Backup; from quorate.testing import check_scheme; "
        f"[check_scheme(Backup(redundancy=r), k, {seed}) for k in (4, 5) for r in (1, 2, 3)]",
    )


def test_it_is_simulated(outside):
    words = ["simulate", "--scheme", "backup", "--workers", "6", "--redundancy", "2", "--json"]
    found = json.loads(cli(outside, *words, "--realisations", "5", "--draws", "30"))
    assert found["scheme"] == "backup"
    assert found["redundancy"] == 2
    assert 0 < found["median"] < np.inf


def test_it_is_planned_with_its_own_times(outside):
    words = ["plan", "--latency", "pareto:0.1,1.2", "--workers", "6", "--redundancy", "2"]
    more = ["--scheme", "cmc,backup,adaptive", "--draws", "60", "--realisations", "20", "--json"]
    options = json.loads(cli(outside, *words, *more))["options"]
    times = {option["scheme"]: option["median"] for option in options}
    assert set(times) == {"cmc", "backup", "adaptive"}
    assert len(set(times.values())) == 3
    assert times["adaptive"] < times["cmc"]


def test_its_curve_is_drawn(outside, tmp_path):
    words = ["reproduce", "fig3", "--scheme", "cmc", "--scheme", "backup", "--realisations", "2"]
    cli(outside, *words, "--out", str(tmp_path))
    curves = (tmp_path / "curves.csv").read_text()
    assert "backup,2" in curves
    assert (tmp_path / "figure.png").stat().st_size > 0


SCRIPT = """
import os, signal, sys
import numpy as np, quorate
from quorate.models import logistic
rng = np.random.default_rng({seed})
X = np.column_stack([np.ones(400), rng.normal(size=400)])
y = (rng.random(400) < 0.4).astype(float)
killed = []
def kill(progress):
    if progress.draws > 20 and not killed:
        killed.append(progress.workers[1].pid)
        os.kill(killed[0], signal.SIGKILL)
result = quorate.sample(logistic(["one", "x"]), {{"X": X, "y": y}}, workers=4, scheme="backup",
                        draws=3000, sampler="ellipse", run_dir=sys.argv[1], progress=kill)
assert killed and result.stopped == "done", result
assert any(note.worker == 1 for _, note in result.timeline.notes)
resumed = quorate.resume(sys.argv[1], draws=3200, progress=False)
assert (resumed.scheme, resumed.n_draws) == ("backup", 3200)
print(result)
"""


def test_it_samples_with_a_killed_worker_and_is_reported(outside, tmp_path, seed):
    run = str(tmp_path / "run")
    assert "3000 draws by backup" in outside("-c", SCRIPT.format(seed=seed), run)
    cli(outside, "report", run)
    assert "backup" in (tmp_path / "run" / "report.html").read_text()
