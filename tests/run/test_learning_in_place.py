"""Formulas on rows in place: the encoding of the whole, learned by workers."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import quorate
from quorate.cli import main
from quorate.data.placed import PlacedShards
from quorate.errors import BadInputError, WorkerFailedError
from quorate.models import design, regression

FORMULA = "y ~ scale(x) + origin + C(month)"


@pytest.fixture
def table(rng):
    """Sorted by origin, so that no file has all of its levels."""
    n = 300
    origin = np.sort(np.array(["EWR", "JFK", "LGA"])[rng.integers(0, 3, n)])
    columns = {"x": rng.normal(5, 2, n), "origin": origin, "month": np.tile([1, 2, 3], n // 3)}
    return pa.table({**columns, "y": rng.normal(size=n) + columns["x"], "unread": origin})


def files_of(table, folder, n_files=3):
    folder.mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(table)), n_files)):
        pq.write_table(table.take(part), folder / f"{number}.parquet")
    return str(folder)


def test_the_encoding_is_that_of_the_whole_table(table, tmp_path):
    learned = quorate.design_in_place(FORMULA, files_of(table, tmp_path / "lake"))
    whole = design(FORMULA, table)
    assert (learned.names, learned.categories) == (whole.names, whole.categories)
    for name, expected in whole.arrays(table).items():
        np.testing.assert_allclose(learned.arrays(table)[name], expected, rtol=1e-12, atol=1e-12)


def test_no_row_is_told(table, tmp_path, monkeypatch):
    """All that comes back: counts, levels, the ends of ranges, and moments."""
    told = []
    monkeypatch.setattr(
        "quorate.models.formulas.learning.Learner.take", lambda self, each: told.append(each)
    )
    with pytest.raises(BadInputError):  # nothing was taken in
        quorate.design_in_place(FORMULA, files_of(table, tmp_path / "lake"))
    assert [each["n_rows"] for each in told] == [100, 100, 100]
    assert all(len(json.dumps(each)) < 400 for each in told)


def test_missing_values_are_counted_over_all_files(table, tmp_path):
    holes = pa.array([None if i % 50 == 7 else v for i, v in enumerate(table["x"].to_pylist())])
    lake = files_of(table.set_column(0, "x", holes), tmp_path / "lake")
    with pytest.raises(BadInputError, match="6 of 300 rows are incomplete: column `x`"):
        quorate.design_in_place(FORMULA, lake)
    learned = quorate.design_in_place(FORMULA, lake, na="drop")
    assert learned.n_dropped == 6
    options = {"workers": 3, "draws": 100, "progress": False, "run_dir": tmp_path / "run"}
    quorate.sample(regression(learned), lake, by="in-place", check=False, **options)
    assert sum(PlacedShards.open(tmp_path / "run" / "shards").n_rows) == 294


def test_an_unknown_column_is_named(table, tmp_path):
    with pytest.raises(WorkerFailedError, match="No column named `z`"):
        quorate.design_in_place("y ~ z", files_of(table, tmp_path / "lake"))


def test_the_command_line_reads_in_place(table, tmp_path, seed):
    lake, run = files_of(table, tmp_path / "lake"), tmp_path / "run"
    words = ["sample", lake, "--formula", FORMULA, "--by", "in-place", "--workers", "3"]
    words += ["--scratch", str(tmp_path / "scratch")]
    words += ["--draws", "100", "--seed", str(seed), "--run-dir", str(run)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (run / "shards").iterdir()) == ["in-place.json"]
    assert "scale(x)" in done.output
    assert PlacedShards.open(run / "shards").scratch == str(tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []
    refused = CliRunner().invoke(main, [*words[:-1], str(tmp_path / "2"), "--method", "merge"])
    assert refused.exit_code != 0
    assert "in-place-random" in refused.output
