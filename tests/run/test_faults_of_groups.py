"""A model with groups whose processes are killed in every phase of its run: no bit changes."""

import hashlib
import os
import shutil
import signal

import numpy as np
import pytest

import quorate
from helpers import shops
from helpers.processes import KillsAWorker, killed_when_it_speaks, workers_of
from quorate.data.write import ShardSet
from quorate.journal import Finished, JournalReader, PassRecord
from quorate.results.saved_local import FILE

SOME = ["shop 03", "shop 31", "shop 58"]


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def local_digests(local, of_summary=None, of_draws=None, **options):
    """Digests of the summaries of all groups, and of draws of some; listeners may be given."""
    summary = local.summary(progress=of_summary, **options)
    draws = local.draws(SOME, progress=of_draws, **options)
    return digest(summary.to_numpy()), digest(draws["r_g"].to_numpy())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, seed):
    """A run that nothing happened to."""
    result = shops.sample(tmp_path_factory.mktemp("undisturbed") / "run", seed)
    assert (result.method, result.n_draws) == ("exact", shops.DRAWS)
    return result


@pytest.fixture(scope="module")
def expected(undisturbed):
    """The digest of its draws, which tells their order too."""
    found = digest(undisturbed.unconstrained)
    assert found != digest(undisturbed.unconstrained[::-1])
    return found


@pytest.fixture(scope="module")
def expected_local(undisturbed):
    """Digests of its local parameters."""
    return local_digests(undisturbed.local)


# ---------------------------------------------------------------- the cut

CUT = """
from helpers import shops
def hook(event, arguments):
    if event == {event!r} and {path!r} in str(arguments[0]) and {mode!r} in str(arguments[1]):
        print(event, flush=True)
        sys.stdin.read()  # until it is killed
sys.addaudithook(hook)
shops.sample({run!r}, {seed})
"""
MOMENTS = {  # what the coordinator is about to do: an event of `sys.audit`, a path and a mode
    "before the first file": ("open", "shard-00000/array-000", "x"),
    "among rows": ("open", "shard-00002/array-002", "a"),
    "before all is in place": ("os.rename", ".shards.partial", "shards"),
    "after all is in place": ("open", "model.pkl", ""),
}
ENOUGH = {"among rows", "after all is in place"}  # to run again after, with shards and without


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_coordinator_killed_in_the_cut_leaves_all_shards_or_none(
    moment, tmp_path, seed, expected
):
    run = tmp_path / "run"
    event, path, mode = MOMENTS[moment]
    script = CUT.format(event=event, path=path, mode=mode, run=str(run), seed=seed)
    assert killed_when_it_speaks(script) == event
    assert (run / "shards").exists() == (moment == "after all is in place")
    if (run / "shards").exists():
        ShardSet.open(run / "shards").verify()
    if moment in ENOUGH:
        again = shops.sample(run, seed)
        assert digest(again.unconstrained) == expected


# ---------------------------------------------------------------- surveys, passes and draws


class KillsInPhase:
    """Kills a busy worker when a run is in some phase."""

    def __init__(self, phase):
        self.phase, self.done = phase, False

    def __call__(self, progress):
        busy = [worker.pid for worker in progress.workers if worker.status == "working"]
        if not self.done and progress.phase == self.phase and busy:
            self.done = True
            os.kill(busy[-1], signal.SIGKILL)


@pytest.mark.parametrize("phase", ["surveying shards", "fitting", "drawing"])
def test_a_worker_killed(phase, tmp_path, seed, expected):
    attack = KillsInPhase(phase)
    result = shops.sample(tmp_path / "run", seed, attack)
    assert attack.done
    assert any(note.what == "lost" for _, note in result.timeline.notes)
    assert digest(result.unconstrained) == expected


# ---------------------------------------------------------------- the coordinator

DRAWING = """
from helpers import shops
def tell(progress):
    if progress.phase == {phase!r} and progress.passes >= {passes}:
        print(progress.passes, flush=True)
        sys.stdin.read()  # until it is killed
shops.sample({run!r}, {seed}, tell)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory, seed):
    """A run whose coordinator was killed in the middle of drawing."""
    run = tmp_path_factory.mktemp("killed") / "run"
    passes = 30
    script = DRAWING.format(phase="drawing", passes=passes, run=str(run), seed=seed)
    assert int(killed_when_it_speaks(script)) >= passes
    with JournalReader(run) as reader:
        records = list(reader.records())
    assert any(isinstance(record, PassRecord) for record in records)
    assert not any(isinstance(record, Finished) for record in records)
    return run


@pytest.mark.parametrize("processes", [None, 2])
def test_the_coordinator_killed(processes, killed, tmp_path, expected, expected_local):
    run = tmp_path / "run"
    shutil.copytree(killed, run)
    engine = quorate.Processes(processes) if processes else None
    result = quorate.resume(run, engine=engine, progress=False, check=False)
    assert result.stopped == "done"
    assert digest(result.unconstrained) == expected
    if processes is None:
        assert local_digests(result.local) == expected_local


# ---------------------------------------------------------------- local parameters


@pytest.mark.parametrize(("options", "starts"), [({}, False), ({"workers": 2}, True)])
def test_small_summaries_start_workers_only_on_request(undisturbed, options, starts):
    (undisturbed.local.folder / FILE).unlink(missing_ok=True)
    seen, told = set(), []

    def progress(*counts):
        seen.update(workers_of(os.getpid()))
        told.append(counts)

    undisturbed.local.summary(progress=progress, **options)
    assert bool(seen) == starts
    assert told[-1][0] == told[-1][1] > 0


def test_a_worker_killed_in_local_work(undisturbed, expected_local):
    (undisturbed.local.folder / FILE).unlink(missing_ok=True)
    of_summary, of_draws = KillsAWorker(), KillsAWorker()
    found = local_digests(undisturbed.local, of_summary, of_draws, engine="process")
    assert found == expected_local
    assert of_summary.done
    assert of_draws.done
