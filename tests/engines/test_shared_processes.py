"""Exact runs whose workers share processes: one sum of each process travels, and the draws stay."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import quorate
from helpers.processes import MeanModel, workers_of
from quorate import Processes
from quorate.journal import JournalReader, PartAnswered
from quorate.protocol.inquirer import SURVEYS
from quorate.report.counterfactual import seconds_per_point
from quorate.results.summary import slow_in_words
from quorate.run.history import History
from quorate.run.slow import slow_workers

WORKERS, DRAWS = 6, 120


def sample(run, processes, seed, **options):
    rows = {"z": np.random.default_rng(3).standard_normal((60, 2))}
    return quorate.sample(
        MeanModel(),
        rows,
        draws=DRAWS,
        method="exact",
        check=False,
        engine=Processes(processes),
        run_dir=run,
        seed=seed,
        **{"workers": WORKERS, "progress": False, **options},
    )


@pytest.fixture(scope="module")
def apart(tmp_path_factory, seed):
    return sample(tmp_path_factory.mktemp("apart") / "run", WORKERS, seed)


def parts(run):
    with JournalReader(run) as reader:
        records = [record for record in reader.records() if isinstance(record, PartAnswered)]
    return [record for record in records if record.lane != SURVEYS]


def test_one_sum_of_each_process(tmp_path, apart, seed):
    together = sample(tmp_path / "run", 2, seed, scheme="cmc")
    np.testing.assert_array_equal(together.unconstrained, apart.unconstrained)
    found = parts(tmp_path / "run")
    assert {part.worker for part in found} == {0, 1}
    assert {part.shards for part in found} == {(0, 2, 4), (1, 3, 5)}
    assert {part.together for part in found} == {(), (0, 2, 4), (1, 3, 5)}


def test_each_worker_for_itself_where_all_have_processes(apart):
    """The control of the test above."""
    found = parts(Path(apart.run_dir))
    assert {part.worker for part in found} == set(range(WORKERS))
    assert {part.together for part in found} == {()}


def test_workers_that_others_speak_for_are_not_slow(tmp_path, seed):
    result = sample(tmp_path / "run", 3, seed, scheme="cmc")
    assert "slow" not in repr(result)
    assert "slow" not in repr(quorate.load(tmp_path / "run"))
    with History(tmp_path / "run") as history:
        history.read()
        assert slow_workers(history, history.blocks()) == []
        assert history.passes.spoken_for == {3: 0, 4: 1, 5: 2}
        assert np.isfinite(seconds_per_point(history)).all()


@pytest.mark.parametrize(("processes", "spoken_for"), [(1, {1: 0, 2: 0}), (2, {2: 0})])
def test_workers_that_hold_all_shards_speak_for_others_too(processes, spoken_for, tmp_path, seed):
    """Then each of them could answer alone, and the others of its process are never asked."""
    result = sample(tmp_path / "run", processes, seed, workers=3, redundancy=3)
    assert result.timeline.spoken_for == set(spoken_for)
    assert quorate.load(tmp_path / "run").timeline.spoken_for == set(spoken_for)
    with History(tmp_path / "run") as history:
        history.read()
        assert history.passes.spoken_for == spoken_for
    if processes == 1:
        assert "slow" not in repr(result) + result._repr_html_()


def test_who_is_spoken_for_is_not_slow_but_others_may_be():
    assert slow_in_words([90, 0, 80], (), "exact", {1}) == []
    (told,) = slow_in_words([90, 0, 80, 3], (), "exact", {1})
    assert told.startswith("worker 3 was slow: it sent 3 answers")


def test_a_killed_process_changes_no_bit(tmp_path, apart, seed):
    killed = []

    def kill(progress):
        if progress.draws and not killed:
            killed.append(workers_of(os.getpid())[0])
            os.kill(killed[0], signal.SIGKILL)

    together = sample(tmp_path / "run", 3, seed, progress=kill, every=0.0)
    assert killed
    np.testing.assert_array_equal(together.unconstrained, apart.unconstrained)
