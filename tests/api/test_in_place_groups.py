"""Rows in place of models with groups: whole groups at one place, and the same parameters."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quorate
from quorate.errors import BadInputError
from quorate.models import regression

WORKERS = 3
ONE = quorate.Processes(1)  # libraries that read formulas and files are imported once
FORMULAS = ["y ~ x + (1 | county)", "y ~ x + (1 | state/county)"]


@pytest.fixture
def table(rng):
    """Counties of three states; counties of a state have names of their own."""
    county = np.repeat(np.arange(12), 20)
    effects = rng.normal(size=12)
    x = rng.normal(size=240)
    y = 0.5 * x + effects[county] + rng.normal(size=240)
    names = np.array([f"c{i:02d}" for i in range(12)])[county]
    return {"x": x, "y": y, "county": names, "state": np.array(["A", "B", "C"])[county // 4]}


def files_of(table, folder, parts):
    """A file for each part, which lists rows."""
    folder.mkdir()
    for number, part in enumerate(parts):
        rows = pa.table({name: values[part] for name, values in table.items()})
        pq.write_table(rows, folder / f"{number}.parquet", row_group_size=37)
    return str(folder)


def fit(formula, data, folder, by, seed):
    learned = quorate.design_in_place(formula, data, workers=WORKERS, engine=ONE)
    options = {"workers": WORKERS, "engine": ONE, "draws": 200, "progress": False, "check": False}
    return quorate.sample(regression(learned), data, by=by, run_dir=folder, seed=seed, **options)


@pytest.mark.parametrize("formula", FORMULAS)
def test_draws_and_local_parameters_are_those_of_files(formula, table, tmp_path, seed):
    data = files_of(table, tmp_path / "lake", np.split(np.arange(240), [80, 160]))
    found = fit(formula, data, tmp_path / "in-place", "in-place", seed)
    expected = fit(formula, data, tmp_path / "files", "files", seed)
    np.testing.assert_array_equal(found.unconstrained, expected.unconstrained)
    one, other = (each.local.summary() for each in (found, expected))
    assert one.equals(other)
    again = quorate.resume(tmp_path / "in-place", draws=250, progress=False, check=False)
    assert again.n_draws == 250


def test_groups_have_their_own_names_in_any_order_of_files(table, tmp_path, seed):
    parts = [np.flatnonzero(table["state"] == state) for state in "BCA"]
    data = files_of(table, tmp_path / "lake", parts)
    found = fit(FORMULAS[0], data, tmp_path / "in-place", "in-place", seed).local.summary()
    expected = fit(FORMULAS[0], data, tmp_path / "files", "files", seed).local.summary()
    assert sorted(found.index) == sorted(expected.index)
    gaps = (found["mean"] - expected["mean"].reindex(found.index)) / expected["sd"]
    assert np.abs(gaps).max() < 1  # where names are mixed up, they are many sds apart


def test_sites_have_whole_groups(table, tmp_path, seed):
    files_of(table, tmp_path / "data", np.split(np.arange(240), [80, 160]))
    sites = {name: tmp_path / "data" / f"{i}.parquet" for i, name in enumerate("XYZ")}
    found = fit(FORMULAS[0], sites, tmp_path / "sites", "in-place", seed)
    assert len(found.local.summary()) == 12


def test_a_group_in_two_files_is_an_error(table, tmp_path, seed):
    data = files_of(table, tmp_path / "lake", np.split(np.arange(240), [90, 160]))
    with pytest.raises(BadInputError, match=r"Group 'c04' has rows in .*0\.parquet and .*1\.parqu"):
        fit(FORMULAS[0], data, tmp_path / "run", "in-place", seed)
