"""Real processes, really killed, stopped and garbled; and runs that are gone on with."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import quorate
from helpers.processes import MeanModel, ended, templates_of, workers_of
from quorate.errors import BadInputError, ChangedModelWarning, JournalError, WorkerFailedError
from quorate.journal import BlockRecord, JournalReader, TaskGiven

N_ROWS, DRAWS = 400, 8000


@pytest.fixture
def rows(seed):
    z = np.random.default_rng(seed).normal([1.0, -2.0], size=(N_ROWS, 2))
    return {"z": z, "row": np.arange(N_ROWS)}


def sample(rows, run, model=None, progress=False, **options):
    options = {"workers": 3, "draws": DRAWS, "sampler": "ellipse", "scheme": "cmc", **options}
    options = {"check": False, **options}
    return quorate.sample(model or MeanModel(), rows, run_dir=run, progress=progress, **options)


class Attack:
    """Does something to the worker processes, once, when enough draws are there.

    It is given their pids, last that of the worker that is furthest behind: the run needs it.
    """

    def __init__(self, after, act):
        self.after, self.act, self.done = after, act, False

    def __call__(self, progress):
        if not self.done and progress.draws >= self.after:
            self.done = True
            behind = min(progress.workers, key=lambda worker: worker.draws).pid
            self.act(sorted(workers_of(os.getpid()), key=lambda pid: pid == behind))


def signalled(number):
    return lambda pids: os.kill(pids[-1], number)


def what_happened(run):
    with JournalReader(run) as reader:
        records = list(reader.records())
    events = [record for record in records if not isinstance(record, BlockRecord | TaskGiven)]
    return [event.word for event in events]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, seed):
    """Draws of a run that nothing happened to, and its folder."""
    z = np.random.default_rng(seed).normal([1.0, -2.0], size=(N_ROWS, 2))
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    result = sample({"z": z, "row": np.arange(N_ROWS)}, run)
    return result.unconstrained, run


def test_a_killed_worker_is_started_again_and_no_bit_is_lost(rows, tmp_path, undisturbed):
    attack = Attack(50, signalled(signal.SIGKILL))
    result = sample(rows, tmp_path / "run", progress=attack)
    assert attack.done
    np.testing.assert_array_equal(result.unconstrained, undisturbed[0])
    happened = what_happened(tmp_path / "run")
    assert happened.count("lost") == happened.count("restarted") == 1
    [lost] = [note for _, note in result.timeline.notes if note.what == "lost"]
    assert "out of memory" in lost.details


def test_a_stopped_worker_is_replaced(rows, tmp_path, undisturbed):
    stopped = []

    def stop(pids):
        stopped.append(os.pidfd_open(pids[-1]))
        os.kill(pids[-1], signal.SIGSTOP)

    result = sample(rows, tmp_path / "run", progress=Attack(50, stop))
    np.testing.assert_array_equal(result.unconstrained, undisturbed[0])
    assert "silent" in what_happened(tmp_path / "run")
    assert all(ended(pidfd) for pidfd in stopped)


class Flaky(MeanModel):
    """Raises once, some way into the run: a file remembers."""

    def __init__(self, marker):
        self.marker, self.n = marker, 0

    def log_likelihood(self, x, shard):
        self.n += 1
        if self.n > 700 and not self.marker.exists():
            self.marker.touch()
            raise OSError("the disk was away for a moment")
        return super().log_likelihood(x, shard)


def test_an_error_that_does_not_come_back_costs_nothing(rows, tmp_path, undisturbed):
    result = sample(rows, tmp_path / "run", Flaky(tmp_path / "marker"))
    assert result.stopped == "done"
    np.testing.assert_array_equal(result.unconstrained, undisturbed[0])
    [failed] = [note for _, note in result.timeline.notes if note.what == "failed"]
    assert "away for a moment" in failed.details
    assert "Traceback" in failed.details


class Liar:
    """A sampler whose draws of shard 1 are no numbers."""

    name, determinism = "liar", "none"

    def warm_up(self, target, stream):
        return {"index": np.array(0)}

    def draw(self, target, state, stream, n):
        value = np.nan if stream.shard == 1 else 0.5
        return np.full((n, target.dim), value), {"index": state["index"] + n}


def test_draws_that_are_no_numbers_are_refused_and_named(rows, tmp_path):
    with pytest.raises(quorate.QuorateError, match="shard 1") as caught:
        sample(rows, tmp_path / "run", sampler=Liar())
    notes = [note for _, note in caught.value.result.timeline.notes]
    assert [note.what for note in notes].count("refused") == 3
    assert any("draws of shard 1 are not finite" in note.details for note in notes)


def test_fewer_processes_than_workers(rows, tmp_path, undisturbed):
    result = sample(rows, tmp_path / "run", engine=quorate.Processes(2))
    np.testing.assert_array_equal(result.unconstrained, undisturbed[0])


def test_one_that_stands_by_takes_the_place_of_one_that_is_lost(rows, tmp_path, undisturbed):
    pids = []

    def kill(found):
        pids.extend(found)
        os.kill(found[-1], signal.SIGKILL)

    result = sample(rows, tmp_path / "run", engine=quorate.Processes(4), progress=Attack(50, kill))
    assert len(pids) == 4
    np.testing.assert_array_equal(result.unconstrained, undisturbed[0])
    assert len(list((tmp_path / "run" / "logs").iterdir())) == 4  # nobody was started for it


# ---------------------------------------------------------------- resume


SCRIPT = """
import sys
sys.path[:0] = [{tests!r}, {here!r}]
from test_faults import sample
import numpy as np
z = np.random.default_rng({seed}).normal([1.0, -2.0], size=(400, 2))
def tell(progress):
    print(progress.draws, flush=True)
sample({{"z": z, "row": np.arange(400)}}, {run!r}, progress=tell, **{options!r})
"""


def killed_run(run, seed, at_draws, **options):
    """Start a run in a process of its own and kill -9 that when it has so many draws."""
    tests = str(Path(__file__).parents[1])
    here = str(Path(__file__).parent)
    script = SCRIPT.format(tests=tests, here=here, run=str(run), seed=seed, options=options)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout:
            if int(line) >= at_draws:
                break
        pids = [*templates_of(process.pid), *workers_of(process.pid)]
        processes = [os.pidfd_open(pid) for pid in pids]
        process.kill()
    assert all(ended(process) for process in processes)


@pytest.mark.parametrize("scheme", ["cmc", "coded"])
def test_a_run_whose_coordinator_was_killed_is_gone_on_with(scheme, rows, tmp_path, seed):
    """Bit for bit what it would have been; coded, if r divides K, so that replicas are copies."""
    run, options = tmp_path / "run", {"draws": 5000, "scheme": scheme, "check": False}
    options["workers"] = 2 if scheme == "cmc" else 4
    killed_run(run, seed, 50, **options)
    with JournalReader(run) as reader:
        kept = sum(len(r.payload) for r in reader.records() if isinstance(r, BlockRecord))
    assert 50 <= kept < 30_000
    result = quorate.resume(run, progress=False, check=False)
    assert result.stopped == "done"
    whole = sample(rows, tmp_path / "whole", **options)
    np.testing.assert_array_equal(result.unconstrained, whole.unconstrained)
    assert "resumed" in what_happened(run)


@pytest.fixture
def done(undisturbed, tmp_path):
    """A copy of the undisturbed run, to do things to."""
    run = tmp_path / "copy"
    shutil.copytree(undisturbed[1], run)
    return run


def test_a_run_that_is_done_is_only_read(done, undisturbed):
    result = quorate.resume(done, progress=False, check=False)
    assert result.stopped == "done"
    np.testing.assert_array_equal(result.unconstrained, undisturbed[0])


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_more_draws_with_other_numbers_of_processes(done, processes):
    before = quorate.resume(done, progress=False, check=False).shard_draws
    options = {"draws": 9000, "engine": quorate.Processes(processes), "check": False}
    result = quorate.resume(done, progress=False, **options)
    assert result.n_draws == 9000
    for draws, after in zip(before, result.shard_draws, strict=True):
        np.testing.assert_array_equal(after[:DRAWS], draws)


def test_another_seed_is_refused(done):
    with pytest.raises(BadInputError, match="was made with"):
        quorate.resume(done, seed=99, progress=False)


def test_other_rows_are_refused(done):
    [array] = list((done / "shards").glob("*0*z*")) or sorted((done / "shards").rglob("*.npy"))[:1]
    content = bytearray(array.read_bytes())
    content[-1] ^= 1
    array.write_bytes(content)
    with pytest.raises(BadInputError, match="shard"):
        quorate.resume(done, draws=9000, progress=False)


class OtherMean(MeanModel):
    def log_prior(self, x):
        return float(-0.5 * np.sum(x**2) / 10)


class OtherNames(MeanModel):
    names = ("a", "c")


def test_another_model_is_warned_of_or_refused(done):
    with pytest.warns(ChangedModelWarning, match="whose code has changed"):
        quorate.resume(done, OtherMean(), progress=False, check=False)
    quorate.resume(done, MeanModel(), progress=False, check=False)
    with pytest.raises(BadInputError, match="parameters"):
        quorate.resume(done, OtherNames(), progress=False)


def test_a_folder_with_a_run_in_it_is_not_written_over(rows, done):
    with pytest.raises((JournalError, BadInputError)):
        sample(rows, done)


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises((JournalError, BadInputError)):
        quorate.resume(tmp_path, progress=False)


def test_a_stream_ends_with_what_a_run_gives(rows, tmp_path, undisturbed):
    options = {"workers": 3, "draws": DRAWS, "sampler": "ellipse", "scheme": "cmc", "every": 0.0}
    shown = list(quorate.stream(MeanModel(), rows, run_dir=tmp_path / "run", **options))
    counts = [result.n_draws for result in shown]
    assert counts == sorted(counts)
    assert [result.stopped for result in shown[:-1]] == ["running"] * (len(shown) - 1)
    np.testing.assert_array_equal(shown[-1].unconstrained, undisturbed[0])


def test_a_stream_shows_draws_while_they_come_and_leaves_nothing_behind(rows, tmp_path):
    run = tmp_path / "run"
    looked = quorate.stream(MeanModel(), rows, workers=2, draws=10**8, run_dir=run, every=0.0)
    first, second = next(looked), next(looked)
    workers = [os.pidfd_open(pid) for pid in workers_of(os.getpid())]
    assert 0 < first.n_draws <= second.n_draws < 10**8
    assert first.stopped == second.stopped == "running"
    looked.close()
    assert workers
    assert all(ended(worker) for worker in workers)


def test_errors_come_with_what_there_was(rows, tmp_path):
    class Broken(MeanModel):
        def log_likelihood(self, x, shard):
            if 7 in shard["row"]:
                raise ZeroDivisionError("a row that cannot be")
            return super().log_likelihood(x, shard)

    with pytest.raises(WorkerFailedError, match="a row that cannot be"):
        sample(rows, tmp_path / "run", Broken())
    assert what_happened(tmp_path / "run").count("failed") == 3
