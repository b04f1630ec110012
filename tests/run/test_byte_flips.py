"""Random byte flips over all files of a run.

Each is reported with a count of what is lost, or changes nothing that is read.

`QUORATE_FLIPS=200` tries more of them.
"""

import hashlib
import os
import re
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

import quorate
from helpers.processes import MeanModel
from quorate.data.write import ShardSet
from quorate.engines.packing import packed
from quorate.errors import JournalError, JournalWarning, QuorateError
from quorate.journal import Journal, JournalReader
from quorate.journal.salvage import salvage
from quorate.results.saved import load_draws
from quorate.run import kept_model

N_FLIPS = int(os.environ.get("QUORATE_FLIPS", "40"))
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - nothing is synced there
N_SHARDS, N_ROWS = 2, 50  # rows of each shard
# What is said of damage, by the file: how much of it is lost, or that nothing is
READABLE = r"; ([\d,]+) of its ([\d,]+) rows can be read"
OF_JOURNAL = [
    READABLE,
    r"\d+ of \d+ rows are lost",
    r"has lost the state of \d+ of \d+ chains",
    r"\d+ rows can be read\. journal\.lock is damaged or missing",
]
COUNTS = {
    "model.pkl": ["All draws are in the journal"],
    "draws.npz": ["All draws are in the journal"],
    "manifest.json": [rf"the {N_SHARDS} shards beside it"],
    "array-000.npy": [rf"with {N_ROWS} rows, is damaged"],
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A finished run whose journal was then copied in the middle of being written."""
    folder = tmp_path_factory.mktemp("flips")
    rows = {"z": np.random.default_rng(1).normal(size=(N_SHARDS * N_ROWS, 2))}
    quorate.sample(
        MeanModel(), rows, run_dir=folder / "run", workers=N_SHARDS, draws=400, method="merge",
        scheme="cmc", sampler="ellipse", check=False, progress=False,
    )  # fmt: skip
    with JournalReader(folder / "run") as reader:
        kept, records = reader.configuration(), list(reader.records())
    shutil.move(folder / "run" / "journal.sqlite", folder / "journal.sqlite")
    with Journal.create(folder / "run", kept) as journal:
        for record in records:
            journal.append([record])
        shutil.copytree(folder / "run", folder / "killed")
    (folder / "killed" / "journal.sqlite-shm").unlink()
    return folder / "killed"


def digest(folder):
    """A digest of everything that is read of a run: journal, model, shards and draws."""
    found = hashlib.sha256()
    with JournalReader(folder) as reader:
        kept = reader.configuration()
        reader.check_structure()
        for record in reader.records():
            found.update(repr(record).encode())
            for array in (getattr(record, "payload", np.empty(0)),):
                found.update(array.tobytes())
        for key, state in reader.states():
            arrays = state or {}
            found.update(repr((key, state is None, list(arrays))).encode())
            for array in arrays.values():
                found.update(array.tobytes())
    model, sampler = kept_model.opened(folder, kept, None)
    found.update(packed({"model": model, "sampler": sampler}))
    shards = ShardSet.open(folder / "shards")
    shards.verify()
    found.update(shards.fingerprint.encode())
    for name, draws in load_draws(folder).items():
        found.update(name.encode() + draws.tobytes())
    return found.hexdigest()


def files_of(folder):
    names = ("journal.sqlite", "journal.sqlite-wal", "journal.lock", "model.pkl", "draws.npz")
    arrays = sorted((folder / "shards").rglob("*.*"))
    return [*(folder / name for name in names), *arrays]


def outcome(folder):
    """How a folder reads: 'told', with all that was said, or 'read' with the digest."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = digest(folder)
            Journal.open(folder).close()  # warns of states that are lost
        except QuorateError as error:
            return "told", str(error)
    told = [str(w.message) for w in caught if issubclass(w.category, JournalWarning)]
    return ("told", " ".join(told)) if told else ("read", found)


def flipped(folder, i, rng):
    """Change a byte of one of the files of a run; returns its path."""
    files = files_of(folder)
    path = files[i % len(files)]
    content = bytearray(path.read_bytes())
    content[rng.integers(len(content))] ^= rng.integers(1, 256)
    path.write_bytes(content)
    return path


def check_what_is_readable(said, folder, n_written):
    """A journal that is refused: the rows that it says can be read are those that are salvaged."""
    found = re.search(READABLE, said)
    n_readable, n_rows = (int(number.replace(",", "")) for number in found.groups())
    assert n_rows == n_written
    if "restore it from a copy" in said:  # there is no configuration
        with pytest.raises(JournalError, match="has lost the configuration"):
            salvage(folder)
        return
    saved = salvage(folder)
    assert saved.n_rows == n_rows
    assert saved.n_rows - saved.n_lost <= n_readable <= n_rows


def test_no_flipped_byte_is_silent(killed, rng):
    whole = digest(killed)
    with JournalReader(killed) as reader:
        n_written = len(list(reader.records()))
    told = set()
    for i in range(N_FLIPS):
        with tempfile.TemporaryDirectory(dir=MEMORY) as name:
            folder = shutil.copytree(killed, Path(name) / "run")
            path = flipped(folder, i, rng)
            how, said = outcome(folder)
            if how == "read":
                assert said == whole, path
                continue
            counts = COUNTS.get(path.name, OF_JOURNAL)
            assert any(re.search(count, said) for count in counts), (path.name, said)
            if re.search(READABLE, said):
                check_what_is_readable(said, folder, n_written)
            told.add(path.name)
    assert {"journal.sqlite-wal", "model.pkl", "draws.npz", "manifest.json"} <= told
