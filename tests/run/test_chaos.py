"""Real processes under seeded chaos: workers killed, stopped, garbled; the coordinator killed.

User code prints without end, starts processes, raises now and then and runs out of memory.
After every run: no accepted draw was lost or doubled, every draw equals its keyed re-computation,
nothing is left running, and the journal can be read.
"""

import numpy as np
import pytest

import quorate
from helpers.chaos import DRAWS, blocks_of, sittings, undisturbed
from quorate.engines.packing import unpacked
from quorate.engines.workers.worker import Job, Worker
from quorate.journal import ChainKey, JournalReader, TaskGiven
from quorate.protocol.messages import Task
from quorate.run.settings import Settings


def warm_starts(run):
    """Chains that began where another one stood, in the adaptive scheme."""
    with JournalReader(run) as reader:
        tasks = [record for record in reader.records() if isinstance(record, TaskGiven)]
    return {
        ChainKey(task.worker, task.shards, task.chain)
        for task in tasks
        if task.with_state and not task.first_draw
    }


def recomputed(run, key, n):
    """The draws of a chain, computed by nobody else than us."""
    things = unpacked((run / "model.pkl").read_bytes())
    things["model"].is_calm = True
    with JournalReader(run) as reader:
        settings = Settings.from_json(reader.configuration()["settings"])
    side = settings.make_scheme(things["model"].dim).worker_side
    folder = str(run / "shards")
    job = Job(things["model"], things["sampler"], side, folder, settings.workers, settings.seed)
    blocks = Worker(job, {}).blocks(Task(key.worker, key.shards, key.chain, 0, n))
    return np.concatenate([block.payload for block in blocks])


@pytest.mark.parametrize(
    ("scheme", "workers"), [("cmc", 2), ("grouped", 4), ("coded", 4), ("adaptive", 3)]
)
def test_chaos(scheme, workers, tmp_path, seed):
    rng = np.random.default_rng([seed, workers])
    run = tmp_path / "run"
    options = {"scheme": scheme, "workers": workers, "draws": DRAWS, "sampler": "ellipse"}
    earlier = {}
    for _ in sittings(run, seed, options, rng):
        now = blocks_of(run)
        for key, draws in earlier.items():
            np.testing.assert_array_equal(now[key][: len(draws)], draws)
        earlier = now
    result = quorate.resume(run, progress=False)
    assert result.stopped == "done"
    assert result.n_draws == DRAWS
    if scheme in ("cmc", "coded"):
        np.testing.assert_array_equal(result.unconstrained, undisturbed(seed, options))
    cold = sorted(set(earlier) - warm_starts(run))
    key = cold[rng.integers(len(cold))]
    np.testing.assert_array_equal(recomputed(run, key, len(earlier[key])), earlier[key])


@pytest.mark.parametrize(("scheme", "workers"), [("coded", 4), ("adaptive", 3)])
def test_chaos_changes_no_exact_draw(scheme, workers, tmp_path, seed):
    run, options = tmp_path / "run", {"scheme": scheme, "workers": workers, "draws": DRAWS}
    for _ in sittings(run, seed, options, np.random.default_rng([seed, workers, 1])):
        with JournalReader(run) as reader:
            assert all(record is not None for record in reader.records())
            assert not reader.dropped
    result = quorate.resume(run, progress=False)
    assert result.method == "exact"
    np.testing.assert_array_equal(result.unconstrained, undisturbed(seed, options))
