"""`quorate.load`, `quorate export` and `quorate sample -o`: runs as files, without their model."""

import os
import pickle

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner

import quorate
from helpers.journals import configuration
from quorate.cli import main
from quorate.errors import BadInputError
from quorate.journal import Journal, Started
from quorate.models import Simplex, design, from_functions, linear
from quorate.run.kept_model import NAME

QUICK = {"workers": 2, "draws": 200, "progress": False}


class Trap:
    """Unpickling it leaves a trace."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(8)
    frame = pd.DataFrame({"x": rng.normal(size=400), "kind": rng.choice(["a", "b", "c"], 400)})
    frame["y"] = 2 * frame["x"] + (frame["kind"] == "b") + rng.normal(size=400)
    return frame


def sampled(table, folder, seed=0, **options):
    learned = design("y ~ x + kind", table)
    return quorate.sample(
        linear(learned), table, by=learned.cut(), run_dir=folder, seed=seed, **QUICK, **options
    )


@pytest.fixture(scope="module")
def fitted(table, tmp_path_factory):
    return sampled(table, tmp_path_factory.mktemp("run") / "one")


def cli(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)), catch_exceptions=False)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "exact"},
        {"method": "merge", "sampler": "ellipse"},
        {"method": "merge", "sampler": "ellipse", "scheme": "coded", "redundancy": 1},
    ],
)
def test_a_finished_run_is_what_it_was_and_its_model_is_not_executed(table, options, tmp_path):
    run, trace = tmp_path / "run", tmp_path / "executed"
    result = sampled(table, run, **options)
    (run / NAME).write_bytes(pickle.dumps(Trap(trace)))
    loaded = quorate.load(run)
    assert not trace.exists()
    for group in ("posterior", "sample_stats"):
        ours, theirs = (tree[group].to_dataset() for tree in (loaded.posterior, result.posterior))
        xr.testing.assert_identical(
            *(d.drop_vars("release_time", errors="ignore") for d in (ours, theirs))
        )
    pd.testing.assert_frame_equal(loaded.summary(), result.summary())
    assert loaded.verdict.as_json() == result.verdict.as_json()
    assert (loaded.stopped, loaded.method, loaded.n_chains) == (
        "done",
        result.method,
        result.n_chains,
    )
    assert repr(loaded).partition(" in ")[0] == repr(result).partition(" in ")[0]
    assert loaded.blocks_of_workers() == result.blocks_of_workers()
    assert loaded.plot(["x"]) is not None
    pickle.loads((run / NAME).read_bytes())  # the control
    assert trace.is_dir()


def test_draws_of_a_merge_are_loaded_on_scales_that_only_the_model_knows(tmp_path):
    model = from_functions(_log_prior, _log_likelihood, {"shares": Simplex(3)})
    rows = {"y": np.random.default_rng(4).choice(3, size=300)}
    options = {"method": "merge", "sampler": "ellipse", "check": False} | QUICK
    result = quorate.sample(model, rows, run_dir=tmp_path / "run", **options)
    loaded = quorate.load(tmp_path / "run")
    ours, theirs = (one.posterior["posterior"]["shares"] for one in (loaded, result))
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_allclose(ours.sum(ours.dims[-1]), 1)
    np.testing.assert_array_equal(loaded.laid_out, result.laid_out)


def _log_prior(p):
    return 0.0


def _log_likelihood(p, shard):
    return np.log(p["shares"])[shard["y"]].sum()


def test_what_needs_the_model_is_refused(fitted, table):
    loaded = quorate.load(fitted.run_dir)
    for use in (lambda: loaded.local, lambda: loaded.predict(table)):
        with pytest.raises(BadInputError, match=r"without its model.*quorate\.resume"):
            use()


def test_a_run_under_way_tells_its_draws_on_the_natural_scale(table, tmp_path):
    run, learned = tmp_path / "run", design("y ~ x + kind", table)
    options = {"method": "merge", "sampler": "ellipse", "every": 0.0} | QUICK
    growing = quorate.stream(linear(learned), table, by=learned.cut(), run_dir=run, **options)
    first = next(growing)
    loaded = quorate.load(run)
    assert loaded.stopped == "running"
    assert loaded.n_draws >= first.n_draws > 0
    sigma = loaded.posterior["posterior"]["sigma"]
    assert float(sigma.min()) > 0
    assert set(loaded.posterior["posterior"]) == set(first.posterior["posterior"])
    *_, last = growing
    assert "sigma" in quorate.load(run).posterior["posterior"]
    assert quorate.load(run).n_draws == last.n_draws


def test_a_run_without_draws(tmp_path):
    with Journal.create(tmp_path, configuration()) as journal:
        journal.append([Started(0.0)])
    loaded = quorate.load(tmp_path)
    assert loaded.n_draws == 0
    assert loaded.summary_rows() == {}
    assert loaded.posterior["posterior"].sizes["draw"] == 0
    answer = cli("export", tmp_path, "-o", tmp_path / "x.csv")
    assert answer.exit_code == 2
    assert "has no draws yet" in answer.stderr


def test_axes_that_cannot_be(tmp_path):
    with Journal.create(tmp_path, configuration() | {"axes": {"dims": 3}}) as journal:
        journal.append([Started(0.0)])
    with pytest.raises(BadInputError, match="does not describe the variables"):
        quorate.load(tmp_path)


# ---------------------------------------------------------------- files


def read(path):
    if path.suffix == ".csv":
        return pd.read_csv(path)
    return pd.read_parquet(path)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_of_draws(fitted, suffix, tmp_path):
    path = tmp_path / f"draws{suffix}"
    answer = cli("export", fitted.run_dir, "-o", path)
    assert answer.exit_code == 0
    assert str(path) in answer.stderr.replace("\n", "")
    frame = read(path)
    assert list(frame) == ["chain", "draw", "Intercept", "x", "kind[b]", "kind[c]", "sigma"]
    rows = fitted.chain_rows
    np.testing.assert_array_equal(frame["chain"], np.repeat(np.arange(len(rows)), rows.shape[1]))
    np.testing.assert_allclose(frame["kind[c]"], fitted.variables["kind[T.c]"][rows.ravel()])


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_a_tree_of_draws(fitted, suffix, tmp_path):
    pytest.importorskip("zarr" if suffix == ".zarr" else "h5netcdf")
    path = tmp_path / f"draws{suffix}"
    for _ in range(2):  # the second time it is replaced
        fitted.export(path)
    engine = {".nc": "h5netcdf", ".zarr": "zarr"}[suffix]
    with xr.open_datatree(path, engine=engine) as again:
        xr.testing.assert_equal(again.load(), fitted.posterior)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("command", ["export", "sample"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("draws.txt", "must end in .nc, .zarr, .parquet or .csv"),
        ("nowhere/draws.nc", "does not exist"),
        ("folder.zarr", "no Zarr store"),
    ],
)
def test_files_that_cannot_be_written_are_refused_first(command, name, message, tmp_path):
    (tmp_path / "folder.zarr").mkdir()
    (tmp_path / "folder.zarr" / "precious").touch()
    data = [tmp_path / "x.csv"] if command == "sample" else []
    answer = cli(command, tmp_path / "no_such_thing", *data, "-o", tmp_path / name)
    assert answer.exit_code == 2
    assert message in answer.stderr.replace("\n", " ")
    assert (tmp_path / "folder.zarr" / "precious").exists()


def test_sample_writes_a_file(table, tmp_path):
    path, rows = tmp_path / "draws.csv", tmp_path / "table.csv"
    table.to_csv(rows)
    options = ["--workers", 2, "--draws", 100, "--run-dir", tmp_path / "run", "--no-check"]
    answer = cli("sample", rows, "--formula", "y ~ x", "-o", path, *options)
    assert answer.exit_code == 0
    written = read(path)
    np.testing.assert_allclose(
        written["x"], quorate.load(tmp_path / "run").posterior["posterior/x"].to_numpy().ravel()
    )
    resumed = cli("resume", tmp_path / "run", "--draws", 150, "-o", path, "--no-check")
    assert resumed.exit_code == 0
    assert len(read(path)) > len(written)
