"""Copies of rows in place on a node: which of them stay, and which are removed."""

import os
from dataclasses import replace
from pickle import UnpicklingError

import pandas as pd
import pytest

from quorate.data.placed import PlacedShards, places_of
from quorate.data.scratch import Copies, folder_of
from quorate.engines.workers.in_place import RowsInPlace
from quorate.engines.workers.pulse import Pulse


@pytest.fixture
def sitting(tmp_path):
    """Makes the shards of one sitting after the other, with one folder for their copies."""
    pd.DataFrame({"x": [1.0, 2.0, 3.0]}).to_parquet(tmp_path / "rows.parquet")
    places = places_of(str(tmp_path / "rows.parquet"), 1)
    scratch = str(tmp_path / "scratch")
    return lambda: PlacedShards(tmp_path / "shards", "in-place", places, scratch=scratch)


def left_behind(shards, seconds_ago):
    """The folder of copies whose processes are gone."""
    folder = folder_of(shards)
    folder.mkdir(parents=True)
    (folder / "some-copy").touch()
    then = folder.stat().st_mtime - seconds_ago
    os.utime(folder, (then, then))
    return folder


def test_copies_that_nobody_has_used_for_an_hour_are_removed(sitting):
    old, recent = left_behind(sitting(), 4000), left_behind(sitting(), 2000)
    used = sitting()
    Copies(used).shard(0, None)
    os.utime(folder_of(used), (0, 0))
    found = Copies(sitting()).shard(0, None)
    assert found.n_rows == (3,)
    assert (old.exists(), recent.exists(), folder_of(used).exists()) == (False, True, True)


def test_a_worker_that_is_started_anew_keeps_the_copies_of_its_sitting(sitting):
    shards = sitting()
    folder = left_behind(shards, 4000)
    assert Copies(shards).shard(0, None).n_rows == (3,)
    assert (folder / "some-copy").exists()


def test_the_transform_is_unpacked_only_where_there_is_no_copy(sitting):
    """Workers of a formula would import formulaic for it."""
    shards = replace(sitting(), transform=b"nothing that could be unpacked")
    with pytest.raises(UnpicklingError):
        RowsInPlace(shards, Pulse()).shard(0)
    Copies(shards).shard(0, None)
    assert RowsInPlace(shards, Pulse()).shard(0)["x"].tolist() == [1.0, 2.0, 3.0]
