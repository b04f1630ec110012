"""`quorate sample` and `quorate summary`, on real files and processes."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from helpers.assertions import assert_known
from quorate.cli import main
from quorate.cli.sampling import _engine_with
from quorate.data.store import ShardSet
from quorate.journal import JournalReader

QUICK = ["--workers", "2", "--draws", "200", "--sampler", "ellipse"]
MODEL = """
from quorate.models import from_functions, Positive, Real
import numpy as np

def log_prior(p):
    return -p["mu"] ** 2 / 200 - p["sigma"]

def log_likelihood(p, shard):
    z = (shard["y"] - p["mu"]) / p["sigma"]
    return -0.5 * np.sum(z**2) - len(z) * np.log(p["sigma"])

def explode(p, shard):
    raise RuntimeError("boom")

parameters = {"mu": Real(), "sigma": Positive()}
model = from_functions(log_prior, log_likelihood, parameters)
broken = from_functions(log_prior, explode, parameters)
"""


@pytest.fixture(autouse=True)
def _path_of_our_own(monkeypatch):
    """Models of files add their folder to the path."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def quorate(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)), catch_exceptions=False)


@pytest.fixture
def table(tmp_path, rng):
    n = 600
    frame = pd.DataFrame({"x": rng.normal(size=n), "kind": rng.choice(["a", "b"], n)})
    frame["y"] = 2 * frame["x"] + (frame["kind"] == "b") + rng.normal(size=n)
    frame["same"] = 1.0
    path = tmp_path / "table.parquet"
    frame.to_parquet(path)
    return path


def test_formulas_with_priors_offsets_weights_and_a_family_by_another_name(table, tmp_path):
    run = tmp_path / "run"
    formula = "y | weights({x * 0 + 2}) ~ x + kind + offset(x)"
    done = quorate(
        *("sample", table, "--formula", formula, "--family", "gaussian", *QUICK, "--run-dir", run),
        *("--prior", "kind ~ normal(0, 0.001)", "--prior", "normal(0, 10)"),
    )
    assert done.exit_code == 0, done.output
    found = dict(
        line.split()[1:4:2]
        for line in quorate("summary", run).output.splitlines()
        if line.startswith("│")
    )
    assert abs(float(found["kind[T.b]"])) < 0.01  # held at 0 by its prior
    assert abs(float(found["x"]) - 1) < 0.5  # 2, of which the offset is 1


def test_rows_with_missing_values(table, tmp_path):
    frame = pd.read_parquet(table)
    frame.loc[[5, 9], "kind"] = None
    path = tmp_path / "holed.csv"
    frame.to_csv(path, index=False)
    command = ["sample", path, "--formula", "y ~ x + kind", *QUICK, "--run-dir", tmp_path / "run"]
    refused = quorate(*command)
    assert refused.exit_code == 2
    said = " ".join(refused.output.split())
    assert "2 of 600 rows are incomplete: column `kind` is missing in 2 rows" in said
    assert "the first being row 5. Drop these rows with na='drop' (--na drop" in said
    done = quorate(*command, "--na", "drop")
    assert done.exit_code == 0, done.output
    assert "Dropped: 2 of 600 rows" in done.output
    assert sum(ShardSet.open(tmp_path / "run" / "shards").n_rows) == 598


def test_priors_and_families_belong_to_formulas(program, table):
    done = quorate("sample", f"{program}:model", table, "--prior", "normal(0, 1)")
    assert done.exit_code == 2
    assert "belong to a --formula" in done.output


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(MODEL)
    return path


def test_a_formula_needs_no_code(table, tmp_path):
    run = tmp_path / "run"
    result = quorate("sample", "--formula", "y ~ x + kind", table, *QUICK, "--run-dir", run)
    assert result.exit_code == 0
    for name in ("Intercept", "x", "kind[T.b]", "sigma"):
        assert name in result.stdout
    again = quorate("summary", run)
    assert again.exit_code == 0
    assert "kind[T.b]" in again.stdout
    assert "Result: 200 draws by" in again.stdout
    with np.load(run / "draws.npz") as draws:
        assert draws["sigma"].shape == (200,)
        assert_known(draws["x"].mean(), 2.0, 1.2 * 600**-0.5)  # of the rows, and of 200 draws
        with pytest.raises(AssertionError):
            assert_known(draws["x"].mean(), 1.5, 1.2 * 600**-0.5)


@pytest.fixture
def flights(tmp_path, rng):
    """30 planes of 20 flights, as text in a CSV file."""
    plane = np.repeat(np.arange(30), 20)
    hour = rng.uniform(-1, 1, 600)
    late = rng.random(600) < 1 / (1 + np.exp(-hour - rng.normal(size=30)[plane]))
    frame = pd.DataFrame({"late": late.astype(int), "hour": hour, "plane": plane})
    frame["plane"] = [f"N{i}" for i in plane]
    frame.sample(frac=1, random_state=1).to_csv(tmp_path / "flights.csv", index=False)
    return tmp_path / "flights.csv"


def test_a_formula_with_bars_is_cut_by_group(flights, tmp_path):
    formula, run = "late ~ hour + (1 + hour | plane)", tmp_path / "run"
    arguments = ["--family", "logistic", "--workers", "2", "--draws", "100", "--run-dir", run]
    result = quorate("sample", "--formula", formula, flights, *arguments)
    assert result.exit_code == 0
    for name in ("sd_plane__Intercept", "sd_plane__hour", "cor_plane__Intercept__hour"):
        assert name in result.stdout
    shards = ShardSet.open(run / "shards")
    assert shards.by == "group:plane"
    assert shards.names == ("X", "y", "Z", "group")
    assert shards.labels("group").tolist() == sorted(f"N{i}" for i in range(30))
    with JournalReader(run) as reader:
        assert reader.configuration()["settings"]["by"] == "group:plane"
        assert reader.configuration()["made_by"]["formula"] == formula


def test_a_formula_with_bars_is_never_shuffled(flights, tmp_path):
    arguments = ["sample", "--formula", "late ~ hour + (1 | plane)", flights, *QUICK]
    result = quorate(*arguments, "--by", "shuffle")
    assert result.exit_code == 2
    assert "would put rows of one group into several shards" in " ".join(result.stderr.split())


def test_python_in_a_formula_runs_only_where_it_is_allowed(table, tmp_path):
    """And never when the run is resumed: rows were encoded when it began."""
    run, mark = tmp_path / "run", tmp_path / "mark"
    formula = f"y ~ {{x + __import__('os').system('touch {mark}')}}"
    arguments = ["sample", "--formula", formula, table, *QUICK, "--run-dir", run]
    refused = quorate(*arguments)
    assert refused.exit_code == 2
    assert "--allow-python" in refused.stderr.replace("\n", " ")
    assert not mark.exists()
    assert quorate(*arguments, "--allow-python").exit_code == 0
    assert mark.exists()
    with JournalReader(run) as reader:
        made_by = reader.configuration()["made_by"]
    assert (made_by["formula"], made_by["allow_python"]) == (formula, True)
    mark.unlink()
    assert quorate("resume", run, "--draws", "300").exit_code == 0
    assert not mark.exists()


def test_a_model_from_a_file(program, table):
    result = quorate("sample", f"{program}:model", table, *QUICK, "--scheme", "cmc")
    assert result.exit_code == 2  # the table has a column of strings
    assert "kind" in result.stderr


def test_a_model_from_a_file_and_numbers(program, tmp_path, rng):
    path = tmp_path / "numbers.csv"
    pd.DataFrame({"y": rng.normal(3.0, 2.0, size=500)}).to_csv(path, index=False)
    result = quorate("sample", f"{program}:model", path, *QUICK)
    assert result.exit_code == 0
    assert "mu" in result.stdout


def test_a_model_that_raises_is_told_with_its_shard(program, tmp_path, rng):
    path = tmp_path / "numbers.csv"
    pd.DataFrame({"y": rng.normal(size=50)}).to_csv(path, index=False)
    result = quorate("sample", f"{program}:broken", path, *QUICK)
    assert result.exit_code == 4  # after a few tries
    assert "boom" in result.stderr
    assert "shard" in result.stderr


def test_a_run_that_is_stopped_early_says_so_and_can_be_gone_on_with(table, tmp_path):
    run = tmp_path / "run"
    arguments = ["--workers", "2", "--scheme", "cmc", "--sampler", "ellipse", "--draws", "300"]
    arguments += ["--processes", "1", "--dead", "1@3", "--restarts", "0", "--run-dir", run]
    result = quorate("sample", "--formula", "y ~ x", table, *arguments)
    assert result.exit_code == 3
    assert "No living worker holds shard" in result.stderr
    assert f"quorate resume {run}" in result.stderr.replace("\n", "")
    assert "workers lost" in result.stdout
    result = quorate("resume", run, "--json")
    assert result.exit_code == 0
    assert "300 draws" in result.stdout
    lines = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    assert lines[-1]["draws"] == 300


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--formula", "y ~ nothing"], "nothing"),
        (["--formula", "y ~ same"], "same"),
        (["--formula", "kind ~ x"], "kind"),
        (["--formula", "y ~ x", "--family", "magic"], "family"),
        (["--formula", "y ~ x", "--workers", "601"], "601"),
        (["--formula", "y ~ x", "--straggle", "slow"], "not a valid float"),
        (["--formula", "y ~ x", "--scheme", "coded", "--precision", "estimated"], "ridge"),
    ],
)
def test_mistakes_are_one_line(arguments, message, table):
    result = quorate("sample", table, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_run_without_a_draw_has_failed(table):
    arguments = ["--formula", "y ~ x", "--workers", "2", "--max-time", "0.001"]
    result = quorate("sample", table, *arguments)
    assert result.exit_code == 4
    assert "No draws: time is up" in result.stderr


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [("1 +", "x", "SyntaxError"), ("model = 7", "model", "no dim"), ("", "model", "no 'model'")],
)
def test_files_that_hold_no_model(content, name, message, tmp_path, table):
    (tmp_path / "json.py").write_text(content)  # not to be taken for the library of that name
    result = quorate("sample", f"{tmp_path / 'json.py'}:{name}", table, "--columns", "x", *QUICK)
    assert result.exit_code == 2
    assert message in result.stderr


def test_columns_leave_others_out(program, table):
    result = quorate("sample", f"{program}:model", table, *QUICK, "--columns", "y")
    assert result.exit_code == 0


def test_a_folder_without_a_run(tmp_path):
    result = quorate("summary", tmp_path)
    assert result.exit_code == 2
    assert "no finished run" in result.stderr


def test_a_run_is_kept_in_the_current_directory(program, table):
    result = quorate("sample", f"{program}:model", table, *QUICK, "--columns", "y")
    assert result.exit_code == 0, result.output
    (folder,) = Path("runs").iterdir()
    assert folder.name.endswith(table.stem)
    assert (folder / "journal.sqlite").exists()
    assert f"Written: {folder}" in result.stderr


def test_a_run_that_cannot_begin_leaves_no_folder(program, table):
    result = quorate("sample", f"{program}:model", table, *QUICK, "--workers", "0")
    assert result.exit_code == 2
    assert not Path("runs").exists() or not list(Path("runs").iterdir())


@pytest.mark.parametrize(
    ("options", "engine"),
    [
        (["processes"], "process"),
        (["restarts"], "process"),
        (["address"], "ray"),
        (["actors", "restarts"], "ray"),
        (["actors", "processes"], "process"),
    ],
)
def test_options_of_an_engine_imply_it(options, engine):
    assert _engine_with(options) == engine
