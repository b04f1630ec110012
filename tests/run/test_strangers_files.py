"""Journals and folders that a stranger has made: refused in a sentence, and nothing is executed.

`QUORATE_FUZZ=5000` tries more journals.
"""

import json
import os
import sqlite3
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.journals import a_run, block, configuration, exact_run, passes_of, write
from helpers.processes import unprivileged
from quorate.cli import main
from quorate.data.write import write_shards
from quorate.errors import BadInputError, JournalWarning, QuorateError, SaveError
from quorate.journal import Journal, PassRecord, Started
from quorate.journal import records as rows
from quorate.journal.salvage import salvage
from quorate.report import report, write_report
from quorate.run.history import History

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - nothing is synced there
N_FUZZ = int(os.environ.get("QUORATE_FUZZ", "200"))


def journal(folder, kept, records=()):
    with Journal.create(folder, kept) as made:
        made.append([Started(0.0), *records])
    return folder


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"workers": 10**7}, "workers and 2 shards"),
        ({"workers": "2"}, "workers and 2 shards"),
        ({"draws": -1}, "draws must be"),
    ],
)
def test_settings_that_cannot_be(changes, match, tmp_path):
    kept = configuration()
    kept["settings"] |= changes
    with pytest.raises(BadInputError, match=match):
        report(journal(tmp_path, kept))


def test_very_many_workers_are_refused_at_once(tmp_path):
    kept = configuration()
    kept["settings"]["workers"], kept["shards"] = 10**5, [""] * 10**5
    with pytest.raises(BadInputError, match="more than 10,000 workers"):
        report(journal(tmp_path, kept))


@pytest.mark.parametrize(
    "changes",
    [{"dim": 3}, {"dim": 10**9}, {"names": [1, 2]}, {"names": None}, {"shards": {}}, {"rows": 3}],
)
def test_configurations_that_do_not_fit_together(changes, tmp_path):
    with pytest.raises(BadInputError, match="does not describe a run"):
        report(journal(tmp_path, configuration() | changes))


@pytest.mark.parametrize(
    ("record", "match"),
    [
        (block(1.0, 0, dim=3), "draws have shape"),
        (block(1.0, 0)._replace(payload=np.zeros((4, 2))), "draws have shape"),
        (block(1.0, 0)._replace(payload=np.full((4, 2, 2), np.nan)), "not numbers"),
        (block(1.0, 7), "no worker 7"),
        (block(1.0, 0, shards=(0, 9)), "shards are"),
        (block(np.inf, 0), "its time is"),
        (PassRecord(1.0, 0, 0, {"values": np.zeros(3)}), "a merge asks no questions"),
    ],
)
def test_records_that_do_not_fit(record, match, tmp_path):
    with pytest.raises(QuorateError, match=match):
        report(journal(tmp_path, configuration(), [record]))


def test_complex_columns_are_refused_with_the_way_out(tmp_path):
    with pytest.raises(BadInputError, match="Column `z` holds complex numbers"):
        write_shards({"z": np.ones(4) + 1j}, 2, tmp_path / "shards")


# ---------------------------------------------------------------- folders


def test_a_report_does_not_follow_a_link(tmp_path):
    run = write(tmp_path / "run", a_run())
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (run / "report.html").symlink_to(precious)
    said = CliRunner().invoke(main, ["report", str(run)])
    assert said.exit_code == 2
    assert "symbolic link" in said.output
    assert precious.read_text() == "mine"


def test_a_report_is_not_written_over_a_device(tmp_path):
    run = write(tmp_path / "run", a_run())
    with pytest.raises(BadInputError, match="no plain file"):
        write_report(run, Path("/dev/full"))


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"3", b'{"a": 3}', b'{"a": {"mean": "x"}}', b'{"a": {}, "b": {"c": 1}}',
     b"\xff\xfe", b"[" * 100_000],
)  # fmt: skip
def test_a_bad_summary_is_refused_in_words(content, tmp_path):
    (tmp_path / "summary.json").write_bytes(content)
    said = CliRunner().invoke(main, ["summary", str(tmp_path)])
    assert said.exit_code == 2
    assert isinstance(said.exception, SystemExit)
    assert "summary.json" in said.output.replace("\n", "")


def test_folders_that_cannot_be_written_are_told_in_words():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = write(folder / "run", a_run())
        for part in (folder, run):
            part.chmod(0o555)
        commands = (
            ["report", str(run)],
            ["resume", str(run)],
            ["check", str(run)],
            ["salvage", str(run)],
        )
        try:
            for command in commands:
                with unprivileged():
                    said = CliRunner().invoke(main, command)
                assert said.exit_code == 2, (command, said.exception)
                assert "ermission" in said.output or "cannot be" in said.output
            with unprivileged():
                assert "Workers" in report(run)
                with pytest.raises(SaveError, match="Permission denied"):
                    write_shards({"z": np.ones(4)}, 2, run / "new" / "shards")
        finally:
            for part in (folder, run):
                part.chmod(0o755)


# ---------------------------------------------------------------- a fuzzer

odd = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 2, 7, 2**31, 2**63, 10**30, 10**400, 0.5, 1e308, 1e-320]),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(
        ["../../x", "__import__('os')", "<script>", "\0", "adaptive", "coded", "exact"]
    ),
    st.lists(st.integers(-2, 9), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
arrays = st.tuples(
    st.sampled_from(["<f8", "<c16", "<i8", "|b1", "|u1", ">f4"]),
    st.lists(st.integers(0, 4), max_size=3),
)


def leaves(value, path=()):
    """Paths to all parts of a value of JSON."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*path, key))


def changed(value, path, new):
    """The value with another part in one place."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy


_ROWS = {name: f"SELECT id, header, body FROM {name}" for name in ("run", "log")}  # noqa: S608
_PUT = {name: f"INSERT INTO {name} VALUES (?, CAST(? AS TEXT), ?, ?)" for name in _ROWS}  # noqa: S608


def seeds(folder, kind):
    """Rows of an honest journal: (table, number, header, body)."""
    if kind == "exact":
        exact_run(folder)
    elif kind == "coded":
        write(folder, [], scheme="coded", workers=2, redundancy=1)
    else:
        write(folder, a_run())
    connection = sqlite3.connect(folder / "journal.sqlite")
    found = [
        (table, number, json.loads(header), body)
        for table in ("run", "log")
        for number, header, body in connection.execute(_ROWS[table])
    ]
    connection.close()
    return found


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    return {
        kind: seeds(tmp_path_factory.mktemp(kind) / "run", kind)
        for kind in ("merge", "exact", "coded")
    }


def forged(folder, table_rows):
    """A journal of these rows, with checksums that hold."""
    Journal.create(folder, {}).close()
    connection = sqlite3.connect(folder / "journal.sqlite")
    with connection:
        connection.execute("DELETE FROM run")
        for table, number, header, body in table_rows:
            text = json.dumps(header).encode("utf-8", "surrogatepass")
            row = (number, text, rows._checksum(table, number, text, body), body)
            connection.execute(_PUT[table], row)
    connection.close()


# A row, a place in it, whether to change its arrays if it has any, a new value, and new arrays.
changes = st.tuples(
    st.integers(0, 39),
    st.integers(0, 999),
    st.booleans(),
    odd,
    st.lists(arrays, min_size=8, max_size=8),
)


def forged_rows(table_rows, change):
    """Rows of which one has changed."""
    row, place, is_of_arrays, new, new_arrays = change
    where = row % len(table_rows)
    table, number, header, body = table_rows[where]
    has_arrays = isinstance(header, list) and header and isinstance(header[-1], list)
    if is_of_arrays and has_arrays:
        header = [header[0], [list(pair) for pair in new_arrays[: len(header[-1])]]]
        body = bytes(sum(np.dtype(d).itemsize * int(np.prod(s)) for d, s in header[1]))
    else:
        paths = list(leaves(header))
        header = changed(header, paths[place % len(paths)], new)
    return [*table_rows[:where], (table, number, header, body), *table_rows[where + 1 :]]


@settings(max_examples=N_FUZZ)
@given(
    kind=st.sampled_from(["merge", "merge", "exact", "coded"]),
    each=st.lists(changes, min_size=1, max_size=3),
    is_reported=st.integers(0, 24).map(lambda n: n == 24),  # a report takes a second
)
def test_forged_journals_give_errors_in_words_and_execute_nothing(honest, kind, each, is_reported):
    table_rows = list(honest[kind])
    for change in each:
        table_rows = forged_rows(table_rows, change)
    also = (report,) if is_reported else ()
    with tempfile.TemporaryDirectory(dir=MEMORY) as name, warnings.catch_warnings():
        warnings.simplefilter("error")
        for category in (JournalWarning, RuntimeWarning):
            warnings.simplefilter("ignore", category)
        folder = Path(name)
        forged(folder, table_rows)
        for use in (read_through, *also, opened, salvage):
            with suppress(QuorateError):
                use(folder)
        assert not [p for p in folder.rglob("*") if "journal" not in str(p.relative_to(folder))]


def read_through(folder):
    with History(folder) as history:
        history.read()
        history.global_draws()


def opened(folder):
    Journal.open(folder).close()


def test_honest_journals_are_read(honest, tmp_path):
    for kind, table_rows in honest.items():
        (tmp_path / kind).mkdir()
        forged(tmp_path / kind, table_rows)
        assert "Workers" in report(tmp_path / kind)
    assert passes_of(tmp_path / "exact")
