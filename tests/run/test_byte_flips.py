"""Random byte flips over all files of a run: each is told, or changes nothing that is read.

`QUORATE_FLIPS=200` tries more of them.
"""

import hashlib
import os
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
from quorate.errors import JournalWarning, QuorateError
from quorate.journal import Journal, JournalReader
from quorate.results.saved import load_draws
from quorate.run import kept_model

N_FLIPS = int(os.environ.get("QUORATE_FLIPS", "40"))
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - nothing is synced there


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A finished run whose journal was then copied in the middle of being written."""
    folder = tmp_path_factory.mktemp("flips")
    rows = {"z": np.random.default_rng(1).normal(size=(100, 2))}
    quorate.sample(
        MeanModel(), rows, run_dir=folder / "run", workers=2, draws=400, method="merge",
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
    """How a folder reads: 'told', with what was said, or 'read' with the digest."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = digest(folder)
            Journal.open(folder).close()  # warns of states that are lost
        except QuorateError as error:
            return "told", str(error)
    told = [str(w.message) for w in caught if issubclass(w.category, JournalWarning)]
    return ("told", told[0]) if told else ("read", found)


def test_no_flipped_byte_is_silent(killed, rng):
    whole = digest(killed)
    told = []
    for i in range(N_FLIPS):
        with tempfile.TemporaryDirectory(dir=MEMORY) as name:
            folder = shutil.copytree(killed, Path(name) / "run")
            files = files_of(folder)
            path = files[i % len(files)]
            content = bytearray(path.read_bytes())
            content[rng.integers(len(content))] ^= rng.integers(1, 256)
            path.write_bytes(content)
            how, said = outcome(folder)
            assert how == "told" or said == whole, path
            told.append((path.name, how))
    flipped = {name for name, how in told if how == "told"}
    assert {"journal.sqlite-wal", "model.pkl", "draws.npz", "manifest.json"} <= flipped
