"""The kept chains of an exact run: the same bits as a replay, and never those of another run."""

import shutil

import numpy as np
import pytest

import quorate
from helpers.processes import MeanModel, killed_when_it_speaks
from quorate.errors import JournalError, JournalWarning
from quorate.journal import Journal, JournalReader
from quorate.journal.file import connect
from quorate.run import snapshot
from quorate.run.history import History

N_FLIPS = 40


@pytest.fixture(scope="module")
def often():
    """A file is written whenever the journal is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "LEAST", 1)
        patch.setattr(snapshot, "_SHARE", 10**9)
        yield


@pytest.fixture(scope="module")
def run(often, request, tmp_path_factory):
    """A run with its file, resumed once for more draws."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    return sampled(folder, int(request.config.getoption("--seed")))


def sampled(folder, seed):
    rows = {"z": np.random.default_rng(seed).normal([1.0, -2.0], size=(60, 2))}
    options = {"workers": 2, "method": "exact", "check": False, "progress": False}
    quorate.sample(MeanModel(), rows, run_dir=folder, seed=seed, draws=300, **options)
    if (folder / snapshot.NAME).exists():
        shutil.copy(folder / snapshot.NAME, folder.with_name("earlier"))
    quorate.resume(folder, draws=700, check=False, progress=False)
    return folder


@pytest.fixture
def copy(run, tmp_path):
    return shutil.copytree(run, tmp_path / "copy")


def is_taken(folder):
    with History(folder) as history:
        next(history._shortcut.records())
        return history._shortcut.is_taken


def told(folder):
    """Everything that readers of a journal see."""
    with History(folder) as history:
        history.read()
        blocks, inquiry = history.blocks(), history.passes.inquiry
        chains = [ensemble.draws for ensemble in inquiry.ensembles]
        arrays = [history.global_draws(), blocks.n_global, blocks.ends, *chains]
        asked = {lane: asked.number for lane, asked in inquiry.open.items()}
        return arrays, (history.n_passes, history.passes.phases(), inquiry.evidence, asked)


def assert_same(one, other):
    assert one[1] == other[1]
    for mine, its in zip(one[0], other[0], strict=True):
        np.testing.assert_array_equal(mine, its)


@pytest.fixture
def replayed(run, tmp_path):
    """What a replay of all answers tells."""
    without = shutil.copytree(run, tmp_path / "without")
    (without / snapshot.NAME).unlink()
    assert not is_taken(without)
    return told(without)


def test_a_journal_reads_the_same_with_the_file(run, replayed):
    assert is_taken(run)
    assert_same(told(run), replayed)


def test_a_file_of_an_earlier_time_is_used_as_far_as_it_goes(run, copy, replayed):
    """As after a kill: the file of 300 draws, and the journal of 700."""
    shutil.copy(run.with_name("earlier"), copy / snapshot.NAME)
    assert is_taken(copy)
    assert_same(told(copy), replayed)


@pytest.mark.parametrize("which", ["last", "earlier", "none"])
def test_a_resumed_run_goes_on_with_the_same_bits(which, run, copy):
    options = {"draws": 1500, "check": False, "progress": False}
    whole = quorate.resume(shutil.copytree(run, copy.with_name("whole")), **options)
    (copy / snapshot.NAME).unlink()
    if which != "none":
        shutil.copy({"last": run / snapshot.NAME, "earlier": run.with_name("earlier")}[which],
                    copy / snapshot.NAME)  # fmt: skip
    found = quorate.resume(copy, **options)
    np.testing.assert_array_equal(found.unconstrained, whole.unconstrained)
    assert found.n_passes == whole.n_passes


KILLED = """
import sys
from pathlib import Path
import numpy as np
import quorate
from helpers.processes import MeanModel
from quorate.run import snapshot

snapshot.LEAST = 1

def tell(progress):
    if (Path({run!r}) / snapshot.NAME).exists():
        print("kept", flush=True)
        sys.stdin.read()  # until it is killed

rows = dict(z=np.random.default_rng({seed}).normal([1.0, -2.0], size=(60, 2)))
quorate.sample(MeanModel(), rows, workers=2, method="exact", draws={draws}, seed={seed},
               run_dir={run!r}, check=False, progress=tell, every=0.0)
"""


def test_a_run_that_is_killed_goes_on_from_the_file(tmp_path, seed):
    run, draws = tmp_path / "run", 6000
    assert killed_when_it_speaks(KILLED.format(run=str(run), seed=seed, draws=draws)) == "kept"
    assert is_taken(run)
    resumed = quorate.resume(run, check=False, progress=False)
    rows = {"z": np.random.default_rng(seed).normal([1.0, -2.0], size=(60, 2))}
    options = {"workers": 2, "method": "exact", "check": False, "progress": False}
    options["run_dir"] = tmp_path / "whole"
    whole = quorate.sample(MeanModel(), rows, draws=draws, seed=seed, **options)
    np.testing.assert_array_equal(resumed.unconstrained, whole.unconstrained)


def test_no_flipped_byte_of_the_file_is_used(copy, replayed, rng):
    path = copy / snapshot.NAME
    content = path.read_bytes()
    header = rng.integers(0, 400, N_FLIPS // 2).tolist()
    for place in {*header, *rng.integers(len(content), size=N_FLIPS // 2).tolist()}:
        flipped = bytearray(content)
        flipped[place] ^= rng.integers(1, 256)
        path.write_bytes(flipped)
        assert not is_taken(copy), place
    assert_same(told(copy), replayed)
    for n_bytes in (0, 10, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:n_bytes])
        assert not is_taken(copy)
    path.write_bytes(content + b"0")
    assert not is_taken(copy)
    path.write_bytes(content)  # the control
    assert is_taken(copy)


def test_the_file_of_another_run_is_not_used(copy, replayed, often, tmp_path, seed):
    (tmp_path / "other").mkdir()
    other = sampled(tmp_path / "other" / "run", seed + 1)
    shutil.copy(other / snapshot.NAME, copy / snapshot.NAME)
    assert not is_taken(copy)
    assert_same(told(copy), replayed)


def test_a_link_is_not_followed(run, copy):
    (copy / snapshot.NAME).unlink()
    (copy / snapshot.NAME).symlink_to(run / snapshot.NAME)
    assert not is_taken(copy)


def test_rows_that_are_damaged_are_told_as_without_the_file(copy):
    with JournalReader(copy) as reader:
        n_rows = sum(1 for _ in reader.records())
    connection = connect(copy, writable=True)
    with_body = "SELECT max(id) FROM log WHERE id <= ? AND length(body) > 0"
    change = f"UPDATE log SET body = zeroblob(length(body)) WHERE id = ({with_body})"  # noqa: S608
    connection.execute(change, (n_rows // 2,))
    connection.close()
    assert not is_taken(copy)
    with pytest.warns(JournalWarning, match="rows are lost"):
        told(copy)
    with pytest.warns(JournalWarning, match="rows are lost"):
        quorate.resume(copy, check=False, progress=False)


def test_a_file_that_was_made_up_is_refused_in_words(copy):
    """Right by its checksums, but not what the answers lead to."""
    with History(copy) as history:
        history.read()
        state = dict(history.scheme.state())
    with Journal.open(copy) as journal:
        made_of = journal.fingerprint()
    made_up = [
        {"made": state["made"][:-1]},
        {"made": state["made"] + 1},
        {"0/_step": state["0/_step"] + 10**6},
        {"0/kept_z": state["0/kept_z"][:-1]},
        {"n_answered": np.zeros(0, dtype=np.int64)},
    ]
    for change in made_up:
        snapshot._write(copy / snapshot.NAME, *made_of, state | change)
        with pytest.raises(JournalError, match=r"does not fit its|does not fit its run"):
            told(copy)
    snapshot._write(copy / snapshot.NAME, *made_of, state)  # the control
    told(copy)


@pytest.mark.parametrize(
    ("limit", "value", "is_there"),
    [("LEAST", 2**20, False), ("_MOST", 0, True), ("RESERVE", 2**80, False)],
    ids=["little to replay", "large: written at the end", "no room on the disk"],
)
def test_when_there_is_a_file(limit, value, is_there, often, tmp_path, seed, monkeypatch):
    monkeypatch.setattr(snapshot, limit, value)
    sampled(tmp_path / "run", seed)
    assert (tmp_path / "run" / snapshot.NAME).exists() == is_there


class Other:
    """A scheme of another class that can go ahead, too."""

    def __init__(self):
        self.told = []

    def replay_work(self):
        return 0

    def state(self):
        return {}

    def go_ahead_to(self, state):
        self.told += set(state) & {"made"}

    def arrive(self):
        self.told.append("arrived")


@pytest.mark.parametrize(("scheme", "told"), [(Other(), ["made", "arrived"]), (object(), [])])
def test_any_scheme_that_can_go_ahead_is_given_the_file(scheme, told, copy):
    with History(copy) as history:
        shortcut = snapshot.Shortcut(copy, history._reader, scheme)
        assert list(shortcut.records())
    assert shortcut.is_taken == bool(told)
    assert getattr(scheme, "told", []) == told
