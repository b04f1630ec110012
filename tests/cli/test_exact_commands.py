"""Commands that read an exact run: summary, check, plan; and what its progress says."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from helpers import journals
from quorate.cli import main


def quorate(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def heard():
    return []


@pytest.fixture(scope="module")
def result(tmp_path_factory, heard):
    return journals.exact_run(tmp_path_factory.mktemp("exact") / "run", heard.append)


def test_summary_prints_it_again(result):
    answer = quorate("summary", result.run_dir)
    assert answer.exit_code == 0, answer.output
    for words in ("one", "sigma", "r_hat", "200 exact draws by adaptive on 3 workers"):
        assert words in answer.output


def test_check_gives_the_same_verdict(result):
    answer = quorate("check", result.run_dir, "--processes", 1)
    assert answer.exit_code == 0, answer.output
    assert f"Verdict: {result.verdict}" in answer.output


def test_check_of_a_run_without_draws_says_so(result, tmp_path):
    run = journals.killed(Path(result.run_dir), tmp_path / "run", 4)
    shutil.copytree(Path(result.run_dir) / "shards", run / "shards")
    shutil.copy(Path(result.run_dir) / "model.pkl", run)
    answer = quorate("check", run, "--processes", 1)
    assert answer.exit_code == 3
    assert "not checked: 0 draws are too few for a check" in answer.output


def test_a_plan_from_it_is_for_exact_runs(result):
    answer = quorate("plan", "--from", result.run_dir, "--scheme", "cmc,adaptive")
    assert answer.exit_code == 0
    assert "--method exact" in answer.output
    refused = quorate("plan", "--from", result.run_dir, "--method", "merge")
    assert refused.exit_code == 2
    assert "--method" in refused.output


def test_update_adds_rows_of_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=120)})
    table["y"] = 2 * table["x"] + rng.normal(size=120)
    table[:80].to_parquet("old.parquet")
    table[80:].to_parquet("new.parquet")
    quick = ("--draws", 40, "--no-check", "--processes", 1)
    model = ("--formula", "y ~ x", "--family", "linear", "--workers", 2, "--run-dir", "old")
    assert quorate("sample", "old.parquet", *model, *quick).exit_code == 0
    answer = quorate("update", "old", "new.parquet", "--shards", 2, *quick, "-o", "draws.csv")
    assert answer.exit_code == 0, answer.output
    assert "40 exact draws by adaptive on 4 workers" in answer.output
    assert len(pd.read_csv("draws.csv")) == 40
    (run,) = Path("runs").iterdir()
    assert run.name.endswith("-new")
    assert "4 workers" in quorate("summary", run).output
    again = quorate("update", "old", "old.parquet", "--run-dir", run)
    assert again.exit_code == 2
    assert "holds another data set" in again.output
