"""Disks that fill up and folders that vanish: nothing half-written, and no draw without a trace."""

import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
import zipfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import quorate
from helpers.processes import MeanModel, ended, workers_of
from quorate.errors import JournalError, SaveError
from quorate.report import write_report
from quorate.results.saved import load_draws

OPTIONS = {"workers": 2, "method": "merge", "scheme": "cmc", "sampler": "ellipse", "check": False}


@pytest.fixture(scope="module")
def rows():
    return {"z": np.random.default_rng(1).normal(size=(100, 2))}


@pytest.fixture(scope="module")
def finished(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("disks") / "run"
    return sample(rows, folder)


def sample(rows, folder, progress=False, **options):
    options = OPTIONS | {"draws": 3000} | options
    return quorate.sample(MeanModel(), rows, run_dir=folder, progress=progress, **options)


@contextmanager
def files_of_at_most(n_bytes):
    """Let this process write no file larger than that: a full disk for everybody's tests."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_full_disk_leaves_the_result_of_before(finished, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    small = replace(finished, unconstrained=finished.unconstrained[:50], run_dir=str(run))
    small.save()
    before = contents(run)
    with files_of_at_most(20_000), pytest.raises(SaveError, match=r"draws\.npz cannot be written"):
        replace(finished, run_dir=str(run)).save()
    assert contents(run) == before
    np.testing.assert_array_equal(load_draws(run)["theta"], small.unconstrained)


def test_a_run_that_cannot_save_its_result_has_it_in_the_error(rows, finished, tmp_path):
    run = tmp_path / "run"

    def fill(progress):
        if progress.draws >= 3000:
            (run / "draws.npz").mkdir(exist_ok=True)  # a folder in the place of a file

    with pytest.raises(SaveError, match=r"draws\.npz cannot be written.*`error\.result`") as caught:
        sample(rows, run, fill)
    np.testing.assert_array_equal(caught.value.result.unconstrained, finished.unconstrained)
    assert not (run / "summary.json").exists()
    (run / "draws.npz").rmdir()
    again = quorate.resume(run, progress=False, check=False)
    np.testing.assert_array_equal(again.unconstrained, finished.unconstrained)
    np.testing.assert_array_equal(load_draws(run)["theta"], finished.unconstrained)


def test_a_journal_that_cannot_grow_ends_the_run_with_its_draws(rows, tmp_path):
    with files_of_at_most(1_000_000), pytest.raises(JournalError, match="full") as caught:
        sample(rows, tmp_path / "run", draws=10**8)
    result = caught.value.result
    assert 0 < result.n_draws < 10**8
    assert result.stopped == "the disk failed"
    assert not list(workers_of(os.getpid()))
    enough = quorate.Until(ess=100)
    more = quorate.resume(tmp_path / "run", until=enough, check=False, progress=False)
    assert more.stopped == "enough effective draws"


def test_a_folder_that_is_removed_ends_the_run_with_its_draws(rows, tmp_path):
    run, workers = tmp_path / "run", []

    def remove(progress):
        if progress.draws >= 50 and not workers:
            workers.extend(os.pidfd_open(pid) for pid in workers_of(os.getpid()))
            run.rename(tmp_path / "removed")
            shutil.rmtree(tmp_path / "removed")

    with pytest.raises(JournalError, match=r"was removed or moved.*`error\.result`") as caught:
        sample(rows, run, remove, draws=10**8)
    assert 50 <= caught.value.result.n_draws < 10**8
    assert workers
    assert all(ended(worker) for worker in workers)
    assert not run.exists()


COMMAND = (sys.executable, "-c", "from quorate.cli import main; main()")


def test_the_command_line_saves_elsewhere_when_its_folder_is_removed(rows, tmp_path):
    data = tmp_path / "rows.csv"
    np.savetxt(data, rows["z"], header="a,b", delimiter=",", comments="")
    command = [*COMMAND, "sample", "--formula", "a ~ b", str(data)]
    command += ["--draws", "100000000", "--workers", "2", "--run-dir", str(tmp_path / "run")]
    command += ["--json", "--every", "0.1", "--method", "merge"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        for line in process.stderr:
            if line.startswith("{") and json.loads(line)["draws"] >= 50:
                break
        (tmp_path / "run").rename(tmp_path / "removed")
        said = process.communicate()
    assert process.returncode == 4, said
    assert "was removed or moved" in said[1]
    (folder,) = tmp_path.glob("quorate-*")
    assert f"saved in {folder}" in said[1].replace("\n", "")
    assert len(load_draws(folder)["b"]) >= 50


def test_shards_that_do_not_fit_are_refused_in_words_and_leave_nothing(rows, tmp_path):
    with files_of_at_most(300), pytest.raises(SaveError, match="cannot be written"):
        sample(rows, tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.npy"))


def test_a_saved_file_that_has_changed_is_refused(finished, tmp_path):
    run = Path(shutil.copytree(finished.run_dir, tmp_path / "run"))
    summary = run / "summary.json"
    summary.write_text(summary.read_text().replace("1", "2", 1))
    for use in (quorate.results.saved.load_summary, lambda run: write_report(run, run / "r.html")):
        with pytest.raises(quorate.BadInputError, match=r"summary\.json is not as it was saved"):
            use(run)


def test_errors_with_draws_can_be_pickled(finished):
    for error in (
        SaveError("draws.npz", "No space left on device", finished),
        JournalError("journal.sqlite", "is gone", "look for it", finished),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == str(error)
        assert again.result.n_draws == finished.n_draws


def test_names_lead_nowhere_in_files(tmp_path, finished):
    class Nasty(MeanModel):
        def constrain(self, draws):
            return {"../../x": draws[:, 0], "/etc/y\0": draws[:, 1], "%2F": draws, "a:b[1]": draws}

    nasty = replace(finished, model=Nasty(), run_dir=str(tmp_path))
    nasty.save()
    with zipfile.ZipFile(tmp_path / "draws.npz") as archive:
        assert all("/" not in name and "\0" not in name for name in archive.namelist())
        archive.extractall(tmp_path / "out")
    assert len(list((tmp_path / "out").iterdir())) == 4
    found = load_draws(tmp_path)
    assert found.keys() == nasty.variables.keys()
    assert all(len(draws) == nasty.n_draws for draws in found.values())
    with np.load(tmp_path / "draws.npz") as arrays:
        assert "a:b[1]" in arrays.files
