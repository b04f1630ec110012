"""Damaged journals: as much of them as can be read, in a new one, with a count of the rest."""

import os
import shutil
import tracemalloc
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

import quorate
from helpers.journal_blocks import block
from helpers.processes import MeanModel
from quorate.cli import main
from quorate.errors import JournalError, JournalWarning
from quorate.journal import (
    BlockRecord,
    Finished,
    Journal,
    JournalReader,
    PartAnswered,
    PassRecord,
    Started,
)
from quorate.journal.salvage import salvage

NAME, PAGE = "journal.sqlite", 16384
DATE = "2026-11-16T00:00:00+00:00"


def records_of_all_kinds():
    """Blocks small and large, some over many pages; surveys, answers and events."""
    found = [Started(0.0, date=DATE)]
    for i in range(60):
        n = 3000 if i % 10 == 0 else 30
        first = sum(3000 if j % 10 == 0 else 30 for j in range(i))
        found += [block(first, n, worker=w) for w in range(2)]
        found.append(PartAnswered(1.0, 0, 0, 0.5, (0,), 0, i, 4, 4))
        found.append(PassRecord(1.0, 0, i, {"values": np.arange(4.0) + i}))
    return [*found, Finished(9.0, "done", date=DATE)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    with Journal.create(folder, {"seed": 1}) as journal:
        for record in records_of_all_kinds():
            journal.append([record])
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def plain(record):
    """A record as bytes and numbers, for comparisons."""
    if isinstance(record, BlockRecord):
        return (*record[:6], record.payload.tobytes())
    if isinstance(record, PassRecord):
        return (*record[:3], *(array.tobytes() for array in record.arrays.values()))
    return record


def read(folder):
    with JournalReader(folder) as reader:
        return list(map(plain, reader.records())), dict(reader.states())


def check_salvaged(folder):
    """Salvage a journal; all that it has then was written, and the rest is counted."""
    damaged = (folder / NAME).read_bytes()
    saved = salvage(folder)
    records, states = read(folder)
    written = list(map(plain, records_of_all_kinds()))
    rest = iter(written)
    assert all(any(record == other for other in rest) for record in records)
    assert saved.n_lost == saved.n_rows - len(records)
    assert saved.n_blocks + saved.n_answers + saved.n_events == len(records)
    assert saved.n_chains == len(states)
    assert saved.n_stateless == sum(state is None for state in states.values())
    assert (saved.kept / NAME).read_bytes() == damaged
    assert sorted(path.name for path in folder.iterdir()) == ["journal.damaged", NAME]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if saved.n_stateless else "error", JournalWarning)
        Journal.open(folder).close()
    return saved


def test_a_truncated_file_is_salvaged_as_far_as_it_goes(whole, tmp_path):
    n_rows, n_lost = len(records_of_all_kinds()), []
    for share in (0.1, 0.3, 0.6, 0.9, 0.9999):
        folder = shutil.copytree(whole, tmp_path / str(share))
        os.truncate(folder / NAME, int(share * (folder / NAME).stat().st_size))
        with pytest.raises(JournalError, match=r"`quorate salvage RUN`"):
            Journal.open(folder)
        saved = check_salvaged(folder)
        assert saved.n_rows == n_rows
        assert f"{saved.n_lost} rows are lost" in str(saved)
        n_lost.append(saved.n_lost)
    assert n_rows > n_lost[1] > n_lost[2] > n_lost[4]
    assert n_lost == sorted(n_lost, reverse=True)
    assert n_lost[4] < n_rows / 4


def test_a_page_in_the_middle_costs_what_it_held(folder):
    content = bytearray((folder / NAME).read_bytes())
    middle = len(content) // PAGE // 2 * PAGE
    content[middle : middle + PAGE] = bytes(PAGE)
    (folder / NAME).write_bytes(content)
    saved = check_salvaged(folder)
    assert saved.n_rows == len(records_of_all_kinds())
    assert 0 < saved.n_lost < saved.n_rows


def test_pages_that_lead_nowhere_cost_nothing(folder):
    content = (folder / NAME).read_bytes()
    pages = [bytearray(content[i : i + PAGE]) for i in range(0, len(content), PAGE)]
    roots = [page for page in pages[1:] if page[0] == 0x05]
    assert roots
    for page in roots:
        page[:] = bytes(PAGE)
    (folder / NAME).write_bytes(b"".join(pages))
    saved = check_salvaged(folder)
    assert saved.n_rows == len(records_of_all_kinds())
    assert saved.n_lost == 0


def test_rows_behind_the_damage_of_a_log_come_back(tmp_path):
    """SQLite ends where the log is damaged; the rows behind it can be read all the same."""
    written, live, folder = records_of_all_kinds(), tmp_path / "live", tmp_path / "run"
    with Journal.create(live, {"seed": 1}) as journal:
        for record in written:
            journal.append([record])
        shutil.copytree(live, folder)
    (folder / f"{NAME}-shm").unlink()
    log = bytearray((folder / f"{NAME}-wal").read_bytes())
    log[32 + 24 + 5000] ^= 1  # in the first frame
    (folder / f"{NAME}-wal").write_bytes(log)
    saved = check_salvaged(folder)
    assert saved.n_rows == len(written)
    assert saved.n_lost < len(written) / 10


def test_a_whole_journal_stays_as_it_is(folder):
    before = (folder / NAME).read_bytes()
    assert salvage(folder) is None
    assert [path.name for path in folder.iterdir()] == [NAME]
    assert (folder / NAME).read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"draws", bytes(3 * PAGE), None])
def test_nothing_to_salvage(content, tmp_path, rng):
    (tmp_path / NAME).write_bytes(rng.bytes(3 * PAGE) if content is None else content)
    with pytest.raises(JournalError, match="lost the configuration"):
        salvage(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def page_of_endless_rows(n_rows, n_bytes):
    """A page whose rows have so many bytes each, by their own word, all of them on page 2."""
    least = (PAGE - 12) * 32 // 255 - 23  # what lies in the page itself of a row as long as these
    length = least + n_bytes // (PAGE - 4) * (PAGE - 4)
    groups = [length >> 7 * i & 0x7F for i in range(8, -1, -1)][1:]
    size = bytes(group | 0x80 for group in groups[:-1]) + bytes(groups[-1:])
    cell = size + b"\x01" + bytes(least) + (2).to_bytes(4, "big")
    header = b"\x0d\0\0" + n_rows.to_bytes(2, "big") + bytes(3)
    start = PAGE - len(cell)
    return (header + start.to_bytes(2, "big") * n_rows).ljust(start, b"\0") + cell


@pytest.mark.parametrize(("n_rows", "n_bytes"), [(1, 2**50), (1000, 50 * PAGE)])
def test_pages_that_lead_in_a_circle_take_neither_time_nor_memory(n_rows, n_bytes, tmp_path):
    """A stranger's file: a row that never ends, and many rows that share all pages."""
    page = page_of_endless_rows(n_rows, n_bytes)
    circle = (2).to_bytes(4, "big") + bytes(PAGE - 4)
    (tmp_path / NAME).write_bytes(page + circle + bytes(100 * PAGE))
    tracemalloc.start()
    try:
        with pytest.raises(JournalError, match="lost the configuration"):
            salvage(tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * 100 * PAGE


def test_damage_anywhere_is_survived(whole, tmp_path, rng):
    content = (whole / NAME).read_bytes()
    outcomes = set()
    for i in range(30):
        damaged = bytearray(content)
        for place in rng.integers(len(content), size=int(10 ** rng.uniform(0, 4))):
            damaged[place] = rng.integers(256)
        folder = tmp_path / str(i)
        folder.mkdir()
        (folder / NAME).write_bytes(damaged[: rng.integers(len(damaged))])
        try:
            outcomes.add(check_salvaged(folder).n_lost > 0)
        except JournalError:
            outcomes.add("refused")
    assert True in outcomes


def test_a_run_goes_on_from_what_was_salvaged(tmp_path):
    run, rows = tmp_path / "run", {"z": np.random.default_rng(1).normal(size=(100, 2))}
    options = {"method": "merge", "scheme": "cmc", "sampler": "ellipse", "check": False}
    before = quorate.sample(
        MeanModel(), rows, workers=2, draws=5000, run_dir=run, progress=False, **options
    )
    os.truncate(run / NAME, (run / NAME).stat().st_size // 2)
    said = CliRunner().invoke(main, ["salvage", str(run)])
    assert said.exit_code == 0
    assert "rows are lost; a resumed run draws again what they held" in said.output
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JournalWarning)  # times decide if states of chains are lost
        after = quorate.resume(run, progress=False, check=False)
    np.testing.assert_array_equal(after.unconstrained, before.unconstrained)
    said = CliRunner().invoke(main, ["salvage", str(run)])
    assert "nothing to salvage" in said.output
