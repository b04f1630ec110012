"""Further shards beside those that are there: rows, order, labels, and what does not fit."""

import os
import shutil

import numpy as np
import pandas as pd
import pytest

from quorate.data.append import append_shards
from quorate.data.cut import Cut
from quorate.data.order import rows_of_data
from quorate.data.store import ShardSet
from quorate.data.write import write_shards
from quorate.errors import BadInputError


def table(n, groups="abcdef", start=0):
    return {
        "x": np.arange(start, start + n, dtype=float),
        "g": np.resize(list(groups), n),
        "pair": np.resize([1, 2, 3], n),
    }


def appended(tmp_path, old, new, n_new=None, *, columns=None, **cut):
    made = Cut(columns=columns, **cut)
    first = write_shards(
        old, 2, tmp_path / "old", seed=3, by=made.chosen, columns=columns, na=made.na
    )
    whole = append_shards(first, new, n_new, tmp_path / "new", made, 3)
    whole.verify()
    return first, whole


@pytest.mark.parametrize("by", ["shuffle", "stratify:pair", "group:g", "group:g/pair"])
def test_rows_and_their_order(by, tmp_path):
    columns = ["x", "pair"] if by != "shuffle" else ["x"]
    old, new = table(30), table(20, "uvwxyz", start=30)
    first, whole = appended(tmp_path, old, new, 3, by=by, columns=columns)
    assert whole.n_shards == 5
    assert whole.fingerprints[:2] == first.fingerprints
    all_rows = np.concatenate([old["x"], new["x"]])
    for number, rows in enumerate(rows_of_data(whole)):
        np.testing.assert_array_equal(whole.shard(number)["x"], all_rows[rows])


def test_codes_of_new_groups_follow_those_of_old_ones(tmp_path):
    old, new = table(30, "bdf"), table(20, ["a", "a longer name"], start=30)
    _, whole = appended(tmp_path, old, new, by="group:g", columns=["x"])
    labels, by_row = whole.labels("group"), np.concatenate([old["g"], new["g"]])
    assert labels.tolist() == ["b", "d", "f", "a", "a longer name"]
    for number in range(whole.n_shards):
        shard = whole.shard(number)
        np.testing.assert_array_equal(labels[shard["group"]], by_row[shard["x"].astype(int)])


def test_shards_are_added_again(tmp_path):
    _, whole = appended(tmp_path, table(30), table(12, "gh"), by="group:g", columns=["x"])
    third = append_shards(
        whole, table(10, "ij"), 1, tmp_path / "third", Cut("group:g", columns=["x"]), 0
    )
    third.verify()
    assert third.n_shards == whole.n_shards + 1
    assert third.labels("group").tolist() == list("abcdefghij")


@pytest.mark.parametrize(("n_rows", "n_new"), [(3, 1), (15, 1), (45, 3)])
def test_new_shards_are_about_as_large_as_old_ones(n_rows, n_new, tmp_path):
    _, whole = appended(tmp_path, table(30), table(n_rows, start=30), columns=["x"])
    assert whole.n_shards == 2 + n_new


def test_there_are_no_more_new_shards_than_groups(tmp_path):
    old, new = table(30), table(90, "xy", start=30)
    _, whole = appended(tmp_path, old, new, by="group:g", columns=["x"])
    assert whole.n_shards == 4


def test_files_become_shards_and_arrays_are_shuffled(tmp_path):
    for number in range(4):
        frame = pd.DataFrame({"x": np.arange(number * 10.0, number * 10 + 10)})
        frame.to_parquet(tmp_path / f"{number}.parquet")
    files = [tmp_path / f"{number}.parquet" for number in range(4)]
    first, whole = appended(tmp_path, files[:2], files[2:], by="files")
    assert whole.shard(3)["x"][0] == 30.0
    more = append_shards(first, {"x": np.zeros(4)}, None, tmp_path / "more", Cut("files"), 0)
    assert more.n_rows == (10, 10, 4)
    np.testing.assert_array_equal(np.concatenate(rows_of_data(more)), np.arange(24))


def test_incomplete_rows_are_dropped_on_request(tmp_path):
    new = table(20, start=30)
    new["x"][::2] = np.nan
    _, whole = appended(tmp_path, table(30), new, columns=["x"], na="drop")
    assert whole.n_rows == (15, 15, 10)


def test_columns_that_the_run_does_not_have_are_left_out(tmp_path):
    first = write_shards({"x": np.arange(9.0)}, 2, tmp_path / "old")
    whole = append_shards(first, table(6), 1, tmp_path / "new", Cut(), 0)
    assert whole.names == ("x",)


def test_whole_numbers_become_floats_where_the_run_has_floats(tmp_path):
    first = write_shards({"x": np.arange(9.0)}, 2, tmp_path / "old")
    new = {"x": np.arange(6, dtype=np.int32)}
    whole = append_shards(first, new, 1, tmp_path / "new", Cut(), 0)
    assert whole.shard(2)["x"].dtype == float


def test_either_folder_may_be_deleted(tmp_path):
    first, whole = appended(tmp_path, table(30), table(10, start=30), columns=["x"])
    shutil.rmtree(first.folder)
    whole.verify()


def test_a_disk_without_links(tmp_path, monkeypatch):
    def no_links(*_):
        raise OSError

    monkeypatch.setattr(os, "link", no_links)
    _, whole = appended(tmp_path, table(30), table(10, start=30), columns=["x"])
    assert whole.n_shards == 3


def test_the_same_again_is_no_change(tmp_path):
    first, whole = appended(tmp_path, table(30), table(10, start=30), columns=["x"])
    again = append_shards(first, table(10, start=30), None, whole.folder, Cut(columns=["x"]), 3)
    assert again == whole
    with pytest.raises(BadInputError, match="holds another data set"):
        append_shards(first, table(11), None, whole.folder, Cut(columns=["x"]), 3)
    assert ShardSet.open(whole.folder) == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]


@pytest.mark.parametrize(
    ("new", "by", "message"),
    [
        (table(6, "axy"), "group:g", r"groups that the run has: 'a'\. All rows of a group"),
        ({"x": np.ones(6), "g": np.arange(6)}, "group:g", r"Give them values of one kind"),
        ({"y": np.ones(6)}, "shuffle", r"The new rows have no `x`. The run has x"),
        ({"x": np.ones((6, 2))}, "shuffle", r"Rows of `x` are <f8 of shape \(2,\)"),
    ],
)
def test_rows_that_do_not_fit(new, by, message, tmp_path):
    first = write_shards(table(30), 2, tmp_path / "old", by=by, columns=["x"])
    with pytest.raises(BadInputError, match=message):
        append_shards(first, new, None, tmp_path / "new", Cut(by), 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old"]
