"""Models with groups: rows stay together by group, and a cut that would tear groups is refused."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import norm

import quorate
from helpers.processes import MeanModel
from quorate.data.store import ShardSet
from quorate.errors import BadInputError
from quorate.journal import JournalReader
from quorate.models import design, logistic
from quorate.run.settings import Settings


class MeansOfGroups(MeanModel):
    """y = θ + z_g + noise, both of variance 1, with z integrated out: N(θ, 1 + 1/n) for a mean."""

    group_columns = "plane"

    def log_likelihood(self, x, shard):
        sizes = np.bincount(shard["group"])
        held = sizes > 0
        means = np.bincount(shard["group"], shard["y"])[held] / sizes[held]
        return float(norm.logpdf(means, x[0], np.sqrt(1 + 1 / sizes[held])).sum())


@pytest.fixture
def rows(rng):
    planes = rng.permutation(np.repeat([f"N{i}" for i in range(40)], 10))
    return {"plane": planes, "y": rng.standard_normal(400)}


def sample(model, data, **options):
    options = {"workers": 2, "draws": 100, "progress": False, "check": False, **options}
    return quorate.sample(model, data, **options)


def test_rows_stay_together_without_a_word(rows, tmp_path, seed):
    result = sample(MeansOfGroups(), rows, run_dir=tmp_path / "run", seed=seed)
    shards = ShardSet.open(tmp_path / "run/shards")
    assert shards.by == "group:plane"
    held = [set(shards.shard(number)["group"]) for number in (0, 1)]
    assert not held[0] & held[1]
    assert shards.labels("group").tolist() == sorted(set(rows["plane"]))
    with JournalReader(tmp_path / "run") as reader:
        kept = reader.configuration()["settings"]
    assert Settings.from_json(json.loads(json.dumps(kept))).cut == quorate.Cut("group:plane")
    assert quorate.resume(result.run_dir, draws=120, progress=False, check=False).n_draws == 120


def test_files_are_shards_if_they_tear_no_group(rows, tmp_path, seed):
    order = np.argsort(rows["plane"], kind="stable")
    first = np.searchsorted(rows["plane"][order], "N2")
    for whole, name in ((first, "whole"), (first + 1, "torn")):
        (tmp_path / name).mkdir()
        for number, part in enumerate((order[:whole], order[whole:])):
            table = pa.table({column: values[part] for column, values in rows.items()})
            pq.write_table(table, tmp_path / name / f"{number}.parquet")
    sample(MeansOfGroups(), tmp_path / "whole", by="files", run_dir=tmp_path / "run", seed=seed)
    assert ShardSet.open(tmp_path / "run/shards").by == "files:plane"
    with pytest.raises(BadInputError, match=r"Group 'N2' .*0\.parquet and in .*1\.parquet"):
        sample(MeansOfGroups(), tmp_path / "torn", by="files")


@pytest.mark.parametrize("by", ["shuffle", "stratify:plane", quorate.Cut("group:day")])
def test_cuts_that_tear_groups_are_refused_before_rows_are_read(by, tmp_path):
    with pytest.raises(BadInputError, match=r"rows of one group into several shards.*several stan"):
        sample(MeansOfGroups(), tmp_path / "nowhere.parquet", by=by)


def test_other_models_are_shuffled_or_cut_as_they_say():
    for by, kept in ((None, "shuffle"), ("group:plane", "group:plane")):
        assert Settings(by=by).for_model(MeanModel()).as_json()["by"] == kept
    assert Settings().as_json()["by"] == "shuffle"


def test_formulas_give_the_draws_of_arrays_made_by_hand(rng, tmp_path, seed):
    """The same rows in the same shards, however they were made: the same draws, bit for bit."""
    plane, hour = np.repeat(np.arange(20), 15), rng.uniform(-1, 1, 300)
    late = rng.random(300) < 1 / (1 + np.exp(-hour - rng.normal(size=20)[plane]))
    planes = np.array([f"N{i:02d}" for i in range(20)])[plane]
    table = {"late": late, "hour": hour, "plane": planes}
    learned = design("late ~ hour + (1 + hour | plane)", table)
    in_parts = logistic(learned.names, groups=learned.levels)
    by_formula = [
        sample(logistic(learned), table, run_dir=tmp_path / "formula", seed=seed),
        sample(in_parts, table, by=learned.cut(), run_dir=tmp_path / "parts", seed=seed),
    ]
    columns = np.column_stack([np.ones(300), hour])
    rows = {"X": columns, "y": late.astype(float), "Z": columns, "plane": planes}
    names = ("Intercept", "hour")
    model = logistic(names, groups="plane", varying=names)
    by_hand = sample(model, rows, run_dir=tmp_path / "hand", seed=seed)
    for result in by_formula:
        assert result.variables.keys() == by_hand.variables.keys()
        np.testing.assert_array_equal(result.unconstrained, by_hand.unconstrained)
