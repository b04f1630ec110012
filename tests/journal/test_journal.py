"""The file of a run: what comes back, what is refused, and what a crash or a flipped bit costs."""

import itertools
import json
import os
import pickle
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from helpers.journal_blocks import block, task
from helpers.processes import unprivileged
from quorate.errors import BadInputError, JournalError, JournalWarning
from quorate.journal import (
    BlockRecord,
    ChainKey,
    Checked,
    Excluded,
    Finished,
    Journal,
    JournalReader,
    PartAnswered,
    PassRecord,
    PriorRestored,
    Resumed,
    Started,
    TaskGiven,
    WorkerEvent,
)
from quorate.journal import records as journal_rows
from quorate.protocol.messages import Happening

KEY = ChainKey(0, (0,), 0)
CONFIGURATION = {"seed": 1, "scheme": "cmc"}


def same(one, other):
    """Whether two records, or parts of them, are the same to the bit."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and same_bytes(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, tuple):
        return type(one) is type(other) and all(map(same, one, other))
    return one == other


def same_bytes(one, other):
    return one.tobytes() == other.tobytes()


def read(folder):
    with JournalReader(folder) as reader:
        return list(reader.records()), dict(reader.states())


def stored(record):
    return record._replace(state={}) if isinstance(record, BlockRecord) else record


def small_journal(folder):
    """Three chains, two fits and some events; returns what was written."""
    records = [
        Started(0.0),
        task(0.1),
        task(0.1, worker=1),
        *(block(3 * i, worker=w, extras={"p": np.eye(2) * i}) for i in range(4) for w in range(3)),
        WorkerEvent(9.0, 2, 1, Happening.FAILED, "Zeile 3: Überlauf"),
        *(block(12 + 3 * i, worker=w) for i in range(2) for w in range(3)),
        Finished(10.0, "done"),
    ]
    with Journal.create(folder, CONFIGURATION) as journal:
        for start in range(0, len(records), 4):
            journal.append(records[start : start + 4])
    return records


# ---------------------------------------------------------------- what comes back

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
details = st.dictionaries(st.text(), json_values, max_size=3)
kinds = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(),
    hnp.floating_dtypes(),
    hnp.complex_number_dtypes(),
)
any_arrays = kinds.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
)
payloads = kinds.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=1, min_side=0, max_side=4))
)
named = st.dictionaries(st.text(max_size=5), any_arrays, max_size=3)
times, indices = st.floats(0), st.integers(0)
events = st.one_of(
    st.builds(Started, times),
    st.builds(Resumed, times, details),
    st.builds(Finished, times, st.text()),
    st.builds(Checked, times, st.text()),
    st.builds(Excluded, times, st.lists(indices).map(tuple)),
    st.builds(PriorRestored, times, st.floats(0, 1), st.booleans()),
    st.builds(WorkerEvent, times, indices, indices, st.sampled_from(Happening), st.text()),
    st.builds(
        TaskGiven, times, indices, indices, st.lists(indices).map(tuple), indices, indices,
        indices, st.booleans(),
    ),
    st.builds(
        PartAnswered, times, indices, indices, times, st.lists(indices).map(tuple),
        st.integers(-1, 1), indices, indices, indices,
    ),
    st.builds(PassRecord, times, st.just(-1), indices, named),  # what was found of a shard
)  # fmt: skip
parts = st.tuples(st.integers(0, 1), payloads, named, named)


@settings(max_examples=25)
@given(details, st.lists(st.lists(events | parts, max_size=4), max_size=3))
def test_what_is_written_comes_back(configuration, batches):
    written, position, states = [], {}, {}
    with tempfile.TemporaryDirectory() as name:
        with Journal.create(Path(name), configuration) as journal:
            for batch in batches:
                records = []
                for record in batch:
                    if type(record) is tuple:
                        worker, payload, extras, state = record
                        key = ChainKey(worker, (worker, 7), 1)
                        draw = position.get(key, 0)
                        record = BlockRecord(
                            1.5, *key[:1], 2, *key[1:], draw, payload, extras, state
                        )
                        position[key] = record.next_draw
                        states[key] = {**states.get(key, {}), **state}
                    records.append(record)
                journal.append(records)
                written += records
        with JournalReader(Path(name)) as reader:
            assert reader.configuration() == configuration
            found = list(reader.records())
            assert len(found) == len(written) == reader.last_row
            assert all(map(same, found, map(stored, written)))
            assert {key: reached.next_draw for key, reached in reader.chains.items()} == position
            for key, state in reader.states():
                assert sorted(state) == sorted(states[key])
                assert all(same(state[name], states[key][name]) for name in state)


def test_numbers_of_numpy_are_numbers(tmp_path):
    with Journal.create(tmp_path, {}) as journal:
        journal.append([WorkerEvent(np.float64(1.5), np.int64(3), 0, Happening.LOST)])
    ((event,), _) = read(tmp_path)
    assert event == WorkerEvent(1.5, 3, 0, Happening.LOST)


def test_arrays_that_are_not_numbers_are_refused_and_nothing_is_written(tmp_path):
    with Journal.create(tmp_path, {}) as journal:
        with pytest.raises(BadInputError, match="arrays of numbers"):
            journal.append([block(0), block(0, worker=1, extras={"a": np.array([object()])})])
        journal.append([block(0)])
    assert len(read(tmp_path)[0]) == 1


def test_a_block_that_does_not_continue_its_chain_is_refused(tmp_path):
    with Journal.create(tmp_path, {}) as journal:
        journal.append([block(0), block(3)])
        for draw in (0, 3, 9):
            with pytest.raises(BadInputError, match="the next draw"):
                journal.append([block(draw)])
        journal.append([block(6)])
    assert [record.first_draw for record in read(tmp_path)[0]] == [0, 3, 6]


def test_only_what_changed_of_a_state_is_sent(tmp_path):
    scale = np.eye(2)
    with Journal.create(tmp_path, {}) as journal:
        first = block(0)
        journal.append([first._replace(state={**first.state, "scale": scale})])
        journal.append([block(3)])
        journal.append([block(6)._replace(state={})])
    _, states = read(tmp_path)
    assert same(states[KEY]["scale"], scale)
    assert same(states[KEY]["position"], block(3).state["position"])


def test_a_run_goes_on_where_it_was(tmp_path):
    written = small_journal(tmp_path)
    with Journal.open(tmp_path) as journal:
        journal.append([Resumed(0.0, {}), block(18), block(0, worker=5)])
    records, states = read(tmp_path)
    assert len(records) == len(written) + 3
    assert same(states[KEY], block(18).state)
    assert len({*states}) == 4


def test_opening_and_closing_changes_nothing(tmp_path):
    small_journal(tmp_path)
    before = (tmp_path / "journal.sqlite").read_bytes()
    Journal.open(tmp_path).close()
    read(tmp_path)
    assert (tmp_path / "journal.sqlite").read_bytes() == before


def test_a_reader_follows_a_run(tmp_path):
    with Journal.create(tmp_path, CONFIGURATION) as journal, JournalReader(tmp_path) as reader:
        assert list(reader.records()) == []
        for i in range(40):
            journal.append([block(3 * i), task(1.0)])
            assert [type(record) for record in reader.records()] == [BlockRecord, TaskGiven]
            assert reader.last_row == 2 * (i + 1)
            ((_, state),) = reader.states()
            assert same(state, block(3 * i).state)
        assert list(reader.records()) == []


def test_the_file_is_whole_when_closed_though_somebody_reads(tmp_path):
    journal = Journal.create(tmp_path, CONFIGURATION)
    with JournalReader(tmp_path) as reader:
        journal.append([block(0)])
        assert len(list(reader.records())) == 1
        journal.close()
        copy = tmp_path / "copy"
        copy.mkdir()
        shutil.copy(tmp_path / "journal.sqlite", copy)
    with JournalReader(copy) as reader:
        assert len(list(reader.records())) == 1


def test_a_state_ahead_of_what_was_read_is_none(tmp_path):
    with Journal.create(tmp_path, {}) as journal, JournalReader(tmp_path) as reader:
        journal.append([block(0)])
        assert len(list(reader.records())) == 1
        journal.append([block(3)])
        assert dict(reader.states()) == {KEY: None}
        assert len(list(reader.records())) == 1
        assert same(dict(reader.states())[KEY], block(3).state)


def test_a_slow_reader_does_not_make_the_log_grow(tmp_path):
    records = [block(3 * i) for i in range(200)]
    with Journal.create(tmp_path, {}) as journal, JournalReader(tmp_path) as reader:
        journal.append(records[:100])
        slow = reader.records()
        next(slow)
        journal.append(records[100:])
        checkpoint = journal._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert checkpoint == (0, 0, 0)
        assert 1 + len(list(slow)) == 200


# ---------------------------------------------------------------- what is refused


def refused(folder, match):
    for use in (JournalReader, Journal.open):
        with pytest.raises(JournalError, match=match) as caught:
            use(folder)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_second_journal_in_a_folder_is_refused(tmp_path):
    Journal.create(tmp_path, {}).close()
    with pytest.raises(JournalError, match="exists already: resume"):
        Journal.create(tmp_path, {})


def test_what_others_left_behind_is_no_part_of_a_new_journal(tmp_path):
    with Journal.create(tmp_path / "old", {}) as journal:
        journal.append([block(0)])
        shutil.copytree(tmp_path / "old", tmp_path / "new")
    (tmp_path / "new" / "journal.sqlite").rename(tmp_path / "new" / "journal.sqlite.partial")
    Journal.create(tmp_path / "new", {}).close()
    assert read(tmp_path / "new") == ([], {})


def test_no_journal(tmp_path):
    refused(tmp_path, "does not exist")
    refused(tmp_path / "nowhere", "does not exist")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "is empty"),
        (b"draws, many of them\n" * 300, "is not a journal"),
        (b"SQLite format 3\0", "is not a journal"),
        (bytes(5000), "is not a journal"),
    ],
)
def test_files_that_are_no_journal(content, match, tmp_path):
    (tmp_path / "journal.sqlite").write_bytes(content)
    refused(tmp_path, match)


def test_sqlite_files_of_others(tmp_path):
    with sqlite3.connect(tmp_path / "journal.sqlite") as connection:
        connection.execute("CREATE TABLE log (id INTEGER PRIMARY KEY)")
    connection.close()
    refused(tmp_path, "another program")


def altered(folder, statement):
    connection = sqlite3.connect(folder / "journal.sqlite")
    with connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("PRAGMA user_version = 3", "schema 3.*rows can be read.*or a later one"),
        ("PRAGMA user_version = 1", r"schema 1.*rows can be read.*open it with quorate 0\.1"),
        ("PRAGMA user_version = 0", "is damaged"),
        ("DROP TABLE states", "is damaged"),
        ("CREATE TABLE more (x)", "is damaged"),
        ("PRAGMA journal_mode = DELETE", "is damaged"),
    ],
)
def test_other_layouts(statement, match, tmp_path):
    small_journal(tmp_path)
    altered(tmp_path, statement)
    refused(tmp_path, match)


def test_a_lost_configuration(tmp_path):
    small_journal(tmp_path)
    altered(tmp_path, "UPDATE run SET header = replace(header, 'cmc', 'cms')")
    with pytest.raises(JournalError, match="lost the configuration"):
        Journal.open(tmp_path)
    with JournalReader(tmp_path) as reader, pytest.raises(JournalError, match="configuration"):
        reader.configuration()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file(share, tmp_path):
    small_journal(tmp_path)
    path = tmp_path / "journal.sqlite"
    os.truncate(path, int(share * path.stat().st_size))
    refused(tmp_path, "is damaged|is cut short|is not a journal")


def test_a_full_disk_loses_nothing(tmp_path):
    with Journal.create(tmp_path, {}) as journal:
        journal.append([block(0)])
        journal._connection.execute("PRAGMA max_page_count = 20")
        with pytest.raises(JournalError, match=r"the disk is full.*make room and resume"):
            journal.append([block(3, n=100_000)])
        assert len(read(tmp_path)[0]) == 1
        journal.append([block(3)])
    with Journal.open(tmp_path) as journal:
        journal.append([block(6, n=100_000)])
    records, states = read(tmp_path)
    assert [record.first_draw for record in records] == [0, 3, 6]
    assert same(states[KEY], block(6, n=100_000).state)


def test_a_folder_that_cannot_be_written():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = small_journal(folder / "run")
        (folder / "empty").mkdir()
        for part in (folder / "run", folder / "empty"):
            part.chmod(0o555)
        folder.chmod(0o755)
        try:
            with unprivileged():
                with pytest.raises(JournalError, match=r"cannot be used \(Permission denied\)"):
                    Journal.create(folder / "empty", {})
                with pytest.raises(JournalError, match="Permission denied"):
                    Journal.create(folder / "run" / "new", {})
                with pytest.raises(JournalError, match=r"cannot be|Permission denied"):
                    Journal.open(folder / "run")
                assert all(map(same, read(folder / "run")[0], map(stored, written)))
        finally:
            for part in (folder / "run", folder / "empty"):
                part.chmod(0o755)


# ---------------------------------------------------------------- processes that die

_WRITER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from quorate.journal import Journal
from helpers.journal_blocks import block, task
folder, first = Path(sys.argv[1]), int(sys.argv[2])
journal = Journal.open(folder)
journal._connection.execute("PRAGMA wal_autocheckpoint = 40")
print("open", flush=True)
for i in range(first, 1_000_000):
    blocks = [block(3 * i, worker=w) for w in range(3)]
    journal.append([*blocks, task(float(i))])
    print(i, flush=True)
"""


@contextmanager
def writer(folder, first=0):
    """Another process that writes for as long as it is let, four records at a time."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(folder), str(first), str(Path(__file__).parents[1])],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout.readline() == "open\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_one_writer_at_a_time(tmp_path):
    Journal.create(tmp_path, {}).close()
    with writer(tmp_path) as process:
        for use in (Journal.open, lambda folder: Journal.create(folder, {})):
            with pytest.raises(JournalError, match=f"is being written by process {process.pid}:"):
                use(tmp_path)
        JournalReader(tmp_path).close()
        process.send_signal(signal.SIGKILL)
        process.wait()
        Journal.open(tmp_path).close()


def test_what_was_written_survives_its_writer(tmp_path, rng):
    Journal.create(tmp_path, {}).close()
    first = 0
    for _ in range(4):
        with writer(tmp_path, first) as process:
            for _ in range(int(rng.integers(1, 300))):
                told = int(process.stdout.readline())
            process.kill()
            told = max([told, *map(int, process.stdout.read().split())])
            process.wait()
        records, states = read(tmp_path)
        assert len(records) % 4 == 0
        first = len(records) // 4
        assert first > told
        for i, record in enumerate(records):
            expected = block(3 * (i // 4), worker=i % 4)
            if i % 4 == 3:
                expected = task(float(i // 4))
            assert same(record, stored(expected))
        for worker in range(3):
            expected = block(3 * (first - 1), worker=worker)
            assert same(states[expected.key], expected.state)


def test_a_reader_never_sees_half_of_what_was_written_at_once(tmp_path):
    Journal.create(tmp_path, {}).close()
    with writer(tmp_path) as process, JournalReader(tmp_path) as reader:
        records = []
        while len(records) < 800:
            process.stdout.readline()
            records += reader.records()
            assert len(records) % 4 == 0
        assert [record.first_draw for record in records[::4]] == [
            3 * i for i in range(len(records) // 4)
        ]


# ---------------------------------------------------------------- damage


def damaged_row(folder, row, column, value):
    altered(folder, f"UPDATE log SET {column} = {value} WHERE id = {row}")  # noqa: S608


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("header", "replace(header, '\"first_draw\":3', '\"first_draw\":6')"),
        ("header", "header || ' '"),
        ("header", "NULL"),
        ("crc", "crc + 1"),
        ("body", "zeroblob(length(body))"),
        ("body", "3"),
        ("id", "70000"),
    ],
)
def test_a_damaged_row_costs_what_follows_of_its_chain(column, value, tmp_path):
    written = small_journal(tmp_path)
    wanted = block(3, worker=1)[:6]
    row = 1 + next(
        i for i, r in enumerate(written) if isinstance(r, BlockRecord) and r[:6] == wanted
    )
    damaged_row(tmp_path, row, column, value)
    key = ChainKey(1, (1,), 0)
    kept = [
        record
        for record in written
        if not (isinstance(record, BlockRecord) and record.key == key and record.first_draw >= 3)
    ]
    with JournalReader(tmp_path) as reader, pytest.warns(JournalWarning, match=f"row {row}: "):
        assert all(map(same, reader.records(), map(stored, kept)))
    assert reader.chains[key].next_draw == 3
    with pytest.warns(JournalWarning):
        states = read(tmp_path)[1]
    assert [key for key, state in states.items() if state is None] == [key]

    with pytest.warns(JournalWarning) as told:
        journal = Journal.open(tmp_path)
    assert "draws again" in str(told[0].message)
    assert "state of 1 of 3 chains" in str(told[1].message)
    with journal:
        journal.append([block(3 * i, worker=1) for i in range(1, 6)])
    records, states = read(tmp_path)
    assert len(records) == len(written)
    for worker in range(3):
        assert same(states[ChainKey(worker, (worker,), 0)], block(15, worker=worker).state)


def passes():
    """Surveys of two shards and four questions of each of two lanes, with who answered."""
    found = [PassRecord(0.1, -1, shard, {"mode": np.arange(2.0) + shard}) for shard in range(2)]
    for number in range(4):
        for lane in range(2):
            arrays = {"values": np.array([lane, number, -np.inf])}
            arrays |= {"gradients": np.eye(3)} if number == 0 else {}
            time = 1.0 + number
            found += [
                PartAnswered(time, 1, 0, time - 0.5, (0, 1), lane, number, 3, 6),
                PassRecord(time, lane, number, arrays),
            ]
    return found


def test_answers_to_questions_come_back(tmp_path):
    with Journal.create(tmp_path, CONFIGURATION) as journal:
        journal.append(passes())
    records, _ = read(tmp_path)
    assert len(records) == len(passes())
    assert all(map(same, records, passes()))


@pytest.mark.parametrize("damage", ["crc = crc + 1", "body = zeroblob(length(body))"])
@pytest.mark.parametrize("lane", [0, 1])
def test_a_damaged_answer_costs_what_follows_in_its_lane(damage, lane, tmp_path):
    """The questions that follow depend on it; those of the other lane do not, nor do events."""
    with Journal.create(tmp_path, CONFIGURATION) as journal:
        journal.append(passes())
    row = 1 + next(
        i for i, r in enumerate(passes()) if isinstance(r, PassRecord) and r[1:3] == (lane, 1)
    )
    altered(tmp_path, f"UPDATE log SET {damage} WHERE id = {row}")  # noqa: S608
    kept = [
        record
        for record in passes()
        if not (isinstance(record, PassRecord) and record.lane == lane and record.number >= 1)
    ]
    with pytest.warns(JournalWarning, match=f"row {row}: "):
        records, _ = read(tmp_path)
    assert len(records) == len(kept) == len(passes()) - 3
    assert all(map(same, records, kept))
    again = [r for r in passes() if isinstance(r, PassRecord) and r.lane == lane]
    with pytest.warns(JournalWarning), Journal.open(tmp_path) as journal:
        journal.append(again[1:])
    records, _ = read(tmp_path)
    assert [r.number for r in records if isinstance(r, PassRecord) and r.lane == lane] == [
        *range(4)
    ]


def test_a_damaged_survey_costs_nothing_else(tmp_path):
    with Journal.create(tmp_path, CONFIGURATION) as journal:
        journal.append(passes())
    altered(tmp_path, "UPDATE log SET crc = crc + 1 WHERE id = 1")
    with pytest.warns(JournalWarning, match="row 1: "):
        records, _ = read(tmp_path)
    assert all(map(same, records, passes()[1:]))


def test_rows_missing_at_the_end_are_told(tmp_path):
    written = small_journal(tmp_path)
    altered(tmp_path, f"DELETE FROM log WHERE id > {len(written) - 2}")  # noqa: S608
    with pytest.warns(JournalWarning, match="the last 2: missing"):
        records, _ = read(tmp_path)
    assert len(records) == len(written) - 2
    with pytest.warns(JournalWarning), Journal.open(tmp_path) as journal:
        journal.append([task(1.0)])
    assert len(read(tmp_path)[0]) == len(written) - 1


def test_a_damaged_state_is_none(tmp_path):
    small_journal(tmp_path)
    altered(tmp_path, "UPDATE states SET body = zeroblob(length(body)) WHERE id = 1")
    _, states = read(tmp_path)
    assert sorted(state is None for state in states.values()) == [False, False, True]
    with pytest.warns(JournalWarning, match="state of 1 of 3 chains"):
        journal = Journal.open(tmp_path)
    with journal:
        journal.append([block(18)])
    assert same(read(tmp_path)[1][KEY], block(18).state)


HEADERS = [
    [{"kind": "block"}, []],
    [{"kind": "event", "time": 1.0, "what": "lost", "more": 1}, []],
    [{"kind": "fit", "time": 1.0, "worker": 0, "shard": 0, "names": ["a"]}, []],
    [{}, [["O", [1]]]],
    [{}, [["V8", [1]]]],
    [{}, [["<f8", [-1, -1]]]],
    [{}, [["<f8", [10**30]]]],
    [{}, [["no dtype", [1]]]],
    [{}, [["<f8", 3]]],
    [{}],
    3,
]
WRONG_FIELDS = (
    {"first_draw": "0"},
    {"worker": [1]},
    {"shards": [[1]]},
    {"shards": 3},
    {"state": 3},
)
FIELDS = {**block(0)._asdict(), "state": {}, "kind": "block"}
del FIELDS["payload"], FIELDS["extras"]
HEADERS += [[FIELDS | wrong, [["<f8", [1]]]] for wrong in WRONG_FIELDS]
PASS = {"kind": "pass", "time": 1.0, "lane": 0, "number": 0, "names": ["values"]}
WRONG_PASSES = ({"lane": "0"}, {"number": 0.5}, {"number": 1}, {"names": []}, {"more": 1})
HEADERS += [[PASS | wrong, [["<f8", [1]]]] for wrong in WRONG_PASSES]


@pytest.mark.parametrize("header", HEADERS)
def test_rows_that_a_stranger_made_up_are_dropped(header, tmp_path):
    Journal.create(tmp_path, {}).close()
    text, body = json.dumps(header).encode(), bytes(8)
    row = (1, text, journal_rows._checksum("log", 1, text, body), body)
    connection = sqlite3.connect(tmp_path / "journal.sqlite")
    with connection:
        connection.execute("INSERT INTO log VALUES (?, ?, ?, ?)", row)
    connection.close()
    with pytest.warns(JournalWarning, match="row 1"):
        assert read(tmp_path) == ([], {})


def outcome(folder, written):
    """What reading gives of a file in which a bit was flipped; all that is given must be right.

    Returns 'refused', 'warned' or 'whole', and the number of records read.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with JournalReader(folder) as reader:
                assert reader.configuration() == CONFIGURATION
                records = list(reader.records())
                states = dict(reader.states())
        except JournalError:
            return "refused", 0
    rest = iter(map(stored, written))
    assert all(any(same(record, other) for other in rest) for record in records)
    blocks = [record for record in records if isinstance(record, BlockRecord)]
    for key in {record.key for record in blocks}:
        chain = [record for record in blocks if record.key == key]
        ends = [0, *(record.next_draw for record in chain)]
        assert [record.first_draw for record in chain] == ends[:-1]
        last = block(ends[-1] - 3, worker=key.worker)
        assert states[key] is None or same(states[key], last.state)
    return ("warned" if caught else "whole"), len(records)


def resumed(folder):
    """A file that can be gone on with reads without a warning afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JournalWarning)
        try:
            Journal.open(folder).close()
        except JournalError:
            return
    read(folder)


def flips(content, rng, n):
    """Bits to flip: half of them anywhere, half where something is written."""
    used = np.flatnonzero(np.frombuffer(content, np.uint8))
    places = np.concatenate([rng.integers(len(content), size=n // 2), rng.choice(used, n // 2)])
    return [(int(place), int(rng.integers(8))) for place in places]


def flipped(content, place, bit):
    return content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :]


def test_a_flipped_bit_is_never_taken_for_a_draw(tmp_path, rng):
    written = small_journal(tmp_path / "whole")
    content = (tmp_path / "whole" / "journal.sqlite").read_bytes()
    trial = tmp_path / "trial"
    headers = [(place, int(rng.integers(8))) for place in range(100)]
    seen = set()
    for place, bit in headers + flips(content, rng, 160):
        shutil.rmtree(trial, ignore_errors=True)
        trial.mkdir()
        (trial / "journal.sqlite").write_bytes(flipped(content, place, bit))
        how, n_records = outcome(trial, written)
        assert how != "whole" or n_records == len(written), (place, bit)
        seen.add(how)
        resumed(trial)
    assert seen == {"refused", "warned", "whole"}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A journal as it lies there when its writer was killed, half of its rows in the log."""
    folder = tmp_path_factory.mktemp("killed")
    small_journal(folder / "source")
    with Journal.open(folder / "source") as journal:
        written = list(map(stored, read(folder / "source")[0]))
        for i in range(6, 12):
            written += [block(3 * i, worker=w) for w in range(3)]
            journal.append(written[-3:])
        shutil.copytree(folder / "source", folder / "run")
    (folder / "run" / "journal.sqlite-shm").unlink()
    return folder / "run", list(map(stored, written))


def losses(folder):
    """Number of rows that a reader says are lost, of how many; None if it says nothing."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read(folder)
    told = [re.search(r"(\d+) of (\d+) rows are lost", str(w.message)) for w in caught]
    return tuple(map(int, told[0].groups())) if told else None


def test_a_flipped_bit_in_the_log_costs_at_most_the_end_and_is_told(killed, tmp_path, rng):
    source, written = killed
    content = (source / "journal.sqlite-wal").read_bytes()
    trial, n_lost = tmp_path / "trial", set()
    for place, bit in flips(content, rng, 60):
        shutil.rmtree(trial, ignore_errors=True)
        shutil.copytree(source, trial)
        (trial / "journal.sqlite-wal").write_bytes(flipped(content, place, bit))
        how, n_records = outcome(trial, written)
        assert n_records == len(written) or how == "warned"
        n_lost.add(len(written) - n_records)
        if how == "warned":
            assert losses(trial) == (len(written) - n_records, len(written))
        resumed(trial)
    assert len(n_lost) > 1


@pytest.mark.parametrize("damage", ["unlinked", "emptied", "cut"])
def test_a_lost_log_is_told(damage, killed, tmp_path):
    source, written = killed
    folder = shutil.copytree(source, tmp_path / "run")
    log = folder / "journal.sqlite-wal"
    if damage == "unlinked":
        log.unlink()
    else:
        os.truncate(log, 0 if damage == "emptied" else log.stat().st_size // 2)
    n_lost, n_rows = losses(folder)
    assert n_rows == len(written)
    assert n_lost == 18 if damage != "cut" else 0 < n_lost < 18
    with pytest.warns(JournalWarning), Journal.open(folder) as journal:
        journal.append([task(1.0)])
    assert losses(folder) is None
    assert len(read(folder)[0]) == len(written) - n_lost + 1


@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_a_lost_count_is_told(damage, killed, tmp_path):
    source, written = killed
    folder = shutil.copytree(source, tmp_path / "run")
    lock = folder / "journal.lock"
    if damage == "missing":
        lock.unlink()
    else:
        lock.write_bytes(flipped(lock.read_bytes(), 30, 0))
    with pytest.warns(JournalWarning, match=r"journal\.lock is damaged or missing"):
        assert len(read(folder)[0]) == len(written)


def test_a_closed_journal_is_one_file(tmp_path):
    def files():
        return [path.name for path in tmp_path.iterdir()]

    small_journal(tmp_path)
    assert files() == ["journal.sqlite"]
    read(tmp_path)
    assert files() == ["journal.sqlite"]
    journal = Journal.open(tmp_path)
    with JournalReader(tmp_path) as reader:
        journal.append([task(1.0)])
        next(reader.records())
        journal.close()
    read(tmp_path)
    assert files() == ["journal.sqlite"]


def test_rows_move_into_the_file_once_a_second(tmp_path, monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr("quorate.journal.writer.time.monotonic", lambda: 0.6 * next(clock))
    with Journal.create(tmp_path, {}) as journal:
        for i in range(20):
            journal.append([block(3 * i)])
        copy = tmp_path / "copy"
        copy.mkdir()
        shutil.copy(tmp_path / "journal.sqlite", copy)
    assert len(read(copy)[0]) >= 18


def test_a_journal_that_is_removed_or_moved_ends_its_writer(tmp_path):
    for name in ("removed", "moved"):
        with Journal.create(tmp_path / name, {}) as journal:
            journal.append([block(0)])
            if name == "removed":
                shutil.rmtree(tmp_path / name)
            else:
                (tmp_path / name).rename(tmp_path / "elsewhere")
            with pytest.raises(JournalError, match="was removed or moved"):
                journal.append([block(3)])
    assert len(read(tmp_path / "elsewhere")[0]) == 1
