"""Groups: codes in every shard, what they stand for, groups within groups, and torn groups."""

import json
from datetime import date, datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from quorate import BadInputError, Cut
from quorate.data import files as table_files
from quorate.data import tables
from quorate.data.store import ShardSet
from quorate.data.write import write_shards

SIZES = [40, 30, 20, 10, 3]
N = sum(SIZES)
DAYS = [date(2013, 1, 1), date(2013, 2, 1), date(2014, 1, 1), date(2015, 1, 1), date(2016, 1, 1)]
VALUES = {
    "text": np.array(["N1", "N22", "N3", "a longer one", "Ñ4"]),
    "objects": np.array(["N1", "N22", "N3", "a longer one", "Ñ4"], object),
    "whole numbers": np.array([-3, 0, 7, 8, 2**40]),
    "small numbers": np.array([1, 2, 3, 4, 250], np.uint8),
    "days": np.array(DAYS, "M8[D]"),
    "seconds": np.array(DAYS, "M8[s]"),
    "dates": np.array(DAYS, object),
    "times": np.array([datetime(d.year, d.month, d.day, 5) for d in DAYS], object),
    "truths": np.array([False, True]),
}


@pytest.fixture
def which(rng):
    """The group of every row."""
    return rng.permutation(np.repeat(np.arange(5), SIZES))


def rows_of(shards, *names):
    """Arrays of all shards, one after the other."""
    each = [shards.shard(number) for number in range(shards.n_shards)]
    return [np.concatenate([shard[name] for shard in each]) for name in names]


@pytest.mark.parametrize("kind", VALUES)
def test_codes_are_places_in_the_sorted_values(kind, which, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BATCH_BYTES", 300)
    values = VALUES[kind]
    which = which % len(values)
    data = {"g": values[which], "i": np.arange(N)}
    shards = write_shards(data, 2, tmp_path / "s", by="group:g")
    group, i = rows_of(shards, "group", "i")
    assert group.dtype == np.int64
    np.testing.assert_array_equal(group, which[i])
    labels = ShardSet.open(shards.folder).labels("group")
    assert labels.dtype.kind in "UiubM"
    assert labels.tolist() == values.tolist()


@pytest.mark.parametrize(
    ("kind", "is_stored"),
    [("text", False), ("days", False), ("dates", False), ("whole numbers", True), ("truths", True)],
)
def test_numbers_that_define_groups_are_stored_too(kind, is_stored, which, tmp_path):
    data = {"g": VALUES[kind][which % len(VALUES[kind])], "i": np.arange(N)}
    for chosen in (None, ["i", "g"]):
        shards = write_shards(data, 2, tmp_path / str(chosen), by="group:g", columns=chosen)
        assert set(shards.names) == {"i", "group"} | ({"g"} if is_stored else set())
    alone = write_shards({"g": data["g"]}, 2, tmp_path / "alone", by="group:g")
    assert set(alone.names) == {"group"} | ({"g"} if is_stored else set())


def test_the_source_does_not_matter(which, tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "BATCH_BYTES", 300)
    data = {"g": VALUES["text"][which], "d": VALUES["days"][which[::-1]], "i": np.arange(N)}
    table = pa.table({"g": data["g"], "d": pa.array(data["d"]), "i": data["i"]})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=20)
    pa.csv.write_csv(table, tmp_path / "rows.csv")
    frame = pd.DataFrame({**data, "d": np.array(DAYS, object)[which[::-1]]})
    sources = [table, pl.from_arrow(table), frame, frame.astype({"g": "category"})]
    sources += [tmp_path / "rows.parquet", tmp_path / "rows.csv"]
    for columns in ("g", "d", "g/d", "d/g"):
        by, name = f"group:{columns}", columns.replace("/", "-")
        reference = write_shards(data, 3, tmp_path / name, by=by, columns=["i"])
        for number, source in enumerate(sources):
            shards = write_shards(source, 3, tmp_path / f"{name} {number}", by=by, columns=["i"])
            assert shards.fingerprints == reference.fingerprints
            assert shards.label_digests == reference.label_digests


def test_groups_within_groups(which, tmp_path, rng, monkeypatch):
    """The second level has the code of the pair: county 1 of Ohio is not county 1 of Iowa."""
    monkeypatch.setattr(tables, "BATCH_BYTES", 300)
    county = rng.integers(3, 7, N)
    data = {"state": VALUES["text"][which], "county": county, "i": np.arange(N)}
    shards = write_shards(data, 3, tmp_path / "s", by="group:state/county")
    assert set(shards.names) == {"county", "i", "group", "inner"}
    group, inner, i = rows_of(shards, "group", "inner", "i")
    pairs = sorted(set(zip(data["state"].tolist(), county.tolist(), strict=True)))
    labels = shards.labels("inner")
    assert labels.tolist() == pairs
    assert labels.dtype.names == ("state", "county")
    np.testing.assert_array_equal(labels["state"][inner], data["state"][i])
    np.testing.assert_array_equal(labels["county"][inner], county[i])
    np.testing.assert_array_equal(shards.labels("group")[group], data["state"][i])
    alone = write_shards(data, 3, tmp_path / "alone", by="group:state")
    assert alone.n_rows == shards.n_rows


def test_a_column_whose_name_has_a_slash(which, tmp_path):
    shards = write_shards({"a/b": which, "a": which % 2}, 2, tmp_path / "s", by="group:a/b")
    assert shards.labels("group").tolist() == [0, 1, 2, 3, 4]


def test_codes_replace_a_group_column_of_their_own_name(which, tmp_path):
    shards = write_shards({"group": 10 * which}, 2, tmp_path / "s", by="group:group")
    (group,) = rows_of(shards, "group")
    assert set(group) == set(range(5))
    assert shards.labels("group").tolist() == [0, 10, 20, 30, 40]


@pytest.mark.parametrize(
    ("more", "options", "message"),
    [
        ({"group": np.ones(N)}, {}, "have a column `group`, .*codes of the groups of `g`. Rename"),
        ({"inner": np.ones(N), "h": np.ones(N)}, {"by": "group:g/h"}, "a column `inner`"),
        ({}, {"transform": lambda b: {"group": b["g"]}}, "transform returned an array `group`"),
        ({"h": np.ones(N)}, {"by": "group:g/h/g"}, "nest in two levels, not 3"),
        ({}, {"by": "group:g/g"}, "names one column twice"),
        ({}, {"by": "group:g/h"}, "No column named `h`"),
        ({"h": [None, 1] * 51 + [2]}, {"by": "group:g/h"}, "`h`, which .* missing in 51 rows"),
        ({"h": ["x" * 300] * N}, {"by": "group:h"}, "text of 300 characters.*up to 200"),
        ({"h": np.arange(N).astype("m8[s]")}, {"by": "group:h"}, "`h`, .* lengths of time. Make"),
        ({"h": [b"x", 1j] * 51 + [2]}, {"by": "group:h"}, "cannot be compared"),
    ],
)
def test_what_is_refused(more, options, message, which, tmp_path):
    more = {
        name: np.array(values, object) if isinstance(values, list) else values
        for name, values in more.items()
    }
    with pytest.raises(BadInputError, match=message):
        write_shards({"g": which, **more}, 2, tmp_path / "s", **({"by": "group:g"} | options))
    assert list(tmp_path.iterdir()) == []


def test_names_of_codes_are_free_where_nobody_needs_them(which, tmp_path):
    data = {"g": which, "group": np.arange(N), "inner": np.arange(N)}
    assert "group" in write_shards(data, 2, tmp_path / "s").names
    left_out = write_shards(data, 2, tmp_path / "t", by="group:g", columns=["g", "inner"])
    (inner, group) = rows_of(left_out, "inner", "group")
    np.testing.assert_array_equal(group, which[inner])


# Files as shards


def put(folder, *groups):
    for number, values in enumerate(groups):
        table = pa.table({"g": values, "h": [1] * len(values), "i": list(range(len(values)))})
        pq.write_table(table, folder / f"{number}.parquet")
    return folder / "*.parquet"


def test_files_whose_groups_are_whole(tmp_path):
    files = put(tmp_path, ["b", "a", "b"], ["d", "c"])
    for by in ("files:g", "files:g/h"):
        shards = write_shards(files, 2, tmp_path / by.replace("/", "-"), by=by)
        assert shards.shard(0)["group"].tolist() == [1, 0, 1]
        assert shards.shard(1)["group"].tolist() == [3, 2]
        assert shards.labels("group").tolist() == list("abcd")


def test_a_group_in_two_files_is_named(tmp_path):
    files = put(tmp_path, ["b", "a"], ["c"], ["d", "a"])
    message = r"Group 'a' of column `g` has rows in .*0\.parquet and in .*2\.parquet.*by='group:g'"
    with pytest.raises(BadInputError, match=message):
        write_shards(files, 3, tmp_path / "s", by="files:g")
    assert write_shards(files, 3, tmp_path / "s", by="files", columns="i").n_rows == (2, 1, 2)


# On disk


def test_shards_of_before_open_and_have_no_labels(tmp_path):
    shards = write_shards({"x": np.arange(4.0)}, 2, tmp_path / "s")
    kept = json.loads((tmp_path / "s/manifest.json").read_text())
    assert "labels" not in kept  # as before
    with pytest.raises(BadInputError, match="have no labels of `group`"):
        ShardSet.open(shards.folder).labels("group")


def test_changed_labels_are_refused(which, tmp_path):
    shards = write_shards({"g": which}, 2, tmp_path / "s", by="group:g")
    again = write_shards({"g": which}, 2, tmp_path / "s", by="group:g")
    assert again == shards
    with pytest.raises(BadInputError, match="holds another data set"):
        write_shards(
            {"g": 2 * which, "group": which}, 2, tmp_path / "s", by="group:g", columns=["g"]
        )
    np.save(tmp_path / "s/labels-group.npy", np.arange(5)[::-1])
    for read in (lambda: shards.labels("group"), shards.verify):
        with pytest.raises(BadInputError, match=r"labels-group\.npy has changed since"):
            read()
    (tmp_path / "s/labels-group.npy").write_bytes(b"")
    with pytest.raises(BadInputError, match=r"labels-group\.npy has changed since"):
        shards.labels("group")
    np.save(tmp_path / "s/labels-group.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(BadInputError, match=r"labels-group\.npy has changed since"):
        shards.labels("group")
    (tmp_path / "s/labels-group.npy").unlink()
    with pytest.raises(BadInputError, match=r"labels-group\.npy cannot be read \(.*put it back"):
        shards.labels("group")


# The cut that a model needs


@pytest.mark.parametrize(
    ("by", "groups", "chosen"),
    [
        (None, "", "shuffle"),
        ("stratify:x", "", "stratify:x"),
        (None, "g", "group:g"),
        (None, "a/b", "group:a/b"),
        ("group:g", "g", "group:g"),
        ("files", "g", "files:g"),
        ("files:g", "g", "files:g"),
    ],
)
def test_settled_cuts(by, groups, chosen):
    cut = Cut(by, columns=["x"]).settled(groups)
    assert (cut.by, cut.columns) == (chosen, ["x"])


@pytest.mark.parametrize("by", ["shuffle", "stratify:g", "group:h", "group:g/h", "files:h"])
def test_cuts_that_tear_groups(by):
    with pytest.raises(BadInputError, match=f"by='{by}' would put rows of one group.*by='group:g'"):
        Cut(by).settled("g")


def test_ids_of_a_csv_file_keep_their_zeros(tmp_path):
    """`007` and `7` are two groups. If no id has a zero in front, ids are numbers."""
    ids = ["007", "7", "010", "-3", "0"]
    (tmp_path / "padded.csv").write_text("g,i\n" + "".join(f"{g},{i}\n" for i, g in enumerate(ids)))
    shards = write_shards(tmp_path / "padded.csv", 2, tmp_path / "padded", by="group:g")
    assert shards.labels("group").tolist() == sorted(ids)
    numbers = [12, 7, 10, -3, 0]
    (tmp_path / "plain.csv").write_text("g,i\n" + "".join(f"{g},1\n" for g in numbers))
    shards = write_shards(tmp_path / "plain.csv", 2, tmp_path / "plain", by="group:g")
    assert shards.labels("group").tolist() == sorted(numbers)
    pq.write_table(pa.table({"g": ["12", "7"]}), tmp_path / "text.parquet")
    shards = write_shards(tmp_path / "text.parquet", 2, tmp_path / "text", by="group:g")
    assert shards.labels("group").tolist() == ["12", "7"]


def test_a_csv_file_whose_later_rows_do_not_fit_the_first(tmp_path):
    """pyarrow infers types from the first megabyte: here ids and x are whole numbers there."""
    n = 200_000
    rows = [f"{i % 500},{i % 7},1\n" for i in range(n)]
    rows += ["N250,0.5,2\n", "N251,2,3\n"]
    (tmp_path / "late.csv").write_text("g,x,i\n" + "".join(rows))
    shards = write_shards(tmp_path / "late.csv", 2, tmp_path / "late", by="group:g")
    assert {"N250", "N251", "0", "499"} < set(shards.labels("group").tolist())
    x, i = rows_of(shards, "x", "i")
    assert sorted(x[i > 1]) == [0.5, 2.0]
    assert len(x) == n + 2


def test_csv_files_whose_ids_have_different_types(tmp_path):
    (tmp_path / "a.csv").write_text("g,i\n1,1\n2,2\n")
    (tmp_path / "b.csv").write_text("g,i\nN1,3\n2,4\n")
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    shards = write_shards(files, 2, tmp_path / "s", by="group:g")
    assert shards.labels("group").tolist() == ["1", "2", "N1"]


def test_cuts_that_are_no_text(tmp_path):
    with pytest.raises(BadInputError, match="by cannot be 3"):
        Cut(3)
    table = {"x": np.arange(9), "g": np.arange(9)}
    cut = Cut("shuffle", transform=dict)
    with pytest.raises(BadInputError, match=r"by cannot be a Cut.*: cut.write\(data") as info:
        write_shards(table, 2, tmp_path / "s", by=cut)
    assert len(str(info.value)) < 200
