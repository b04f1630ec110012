"""Where rows in place lie: what is refused before any of them is read."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quorate.data.addresses import addresses_of
from quorate.data.placed import PLACED, Place, PlacedShards, places_of
from quorate.data.placed_groups import labels_of_shards, with_groups
from quorate.data.tables import open_table
from quorate.errors import BadInputError
from quorate.run import in_place
from quorate.run.settings import Settings


@pytest.fixture
def lake(tmp_path):
    folder = tmp_path / "lake"
    folder.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"y": [1.0, 2.0]}), folder / f"{number}.parquet")
    return folder


def test_a_file_is_not_read_twice(lake):
    overlapping = [lake / "*.parquet", lake / "1.parquet"]
    for read in (addresses_of, open_table):
        with pytest.raises(BadInputError, match=r"1\.parquet is named more than once"):
            read(overlapping)
    apart = [lake / "[01].parquet", lake / "2.parquet"]
    assert addresses_of(apart) == addresses_of(lake)
    assert open_table(apart).n_rows == 6


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA:hush@lake/x.parquet",
        "s3://lake/x.parquet?region=eu&secret_key=hush",
        "abfs://lake/x.parquet?sas_token=hush",
    ],
)
def test_a_url_with_a_secret_is_refused_and_the_secret_is_not_repeated(url):
    for data in (url, [url], {"site": url}, [f"site={url}"]):
        with pytest.raises(BadInputError, match=r"holds a secret.*AWS_SECRET_ACCESS_KEY") as raised:
            places_of(data, 1)
        assert "hush" not in str(raised.value)
        assert "AKIA" not in str(raised.value)


def test_a_user_of_a_store_is_no_secret():
    (place,) = places_of({"site": "hdfs://me@head:8020/x.parquet?replication=1"}, 1)
    assert place.files == ("hdfs://me@head:8020/x.parquet?replication=1",)


def test_a_file_of_a_later_quorate_says_so_whatever_else_it_holds(tmp_path):
    (tmp_path / PLACED).write_text(json.dumps({"schema": 2}))
    with pytest.raises(BadInputError, match="has schema 2; this quorate reads 1"):
        PlacedShards.open(tmp_path)


def test_groups_of_further_shards_are_counted_on(tmp_path):
    def planned(n_shards):
        places = tuple(Place(site=f"site {i}", files=("x",)) for i in range(n_shards))
        return PlacedShards(tmp_path / str(n_shards), "in-place:g", places)

    found = [{"group": np.array(labels)} for labels in (["a", "b"], ["c"], ["longer", "d"])]
    old = with_groups(planned(2), found[:2])
    both = with_groups(planned(3), [*labels_of_shards(old), found[2]])
    assert both.n_groups == (("group", (2, 1, 2)),)
    assert both.labels("group").tolist() == ["a", "b", "c", "longer", "d"]
    with pytest.raises(BadInputError, match="Group 'c' has rows in site 1 and in site 2"):
        with_groups(planned(3), [*labels_of_shards(old), {"group": np.array(["c"])}])


def test_a_folder_is_free_again_after_rows_could_not_be_read(lake, tmp_path, monkeypatch):
    def fails(shards, *_):
        shards.folder.mkdir()
        (shards.folder / "labels.npy").touch()
        raise BadInputError("Groups are named by text and whole numbers.")

    settings, folder = Settings(workers=3, by="in-place"), tmp_path / "shards"
    monkeypatch.setattr(in_place, "_read", fails)
    for _ in range(2):
        with (
            pytest.raises(BadInputError, match="named by text"),
            in_place.cut_into_shards(None, lake, settings, folder, print),
        ):
            pass
