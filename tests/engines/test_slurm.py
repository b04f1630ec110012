"""The batch script that `quorate slurm` writes: its words, and a real Slurm that runs it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import quorate
from helpers import machines, slurm_machines
from helpers.machines import SHARED, Network
from helpers.paced import PacedModel
from helpers.ray_machines import ROOT, all_at_work, wait_for
from helpers.slurm_machines import finished, start_slurm, submit, warn
from quorate.cli import main

MODEL = f"{ROOT / 'tests/helpers/paced.py'}:model"


def written(*words):
    done = CliRunner().invoke(main, ["slurm", *words])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_script_is_one_that_bash_reads(tmp_path):
    words = ("sample", "my model.py:m", "it's.parquet", "--run-dir", "my run")
    script = written("--nodes", "3", "--partition", "long", "--name", "two words", "--", *words)
    subprocess.run(["/bin/bash", "-n"], input=script, text=True, check=True)
    assert "#SBATCH --nodes=3\n" in script
    assert "#SBATCH --partition=long\n" in script
    assert "--account" not in script
    assert "#SBATCH --job-name='two words'\n" in script
    assert f"export PATH={Path(sys.executable).parent}:" in script


# What stands before the command is replaced: there is no cluster to start Ray on.
STAND_IN = "head=10.0.0.1 port=6379 SLURM_JOB_ID=7\nquorate() { printf '%s\\n' \"$@\"; }\n"


def commanded(script, folder):
    """What the last lines of a script would run."""
    last = script[script.index("if [ -e ") :] if "if [ -e " in script else script[-200:]
    last = last[last.index("if [" if "if [" in last else "exec ") :].replace(
        "exec quorate", "quorate"
    )
    done = subprocess.run(
        ["/bin/bash", "-c", f"set -eu\n{STAND_IN}{last}"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


ON_RAY = ["--engine", "ray", "--ray-address", "10.0.0.1:6379"]


def test_a_run_has_the_folder_of_its_job_or_the_one_that_was_named(tmp_path):
    words = ("sample", "my model.py:m", "it's.parquet")
    assert commanded(written("--", *words), tmp_path) == [*words, "--run-dir", "runs/7", *ON_RAY]
    named = (*words, "--run-dir", "my run")
    assert commanded(written("--", *named), tmp_path) == [*named, *ON_RAY]


def test_a_job_that_resumes_has_the_limits_of_the_first(tmp_path):
    limits = ["--target-ess", "400", "--restarts", "9", "--no-check", "-o", "my draws.npz"]
    words = ("sample", "m.py:m", "rows.parquet", "--run-dir", "my run", "--draws", "50", *limits)
    (tmp_path / "my run").mkdir()
    (tmp_path / "my run" / "journal.sqlite").touch()
    both = commanded(written("--", *words), tmp_path)  # the stand-in of `quorate` returns
    resumed = both[: both.index("sample")]
    assert resumed[:2] == ["resume", "my run"]
    assert resumed[-len(ON_RAY) :] == ON_RAY
    flags = ["--target-ess", "400.0", "--restarts", "9", "--output", "my draws.npz", "--no-check"]
    assert sorted(resumed[2 : -len(ON_RAY)]) == sorted(flags)


def test_a_run_that_was_resumed_before_is_resumed_again(tmp_path):
    words = ("resume", "my run", "--draws", "2000")
    assert commanded(written("--", *words), tmp_path) == [*words, *ON_RAY]


# One that knows a node by an address, and one that runs a command here.
A_SLURM = """
scontrol() { if [[ $2 == node ]]; then echo "NodeName=$4 NodeAddr=$ADDRESS Port=1"; else
    seq --format=n%g "$SLURM_JOB_NUM_NODES"; fi; }
srun() { while [[ $1 == --* ]]; do shift; done; "$@"; }
"""


def head_of(script, n_nodes, address):
    """How the part of a script ends that finds the head, and what it finds."""
    part = script[script.index("mapfile") : script.index("port=")]
    given = f"SLURM_JOB_NUM_NODES={n_nodes} SLURM_JOB_NODELIST=n ADDRESS={address}"
    whole = f"set -euo pipefail\n{given}\n{A_SLURM}{part}\necho $head"
    return subprocess.run(["/bin/bash", "-c", whole], capture_output=True, text=True)


def test_the_head_is_not_known_by_loopback_where_others_join():
    script = written("--", "sample", "m.py:m", "rows.csv")
    assert head_of(script, 1, "127.0.1.1").stdout == "127.0.0.1\n"
    refused = head_of(script, 2, "127.0.1.1")
    assert refused.returncode == 1
    assert "n1 reaches 127.0.1.1 through 127.0.0.1 only" in refused.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--", "summary", "runs/1"], "'summary' cannot be submitted"),
        (["--", "sample", "m.py:m", "rows.csv", "--engine", "ray"], "Leave out --engine"),
        (["--", "sample", "m.py:m", "rows.csv", "--processes", "4"], "Leave out --processes 4"),
        (["--", "sample", "m.py:m", "rows.csv", "--wrokers", "2"], "No such option"),
        (["--nodes", "0", "--", "sample", "m.py:m", "rows.csv"], "nodes must be at least 1, not 0"),
    ],
)
def test_what_cannot_be_submitted(words, message):
    done = CliRunner().invoke(main, ["slurm", *words])
    assert done.exit_code == 2
    assert message in done.output


# ---------------------------------------------------------------- a real Slurm

why_not = machines.why_not() or slurm_machines.why_not()


@pytest.fixture
def cluster(tmp_path, seed):
    """Three machines with Slurm, and rows in the folder that they share."""
    rows = np.random.default_rng(seed).normal([1.0, -2.0], size=(400, 2))
    with Network(tmp_path) as network:
        nodes = [network.add() for _ in range(3)]
        table = pd.DataFrame(rows, columns=["a", "b"])
        table.to_parquet(tmp_path / "shared" / "rows.parquet")
        start_slurm(nodes, tmp_path / "shared")
        yield nodes


def job_of(*words):
    """The script for a command on three nodes."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    setup = (
        f'export PATH={Path(sys.executable).parent}:"$PATH"',
        f"export PYTHONPATH={path} RAY_TMPDIR=/mnt/own",
    )
    lines = [word for line in setup for word in ("--setup", line)]
    return written("--nodes", "3", "--cpus", "2", "--time", "00:10:00", *lines, "--", *words)


@pytest.mark.cluster
@pytest.mark.xdist_group("ray")
@pytest.mark.skipif(bool(why_not), reason=why_not)
def test_slurm_runs_the_script_stops_it_and_resumes(cluster, tmp_path):
    """A job gets the signal that its time is nearly over; submitted again, it resumes."""
    head, shared = cluster[0], tmp_path / "shared"
    options = {"workers": 4, "scheme": "cmc", "draws": 600, "sampler": "ellipse"}
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    script = job_of("sample", MODEL, "rows.parquet", *flags, "--run-dir", "run")
    (shared / "job.sh").write_text(script)
    first = submit(head, SHARED / "job.sh", SHARED)
    wait_for(shared / "run", all_at_work)
    warn(head, first)
    state, said = finished(head, first), (shared / f"slurm-{first}.out").read_text()
    print(said)  # noqa: T201
    assert "Ray runs on 10.77.0.1 10.77.0.2 10.77.0.3\n" in said
    assert state == "FAILED", said  # with exit code 3: it stopped early
    assert "interrupted" in said
    PacedModel.hurry(shared)
    second = submit(head, SHARED / "job.sh", SHARED)
    state, said = finished(head, second), (shared / f"slurm-{second}.out").read_text()
    print(said)  # noqa: T201
    assert state == "COMPLETED", said
    calm = quorate.sample(
        PacedModel(shared), str(shared / "rows.parquet"), run_dir=tmp_path / "calm",
        progress=False, **options,
    )  # fmt: skip
    np.testing.assert_array_equal(quorate.load(shared / "run").unconstrained, calm.unconstrained)
