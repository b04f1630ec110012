"""`quorate local`: tables, files, and one line for every mistake."""

import sys

import cloudpickle
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner

import quorate
from helpers import one_way
from quorate.cli import main


@pytest.fixture(scope="module")
def result(tmp_path_factory, seed):
    cloudpickle.register_pickle_by_value(sys.modules[one_way.__name__])
    data = one_way.table(one_way.rows(np.random.default_rng([seed, 61])))
    options = {"workers": 2, "draws": 128, "check": False, "progress": False}
    run = tmp_path_factory.mktemp("local") / "run"
    return quorate.sample(one_way.OneWay(), data, run_dir=run, **options)


def local(result, *arguments):
    return CliRunner().invoke(main, ["local", result.run_dir, *arguments], catch_exceptions=False)


def test_groups_that_stand_out_are_shown(result):
    told = local(result)
    assert told.exit_code == 0
    summary = result.local.summary()
    ratios = (summary["mean"].abs() / summary["sd"]).sort_values(ascending=False)
    rows = [line.split("│")[1:3] for line in told.stdout.splitlines() if "Intercept" in line]
    shown = [(group.strip(), parameter.strip()) for group, parameter in rows]
    assert len(shown) == 20
    assert shown == list(ratios.index[:20])
    assert "The 20 of 30" in told.stdout


def test_nothing_is_on_standard_error_but_what_is_wrong(result):
    assert local(result).stderr == ""
    assert local(result, "--level", "county").stderr.startswith("Error: No level")


def test_the_table_says_what_it_is_of(result):
    told = local(result, "--points", "50", "--interval", "0.5").stdout
    assert f"Averaged over 50 of {result.n_draws} draws of the run." in told
    assert "25%" in told
    summary = result.local.summary(points=50, interval=0.5)
    top = (summary["mean"].abs() / summary["sd"]).idxmax()
    (row,) = [line for line in told.splitlines() if f" {top[0]} " in line]
    assert [float(cell) for cell in row.split("│")[3:7]] == list(summary.loc[top].round(3))
    assert f"{result.n_draws} of {result.n_draws} draws" in local(result, "--points", "999").stdout


def test_a_file_has_the_interval_that_was_asked_for(result, tmp_path):
    path = tmp_path / "groups.csv"
    assert local(result, "--interval", "0.5", "-o", str(path)).exit_code == 0
    assert list(pd.read_csv(path).columns)[-2:] == ["25%", "75%"]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "nc"])
def test_summaries_go_to_files(suffix, result, tmp_path):
    path = tmp_path / f"groups.{suffix}"
    told = local(result, "-o", str(path), "--processes", "1")
    assert told.exit_code == 0
    assert str(path) in told.stderr
    summary = result.local.summary()
    if suffix == "nc":
        with xr.open_dataset(path) as found:
            np.testing.assert_array_equal(found["mean"].values.ravel(), summary["mean"])
            assert found.attrs["level"] == "plane"
        return
    found = pd.read_csv(path) if suffix == "csv" else pd.read_parquet(path)
    assert list(found.columns) == ["plane", "parameter", "mean", "sd", "3%", "97%"]
    np.testing.assert_allclose(found["sd"], summary["sd"])


@pytest.mark.parametrize("level", ["parameter", "mean", "3%"])
def test_a_level_may_have_the_name_of_a_column(level, tmp_path, rng):
    data = one_way.rows(rng)
    table = {
        level if name == "plane" else name: values for name, values in one_way.table(data).items()
    }
    options = {"workers": 2, "draws": 40, "check": False, "progress": False}
    result = quorate.sample(one_way.OneWay(level), table, run_dir=tmp_path / "run", **options)
    for suffix, read in (("csv", pd.read_csv), ("parquet", pd.read_parquet)):
        path = tmp_path / f"groups.{suffix}"
        assert local(result, "-o", str(path), "--processes", "1").exit_code == 0
        assert list(read(path).columns) == ["group", "parameter", "mean", "sd", "3%", "97%"]


def test_draws_go_to_netcdf(result, tmp_path):
    path = tmp_path / "draws.nc"
    assert local(result, "--groups", "N003,N005", "-o", str(path)).exit_code == 0
    draws = result.local.draws(["N003", "N005"])
    with xr.open_datatree(path) as found:
        assert set(found.children) == {"posterior"}
        xr.testing.assert_equal(found["posterior"].to_dataset().load(), draws)


def test_arviz_reads_the_draws(result, tmp_path):
    arviz = pytest.importorskip("arviz")
    path = tmp_path / "draws.nc"
    assert local(result, "--groups", "N003,N005", "-o", str(path)).exit_code == 0
    means = arviz.summary(arviz.from_netcdf(str(path)))["mean"]
    draws = result.local.draws(["N003", "N005"])["r_plane"].mean(["chain", "draw"])
    np.testing.assert_allclose(means, draws.values.ravel(), atol=1e-3)


@pytest.mark.parametrize(("suffix", "read"), [("csv", pd.read_csv), ("parquet", pd.read_parquet)])
def test_draws_go_to_tables(suffix, read, result, tmp_path):
    path = tmp_path / f"draws.{suffix}"
    assert local(result, "--groups", "N003,N005", "-o", str(path)).exit_code == 0
    found = read(path)
    assert list(found.columns) == ["level", "group", "parameter", "chain", "draw", "value"]
    assert set(found["level"]) == {"plane"}
    values = found.set_index(["chain", "draw", "group", "parameter"])["value"].to_xarray()
    expected = result.local.draws(["N003", "N005"])["r_plane"]
    np.testing.assert_allclose(values.transpose(*expected.dims), expected, rtol=1e-15)


def test_a_name_with_a_comma_is_quoted(result, tmp_path):
    told = local(result, "--groups", '"N003, Inc.", N005', "-o", str(tmp_path / "draws.nc"))
    assert "no group 'N003, Inc.'" in " ".join(told.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--groups", "N003"], "-o FILE.nc"),
        (["--groups", "", "-o", "draws.csv"], "Name at least one group"),
        (["--groups", "x", "-o", "draws.nc"], "plane has no group 'x'. The first ones are 'N000'"),
        (["-o", "groups.txt"], "must end in .nc, .parquet or .csv"),
        (["-o", "nowhere/groups.csv"], "does not exist"),
        (["--level", "county"], "The levels are plane"),
        (["--groups", "N003", "--points", "7", "-o", "draws.nc"], "for summaries"),
        (["--groups", "N003", "--interval", "0.5", "-o", "draws.nc"], "for summaries"),
        (["--interval", "94"], "interval must be between 0 and 1, not 94.0. Use 0.94"),
        (["--groups", "N003\nN005", "-o", "draws.nc"], "cannot be read as names"),
    ],
)
def test_mistakes_are_one_line(arguments, complaint, result):
    told = local(result, *arguments)
    assert told.exit_code == 2
    assert complaint in " ".join(told.stderr.split())
