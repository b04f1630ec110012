"""Shards: partition laws, one result whatever the source, fingerprints, and what is refused."""

import gzip
import hashlib
import json
import pickle
import shutil
import struct
import subprocess
import sys
from datetime import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate import BadInputError
from quorate.data import files as table_files
from quorate.data import tables
from quorate.data.partition import Partition, grouped, shuffled, stratified
from quorate.data.write import ShardSet, _stream, _Writer, write_shards

N = 103


@pytest.fixture
def rows(rng):
    return {
        "x": rng.standard_normal(N),
        "half": rng.standard_normal(N).astype(np.float32),
        "count": rng.integers(0, 9, N),
        "small": rng.integers(0, 200, N).astype(np.uint8),
        "late": rng.random(N) < 0.3,
    }


def put(rows, folder, name="rows.parquet", **options):
    path = folder / name
    pq.write_table(pa.table(rows), path, **options)
    return path


def contents(shards):
    return [{k: np.array(v) for k, v in shards.shard(s).items()} for s in range(shards.n_shards)]


def assert_same(left, right):
    assert left.fingerprints == right.fingerprints
    assert left.n_rows == right.n_rows
    for one, other in zip(contents(left), contents(right), strict=True):
        assert list(one) == list(other)
        for name in one:
            assert one[name].dtype == other[name].dtype
            np.testing.assert_array_equal(one[name], other[name])


# Partition laws


sizes = st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


@given(size=sizes, seed=st.integers(0, 2**40))
def test_shuffle_is_numpys_split_of_a_permutation(size, seed):
    n_rows, n_shards = size
    owners = shuffled(n_rows, n_shards, seed)
    parts = np.array_split(np.random.default_rng(seed).permutation(n_rows), n_shards)
    for shard, part in enumerate(parts):
        np.testing.assert_array_equal(np.flatnonzero(owners == shard), np.sort(part))


@given(size=sizes, n_strata=st.integers(1, 12), seed=st.integers(0, 2**32))
def test_strata_are_dealt_evenly(size, n_strata, seed):
    n_rows, n_shards = size
    strata = np.random.default_rng(seed).integers(n_strata, size=n_rows) ** 2
    owners = stratified(strata, n_shards, seed)
    n_in_shard = np.bincount(owners, minlength=n_shards)
    expected = [len(part) for part in np.array_split(np.arange(n_rows), n_shards)]
    assert n_in_shard.tolist() == expected
    for stratum in np.unique(strata):
        assert np.ptp(np.bincount(owners[strata == stratum], minlength=n_shards)) <= 1


def test_strata_are_dealt_at_random(seed):
    strata = np.repeat([0, 1], 50)
    one, other = (stratified(strata, 4, s) for s in (seed, seed + 1))
    assert (one != other).any()
    assert (np.diff(np.flatnonzero(one == 0)) != 4).any()


@given(
    sizes=st.lists(st.integers(1, 200), min_size=1, max_size=60),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_groups_stay_whole_and_are_dealt_evenly(sizes, share, seed):
    n_shards = 1 + int(share * (len(sizes) - 1))
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    owners = grouped(groups, n_shards, seed)
    of_group = np.zeros(len(sizes), dtype=np.int64)
    of_group[groups] = owners
    np.testing.assert_array_equal(of_group[groups], owners)
    assert np.ptp(np.bincount(of_group, minlength=n_shards)) <= 1
    assert np.ptp(np.bincount(owners, minlength=n_shards)) <= max(sizes)


def dealt_lap_by_lap(sizes, n_shards, seed):
    """The shard of each group: in each lap, the shard with the fewest rows gets the largest."""
    order = np.random.default_rng(seed).permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    owners, n_rows = np.empty(len(sizes), dtype=np.int64), np.zeros(n_shards, dtype=np.int64)
    for first in range(0, len(sizes), n_shards):
        lap = order[first : first + n_shards]
        owners[lap] = np.argsort(n_rows, kind="stable")[: len(lap)]
        n_rows[owners[lap]] += sizes[lap]
    return owners


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=80),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_laps_of_equal_groups_are_dealt_as_one_by_one(sizes, share, seed):
    n_shards = 1 + int(share * (len(sizes) - 1))
    owners = grouped(np.repeat(np.arange(len(sizes)), sizes), n_shards, seed)
    expected = dealt_lap_by_lap(np.array(sizes), n_shards, seed)
    np.testing.assert_array_equal(owners, np.repeat(expected, sizes))


def test_groups_with_heavy_tails_are_balanced(seed):
    """20,000 groups of Pareto sizes, none above 1,000 rows: at most 11 % off in 200 seeds."""
    sizes = np.minimum(1 + np.random.default_rng(seed).pareto(1.5, 20_000), 1000).astype(int)
    n_rows = np.bincount(grouped(np.repeat(np.arange(20_000), sizes), 8, seed))
    assert n_rows.max() / n_rows.mean() < 1.2


def test_groups_of_equal_size_are_dealt_at_random(seed):
    one, other = (grouped(np.arange(100), 4, s) for s in (seed, seed + 1))
    assert (one != other).any()


@pytest.mark.parametrize(
    "values",
    [
        np.array(["N1", "N22", "N3", "N4", "N5"]),
        np.array(["2013-01-01", "2013-02-01", "2014-01-01", "2015-01-01", "2016-01-01"], "M8[D]"),
        np.array([3, -1, 7, 2**40, 5]),
    ],
    ids=["text", "dates", "numbers"],
)
def test_groups_by_a_column_that_is_not_stored(values, tmp_path, rng):
    which = rng.permutation(np.repeat(np.arange(5), [40, 30, 20, 10, 3]))
    table = pd.DataFrame({"g": values[which], "i": np.arange(N)})
    path = tmp_path / "rows.parquet"
    table.to_parquet(path, row_group_size=20)
    shards = write_shards(path, 3, tmp_path / "s", by="group:g", columns=["i"])
    held = [set(which[stored["i"]]) for stored in contents(shards)]
    assert sum(map(len, held)) == 5
    assert set.union(*held) == set(range(5))
    in_memory = write_shards(table, 3, tmp_path / "t", by="group:g", columns=["i"])
    assert_same(shards, in_memory)


@settings(max_examples=25)
@given(size=sizes, seed=st.integers(0, 99))
def test_every_row_is_stored_once_and_in_order(tmp_path_factory, size, seed):
    n_rows, n_shards = size
    rows = {"i": np.arange(n_rows), "m": np.arange(6 * n_rows).reshape(n_rows, 2, 3)}
    folder = tmp_path_factory.mktemp("shards") / "s"
    shards = write_shards(rows, n_shards, folder, seed=seed)
    parts = np.array_split(np.random.default_rng(seed).permutation(n_rows), n_shards)
    assert shards.n_rows == tuple(len(part) for part in parts)
    for stored, part in zip(contents(shards), parts, strict=True):
        np.testing.assert_array_equal(stored["i"], np.sort(part))
        np.testing.assert_array_equal(stored["m"], rows["m"][np.sort(part)])
    shutil.rmtree(folder)


def test_stratified_by_strings_that_are_not_stored(rows, tmp_path):
    origin = np.repeat(["EWR", "JFK", "LGA"], [60, 31, 12])
    shards = write_shards(
        {**rows, "origin": origin, "i": np.arange(N)},
        4,
        tmp_path / "s",
        by="stratify:origin",
        columns=["i"],
    )
    assert shards.names == ("i",)
    for stored in contents(shards):
        _, counts = np.unique(origin[stored["i"]], return_counts=True)
        assert set(counts) <= {15, 7, 8, 3}
        assert (np.diff(stored["i"]) > 0).all()


# One result whatever the source


def sources(rows, folder):
    parts = {k: np.array_split(v, 3) for k, v in rows.items()}
    files = [put({k: v[i] for k, v in parts.items()}, folder, f"{i}.parquet") for i in range(3)]
    chunked = pa.concat_tables([pq.read_table(file) for file in files])
    categories = pa.table({**rows, "count": pa.array(rows["count"]).dictionary_encode()})
    nullable = {"x": "Float64", "count": "Int64", "small": "UInt8", "late": "boolean"}
    return {
        "lists": {**rows, "count": rows["count"].tolist(), "late": rows["late"].tolist()},
        "big-endian": {**rows, "x": rows["x"].astype(">f8")},
        "strided": {**rows, "x": np.repeat(rows["x"], 3)[::3]},
        "pandas": pd.DataFrame(rows),
        "pandas with nullable types": pd.DataFrame(rows).astype(nullable),
        "pandas with Arrow types": pd.DataFrame(rows).convert_dtypes(dtype_backend="pyarrow"),
        "pandas with a shuffled index": pd.DataFrame(rows, index=np.arange(N)[::-1]),
        "polars": pl.DataFrame(rows),
        "Arrow": pa.table(rows),
        "Arrow in chunks": chunked,
        "Arrow with categories": categories,
        "Parquet": put(rows, folder, "one.parquet"),
        "Parquet in row groups": str(put(rows, folder, "groups.parquet", row_group_size=10)),
        "many Parquet files": [str(file) for file in files],
        "glob": str(folder / "[0-9].parquet"),
    }


@pytest.mark.parametrize("batch_bytes", [1 << 25, 300])
@pytest.mark.parametrize("by", ["shuffle", "stratify:count", "group:count"])
def test_the_source_does_not_matter(rows, tmp_path, monkeypatch, by, batch_bytes):
    reference = write_shards(rows, 5, tmp_path / "reference", seed=3, by=by)
    for module in (tables, table_files):
        monkeypatch.setattr(module, "BATCH_BYTES", batch_bytes)
    for kind, source in sources(rows, tmp_path).items():
        shards = write_shards(source, 5, tmp_path / kind, seed=3, by=by)
        assert_same(shards, reference)


def test_csv_gives_the_same_shards_too(rows, tmp_path):
    rows = {name: rows[name] for name in ("x", "count", "late")}
    pa.csv.write_csv(pa.table(rows), tmp_path / "rows.csv")
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress((tmp_path / "rows.csv").read_bytes()))
    reference = write_shards(rows, 4, tmp_path / "reference")
    for name in ("rows.csv", "rows.csv.gz"):
        assert_same(write_shards(tmp_path / name, 4, tmp_path / f"from {name}"), reference)


def test_whole_numbers_in_one_file_and_floats_in_another(tmp_path):
    put({"x": [1, 2, 3]}, tmp_path, "a.parquet")
    put({"x": [0.5, 1.5]}, tmp_path, "b.parquet")
    (tmp_path / "notes.txt").write_text("not data")
    shards = write_shards(tmp_path, 1, tmp_path / "s")
    np.testing.assert_array_equal(shards.shard(0)["x"], [1, 2, 3, 0.5, 1.5])


def test_decimals_and_booleans_with_nothing_missing(tmp_path):
    money = [Decimal("1.25"), Decimal("2.50")]
    for kind, source in {
        "arrow": pa.table({"x": money}),
        "polars": pl.DataFrame({"x": money}),
    }.items():
        shards = write_shards(source, 1, tmp_path / kind)
        np.testing.assert_array_equal(shards.shard(0)["x"], [1.25, 2.5])


def test_a_file_for_each_shard(rows, tmp_path):
    cuts = {name: np.split(values, [20, 70]) for name, values in rows.items()}
    files = [put({k: v[i] for k, v in cuts.items()}, tmp_path, f"{i}.pq") for i in (0, 1, 2)]
    shards = write_shards(files, 3, tmp_path / "s", by="files")
    assert shards.n_rows == (20, 50, 33)
    for shard, stored in enumerate(contents(shards)):
        for name, values in stored.items():
            np.testing.assert_array_equal(values, cuts[name][shard])


def test_transform_builds_a_design_matrix_batch_by_batch(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "BATCH_BYTES", 300)
    origin = np.resize(["EWR", "JFK"], N)
    path = put({**rows, "origin": origin}, tmp_path)
    seen = []

    def design(batch):
        seen.append(len(batch["x"]))
        dummies = batch["origin"] == "JFK"
        return {"X": np.column_stack([np.ones(len(dummies)), batch["x"], dummies])}

    shards = write_shards(path, 4, tmp_path / "s", columns=["x", "origin"], transform=design)
    whole = np.column_stack([np.ones(N), rows["x"], origin == "JFK"])
    parts = np.array_split(np.random.default_rng(0).permutation(N), 4)
    assert len(seen) > 1
    assert sum(seen) == N
    for stored, part in zip(contents(shards), parts, strict=True):
        np.testing.assert_array_equal(stored["X"], whole[np.sort(part)])


# On disk


@pytest.mark.parametrize("wrong", [b"(", b"}", b"{", b"\x00", b"'", b"#"])
def test_a_damaged_header_of_an_array(rows, tmp_path, wrong):
    shard = write_shards(rows, 3, tmp_path / "s").shard(1)
    path = tmp_path / "s/shard-00001/array-001.npy"
    content = path.read_bytes()
    at = content.index(b")")
    path.write_bytes(content[:at] + wrong + content[at + 1 :])
    with pytest.raises(BadInputError, match=r"Shard 1 .* array 'half' cannot be opened"):
        shard["half"]


def test_arrays_open_when_asked_for_and_cannot_be_written(rows, tmp_path):
    shard = write_shards(rows, 3, tmp_path / "s").shard(1)
    (tmp_path / "s/shard-00001/array-001.npy").unlink()
    assert isinstance(shard["x"].base, np.memmap)
    assert shard["x"] is shard["x"]
    assert "half" in shard
    with pytest.raises(BadInputError, match=r"Shard 1 .* array 'half' cannot be opened"):
        shard["half"]
    with pytest.raises(ValueError, match="read-only"):
        shard["x"][0] = 1
    with pytest.raises(KeyError):
        shard["z"]
    with pytest.raises(BadInputError, match=r"No shard 3\. There are 3 shards"):
        ShardSet.open(tmp_path / "s").shard(3)


def test_pickling_sends_no_rows(tmp_path):
    shard = write_shards({"x": np.ones(100_000)}, 1, tmp_path / "s").shard(0)
    assert shard["x"].sum() == 100_000
    sent = pickle.dumps(shard)
    assert len(sent) < 2_000
    assert pickle.loads(sent)["x"].sum() == 100_000


SHARE = """
import sys
from quorate.data.write import ShardSet

array = ShardSet.open(sys.argv[1]).shard(0)["x"]
total = array.sum()
kilobytes, inside = {}, False
for line in open("/proc/self/smaps"):
    if "-" in line.split()[0]:
        inside = line.rstrip().endswith("shard-00000/array-000.npy")
    elif inside and line.split()[-1] == "kB":
        kilobytes[line.split(":")[0]] = int(line.split()[1])
private = kilobytes["Private_Clean"] + kilobytes["Private_Dirty"]
print(total, kilobytes["Rss"], private)
"""


def test_two_processes_share_the_pages_of_a_shard(tmp_path):
    shard = write_shards({"x": np.ones(1 << 20)}, 1, tmp_path / "s").shard(0)
    assert shard["x"].sum() == 1 << 20
    command = [sys.executable, "-c", SHARE, str(tmp_path / "s")]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    total, resident, private = (float(word) for word in output.split())
    assert total == 1 << 20
    assert resident >= 8 * 1024
    assert private <= 64


@settings(max_examples=40)
@given(where=st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0)), bit=st.integers(0, 7))
def test_any_bit_of_content_is_seen(tmp_path_factory, where, bit):
    shard, array, byte = where
    rng = np.random.default_rng(0)
    rows = {name: rng.standard_normal(12) for name in "abcde"}
    shards = write_shards(rows, 3, tmp_path_factory.mktemp("bits") / "s")
    shards.verify()
    path = shards.folder / f"shard-{shard:05d}" / f"array-{array:03d}.npy"
    content = bytearray(path.read_bytes())
    content[128 + byte % (len(content) - 128)] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=f"Shard {shard} .*has changed since it was written"):
        shards.verify()
    for other in {0, 1, 2} - {shard}:
        shards.shard(other).verify()


def test_fingerprints_change_with_names_types_and_content_and_not_with_order(tmp_path):
    x, y = np.arange(4.0), np.arange(4.0) + 1
    variants = [
        {"x": x, "y": y},
        {"x": y, "y": x},
        {"x": x, "z": y},
        {"x": x.astype(np.float32), "y": y},
        {"x": x.view(np.int64), "y": y},
        {"x": x[:, None], "y": y},
        {"x": np.where(x == 0, -0.0, x), "y": y},
    ]
    prints = [
        write_shards(rows, 1, tmp_path / str(i)).fingerprint for i, rows in enumerate(variants)
    ]
    assert len(set(prints)) == len(variants)
    assert write_shards({"y": y, "x": x}, 1, tmp_path / "order").fingerprint == prints[0]


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def test_fingerprint_is_the_same_everywhere(tmp_path):
    shards = write_shards({"x": [0.5, 1.0], "n": np.array([[1], [2]], ">i2")}, 1, tmp_path / "s")
    n, x = struct.pack("<2h", 1, 2), struct.pack("<2d", 0.5, 1.0)
    arrays = [["n", "<i2", [2, 1], sha256(n)], ["x", "<f8", [2], sha256(x)]]
    assert shards.fingerprints == (sha256(json.dumps(arrays, separators=(",", ":")).encode()),)


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", 1), ("n_rows", [3, 1]), ("fingerprints", ["0" * 64] * 2), ("checksum", ""), ("z", 0)],
)
def test_a_changed_manifest_is_refused(tmp_path, key, value):
    path = write_shards({"x": np.arange(4.0)}, 2, tmp_path / "s").folder / "manifest.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content))
    assert ShardSet.open(tmp_path / "s").n_shards == 2
    path.write_text(json.dumps({**content, key: value}))
    with pytest.raises(BadInputError, match=r"manifest.json has changed since it was written"):
        ShardSet.open(tmp_path / "s")


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"schema": 1}', "\x00"])
def test_a_manifest_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(BadInputError, match=r"manifest.json has changed since it was written"):
        ShardSet.open(tmp_path)


def test_other_versions_and_empty_folders_are_refused(tmp_path):
    with pytest.raises(BadInputError, match="holds no shards"):
        ShardSet.open(tmp_path)
    path = write_shards({"x": np.arange(4.0)}, 2, tmp_path / "s").folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 2}))
    with pytest.raises(BadInputError, match="has schema 2; this quorate reads schema 1"):
        ShardSet.open(tmp_path / "s")


def test_a_file_of_another_shape_is_refused(tmp_path):
    shards = write_shards({"x": np.arange(4.0)}, 2, tmp_path / "s")
    np.save(tmp_path / "s/shard-00000/array-000.npy", np.arange(3.0))
    with pytest.raises(BadInputError, match=r"Shard 0 .* array 'x' is <f8 of \(3,\)"):
        shards.shard(0)["x"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_write_leaves_nothing(rows, tmp_path, monkeypatch, stop):
    monkeypatch.setattr(tables, "BATCH_BYTES", 300)
    batches = iter(range(100))

    def interrupted(batch):
        if next(batches) == 3:
            raise stop
        return batch

    with pytest.raises(stop):
        write_shards(rows, 3, tmp_path / "s", transform=interrupted)
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, sys
import numpy as np
from quorate.data import tables
from quorate.data.write import write_shards

tables.BATCH_BYTES = 80
seen = []

def kill(batch):
    seen.append(batch)
    if len(seen) == 3:
        os.kill(os.getpid(), 9)
    return batch

write_shards({"x": np.arange(100.0)}, 3, sys.argv[1], transform=kill)
"""


def test_a_killed_write_leaves_no_manifest_and_can_be_repeated(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "s")]
    assert subprocess.run(command, check=False).returncode == -9
    assert any(tmp_path.rglob("*.npy"))
    assert not any(tmp_path.rglob("manifest.json"))
    shards = write_shards({"x": np.arange(100.0)}, 3, tmp_path / "s")
    shards.verify()
    assert list(tmp_path.iterdir()) == [tmp_path / "s"]


def test_a_folder_holds_one_data_set(rows, tmp_path):
    first = write_shards(rows, 3, tmp_path / "s")
    assert write_shards(pd.DataFrame(rows), 3, tmp_path / "s") == first
    other = {**rows, "x": rows["half"]}
    for changed, n_shards, seed in ((rows, 4, 0), (rows, 3, 1), (other, 3, 0)):
        with pytest.raises(BadInputError, match="holds another data set, of 103 rows in 3 shards"):
            write_shards(changed, n_shards, tmp_path / "s", seed=seed)
    with pytest.raises(BadInputError, match="holds other files"):
        write_shards(rows, 3, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match="is a file"):
        write_shards(rows, 3, tmp_path / "file")
    assert ShardSet.open(tmp_path / "s") == first
    first.verify()


def test_shards_that_are_used_again_are_verified(rows, tmp_path):
    write_shards(rows, 3, tmp_path / "s")
    damaged = tmp_path / "s/shard-00002/array-000.npy"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(BadInputError, match=r"Shard 2 .*has changed since it was written"):
        write_shards(rows, 3, tmp_path / "s")


def test_an_empty_folder_is_used(rows, tmp_path):
    (tmp_path / "s").mkdir()
    assert write_shards(rows, 3, tmp_path / "s").n_shards == 3


# What is refused


ten, words = np.arange(10.0), list("abcdefghij")


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ({"x": ten}, {"n_shards": 11}, "10 rows do not fill 11 shards. Use at most 10"),
        ({"x": ten}, {"n_shards": 0}, "n_shards must be a whole number, at least 1, not 0"),
        ({"x": ten}, {"n_shards": 2.5}, "n_shards must be a whole number, .*not 2.5"),
        ({"x": ten}, {"seed": 0.5}, "seed must be a whole number, at least 0, not 0.5"),
        ({"x": ten}, {"by": None}, "by cannot be None. Use 'shuffle'"),
        ({"x": ten}, {"seed": -1}, "seed must be a whole number, at least 0, not -1"),
        ({"x": ten[:0]}, {}, "has no rows"),
        (pd.DataFrame({"x": ten[:0]}), {}, "pandas.*DataFrame has no rows"),
        ({}, {}, "has no columns"),
        (pl.DataFrame(), {}, "has no columns"),
        (ten, {}, "data cannot be a numpy.ndarray. Give a dict of"),
        ([ten], {}, "data cannot be a list. Give a dict of arrays"),
        ([], {}, "Give at least one file"),
        ({"x": 3.0}, {}, r"data\['x'\] is 3.0. Give an array with a value per row"),
        ({"x": [[1], [1, 2]]}, {}, r"Rows of data\['x'\] differ in shape"),
        ({"x": ten, "y": ten[1:]}, {}, r"must have one length, not {'x': 10, 'y': 9}"),
        ({"x": ten}, {"columns": ["z"]}, "No column named `z`. The columns are x"),
        ({"x": ten}, {"columns": "z"}, "No column named `z`. The columns are x"),
        ({"x": ten}, {"columns": []}, "columns is empty. Name at least one"),
        (pd.DataFrame(np.ones((10, 2)), columns=["x", "x"]), {}, "must differ.*'x' 2 times"),
        ({"x": ten, "s": words}, {}, "Column `s` holds 'a'. Encode .* use a formula"),
        ({"x": ten, "s": words}, {"columns": "s"}, "leave the column out by `columns`"),
        (pd.DataFrame({"s": words}), {}, "Column `s` holds 'a'. Encode"),
        (pd.DataFrame({"s": words}, dtype="category"), {}, "Column `s` holds 'a'. Encode"),
        (pl.DataFrame({"s": words}), {}, "Column `s` holds 'a'. Encode"),
        (pa.table({"s": words}), {}, "Column `s` holds 'a'. Encode"),
        (pa.table({"s": [[1.0]] * 10}), {}, "Column `s` holds .* Encode"),
        ({"t": [datetime(2013, 1, 1)] * 9}, {}, "Column `t` holds .*2013.* Encode"),
        (
            {"t": ten.astype("M8[s]")},
            {},
            "Column `t` has type datetime64.*float64 or whole numbers",
        ),
        (
            {"x": ten.astype(np.longdouble)},
            {},
            "Column `x` has type float128. Convert it to float64",
        ),
        (
            {"x": ten},
            {"by": "rows"},
            "by cannot be 'rows'. Use 'shuffle', 'files', 'stratify:COLUMN' or 'group:COLUMN'",
        ),
        ({"x": ten}, {"by": "stratify"}, "Use 'shuffle', 'files', 'stratify:COLUMN' or"),
        ({"x": ten}, {"by": "group"}, "by cannot be 'group'"),
        ({"x": ten, "g": [1, 2] * 5}, {"by": "group:g"}, "2 groups do not fill 3 shards"),
        (
            {"x": ten, "g": [1] * 10},
            {"by": "group:g"},
            "1 group does not fill 3 shards. Use at most 1 shard\\.$",
        ),
        ({"x": ten}, {"by": "stratify:z"}, "No column named `z`. The columns are x"),
        ({"x": ten, "s": [1, "a"] * 5}, {"by": "stratify:x"}, "Column `s` holds"),
        (
            {"s": np.array([1, "a"] * 5, object)},
            {"by": "stratify:s"},
            "Column `s`.* cannot be compared",
        ),
        ({"s": np.ones((10, 2))}, {"by": "stratify:s"}, "Column `s`.* must hold single values"),
        ({"s": [1.0, np.nan] * 5}, {"by": "stratify:s"}, "Column `s`.* is missing in 5 rows"),
        ({"s": np.arange(20_000)}, {"by": "stratify:s"}, "more than 10,000 values. Cut it into"),
        ({"x": ten}, {"by": "files"}, "needs data in files, not in memory"),
        ("nowhere/*.parquet", {}, "No file found at 'nowhere/\\*.parquet'"),
        (__file__, {}, "test_write_shards.py is neither Parquet nor CSV"),
        (
            {"x": ten},
            {"transform": lambda batch: batch["x"]},
            "transform returned a ndarray",
        ),
        (
            {"x": ten},
            {"transform": lambda batch: {}},
            "It must return a dict with at least one array",
        ),
        ({"x": ten}, {"transform": lambda batch: {"x": ten[1:]}}, "was given 10 rows"),
        ({"x": ten}, {"transform": lambda batch: {"x": ten / np.inf * np.inf}}, "{'x': 10}"),
    ],
)
def test_bad_input(tmp_path, data, options, message):
    options = {"n_shards": 3, **options}
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(BadInputError, match=message),
    ):
        write_shards(data, folder=tmp_path / "s", **options)
    assert list(tmp_path.iterdir()) == []


def with_holes():
    x, n, ok = [1.0, None, 3.0, float("nan")], [1, 2, None, 4], [True, None, False, True]
    rows = {"x": x, "n": n, "ok": ok, "full": [1, 2, 3, 4]}
    return {
        "pandas": pd.DataFrame(rows).astype({"x": float, "n": "Int64", "ok": "boolean"}),
        "polars": pl.DataFrame(rows),
        "arrow": pa.table(rows),
        "numpy": {
            "x": np.array(x, dtype=float),
            "n": np.ma.masked_array([1, 2, 3, 4], [0, 0, 1, 0]),
            "ok": np.ma.masked_array([True, True, False, True], [0, 1, 0, 0]),
            "full": np.ma.masked_array([1, 2, 3, 4]),
        },
    }


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "numpy"])
@pytest.mark.parametrize("batch_bytes", [1 << 25, 40])
def test_missing_values_are_counted_to_the_end(tmp_path, monkeypatch, kind, batch_bytes):
    monkeypatch.setattr(tables, "BATCH_BYTES", batch_bytes)
    with pytest.raises(BadInputError) as caught:
        write_shards(with_holes()[kind], 2, tmp_path / "s")
    for count in ("'x': 2", "'n': 1", "'ok': 1"):
        assert count in str(caught.value)
    assert "full" not in str(caught.value)
    full = write_shards(with_holes()[kind], 2, tmp_path / "s", columns=["full"])
    assert full.n_rows == (2, 2)


def test_missing_values_may_be_filled_in_by_transform(tmp_path):
    put(with_holes()["arrow"], tmp_path)
    shards = write_shards(
        tmp_path / "rows.parquet",
        1,
        tmp_path / "s",
        columns=["x"],
        transform=lambda batch: {"x": np.nan_to_num(batch["x"])},
    )
    np.testing.assert_array_equal(shards.shard(0)["x"], [1, 0, 3, 0])


def test_batches_must_be_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BATCH_BYTES", 40)
    for way_out, changed in (
        ("Earlier rows were <f8 of shape", lambda batch: {"x": np.ones((5, 2))}),
        ("holds complex numbers", lambda batch: {"x": batch["x"] + 1j}),
        ("transform returned y for a batch. It must return x", lambda batch: {"y": batch["x"]}),
    ):
        with pytest.raises(BadInputError, match=way_out):
            write_shards(
                {"x": ten},
                2,
                tmp_path / "s",
                transform=lambda batch, f=changed: f(batch) if batch["x"][0] else batch,
            )


def test_bad_files(rows, tmp_path):
    files = [put(rows, tmp_path, f"{i}.parquet") for i in range(3)]
    with pytest.raises(BadInputError, match="makes 3 files into 3 shards, not 2"):
        write_shards(files, 2, tmp_path / "s", by="files")
    lacking = put({"x": rows["x"]}, tmp_path, "lacking.parquet")
    with pytest.raises(BadInputError, match=r"lacking\.parquet has no column `half`"):
        write_shards([*files, lacking], 2, tmp_path / "s")
    assert write_shards([*files, lacking], 2, tmp_path / "x", columns="x").names == ("x",)
    strings = put({"x": ["a"]}, tmp_path, "strings.parquet")
    with pytest.raises(
        BadInputError, match="Column `x` has different types in its files: double, string"
    ):
        write_shards([*files, strings], 2, tmp_path / "s", columns="x")
    empty = put({name: values[:0] for name, values in rows.items()}, tmp_path, "empty.parquet")
    with pytest.raises(BadInputError, match="File 1, counted from 0, has no rows"):
        write_shards([files[0], empty], 2, tmp_path / "s", by="files")
    assert write_shards([files[0], empty], 2, tmp_path / "e").n_rows == (52, 51)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(BadInputError, match=r"broken\.parquet cannot be read"):
        write_shards(tmp_path / "broken.parquet", 2, tmp_path / "s")
    (tmp_path / "ragged.csv").write_text("x,y\n1,2\n3\n")
    with pytest.raises(BadInputError, match=r"ragged\.csv cannot be read: .*Expected 2"):
        write_shards(tmp_path / "ragged.csv", 2, tmp_path / "s")


def test_files_that_change_meanwhile_are_noticed(tmp_path):
    table = tables.open_table(put({"x": ten}, tmp_path))
    put({"x": ten[1:]}, tmp_path)
    dealt = Partition(np.zeros(10, dtype=np.uint8))
    with pytest.raises(BadInputError, match="data have 9 rows, and had 10"):
        _stream(table.batches(["x"]), dealt, None, _Writer(tmp_path / "s", np.array([10])))


WITHOUT = """
import sys
for name in ("pyarrow", "pandas", "polars"):
    sys.modules[name] = None
import numpy as np
from quorate.data.write import write_shards

print(write_shards({"x": np.arange(4.0)}, 2, sys.argv[1]).n_rows)
try:
    write_shards(sys.argv[2], 2, sys.argv[1])
except ImportError as error:
    print(error)
"""


def test_arrays_need_no_library_and_files_name_the_extra(tmp_path):
    path = put({"x": ten}, tmp_path)
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "s"), str(path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[0] == "(2, 2)"
    assert "pip install 'quorate[data]'" in output
