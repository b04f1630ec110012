"""Real processes: what they draw, how they end, and what becomes of their mistakes."""

import inspect
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import quorate
from helpers.assertions import FALSE_FAIL_RATE, assert_known
from helpers.processes import (
    BananaModel,
    BrokenModel,
    LockedModel,
    MeanModel,
    TalkativeModel,
    ended,
    templates_of,
    workers_of,
)
from quorate.data.write import ShardSet
from quorate.errors import BadInputError, LostShardError, WorkerFailedError, WrongShapeWarning
from quorate.merging.consensus import consensus_weights, merge
from quorate.numerics.ess import mean_ess
from quorate.protocol.scheme import Setup

N_ROWS = 400


@pytest.fixture
def rows(seed):
    z = np.random.default_rng(seed).normal([1.0, -2.0], size=(N_ROWS, 2))
    return {"z": z, "row": np.arange(N_ROWS)}


def sample(rows, tmp_path, model=None, **options):
    options = {"workers": 4, "draws": 400, "sampler": "ellipse", "progress": False, **options}
    return quorate.sample(model or MeanModel(), rows, run_dir=tmp_path / "run", **options)


@pytest.mark.parametrize("scheme", ["cmc", "grouped", "adaptive"])
def test_the_posterior_is_right(scheme, rows, tmp_path, seed):
    result = sample(rows, tmp_path, scheme=scheme, seed=seed, draws=2000)
    assert result.stopped == "done"
    assert result.unconstrained.shape == (2000, 2)
    precision = N_ROWS + 1 / 100
    expected = rows["z"].sum(axis=0) / precision
    # Weights from 2,000 draws err by some 0.07 standard deviations (RMS over 40 seeds), far more
    # than the draws themselves: they are judged with the weights that are known here.
    for error in (result.unconstrained.mean(axis=0) - expected) * precision**0.5:
        assert_known(error, 0.0, 0.07)
    covs = np.tile(np.eye(2) / (precision / 4), (4, 1, 1))
    draws = np.stack([shard[:2000] for shard in result.shard_draws], axis=1)
    merged = merge(consensus_weights(covs), draws)
    limit = 1.2 * norm.isf(FALSE_FAIL_RATE / 8)  # an ESS is an estimate itself
    for column, mean in zip(merged.T, expected, strict=True):
        ess = float(mean_ess(column[None]))
        error = abs(column.mean() - mean) * precision**0.5
        assert error < limit / ess**0.5 < 0.5 - error  # half a standard deviation would be seen
        spread = float(mean_ess(((column - mean) ** 2)[None]))
        assert abs(column.var() * precision - 1) < limit * (2 / spread) ** 0.5 < 0.5


def test_cmc_draws_do_not_depend_on_speed(rows, tmp_path):
    plain = sample(rows, tmp_path / "plain", scheme="cmc", workers=2)
    faults = "slow:1x3,straggle:1.5"
    slowed = sample(rows, tmp_path / "slowed", scheme="cmc", workers=2, faults=faults)
    np.testing.assert_array_equal(plain.unconstrained, slowed.unconstrained)


class StopAfterALoss:
    """Stops a run, as Ctrl-C does, when it has had 100 draws more than when a worker was lost."""

    def __init__(self, worker):
        self.worker, self.draws_then = worker, None
        self.is_asked = False

    def __call__(self, progress):
        if self.draws_then is None and progress.workers[self.worker].status == "retired":
            self.draws_then = progress.draws
        has_gone_on = self.draws_then is not None and progress.draws > self.draws_then + 100
        if has_gone_on and not self.is_asked:
            self.is_asked = True
            signal.raise_signal(signal.SIGINT)


def test_a_worker_that_dies_is_covered_by_its_group(rows, tmp_path):
    options = {"scheme": "grouped", "redundancy": 2, "faults": "dead:1@1"}
    stop, engine = StopAfterALoss(worker=3), quorate.Processes(restarts=0)
    result = sample(rows, tmp_path, draws=10**7, progress=stop, engine=engine, **options)
    assert result.stopped == "interrupted"
    assert result.n_draws > stop.draws_then + 100
    assert result.lost == {3}
    assert "lost worker 3" in repr(result)


def test_cmc_without_one_of_its_workers_gives_what_there_is(rows, tmp_path):
    with pytest.raises(LostShardError, match="shard 3") as caught:
        sample(
            rows,
            tmp_path,
            scheme="cmc",
            faults="dead:1@2",
            draws=100_000,
            engine=quorate.Processes(restarts=0),
        )
    result = caught.value.result
    assert result.stopped == "workers lost"
    assert result.lost == {3}
    assert result.n_draws == len(result.variables["theta"]) < 100_000


def test_time_is_up(rows, tmp_path):
    result = sample(rows, tmp_path, workers=2, draws=10**7, until=quorate.Until(time=1.0))
    assert result.stopped == "time is up"


def test_enough_is_enough(rows, tmp_path):
    result = sample(rows, tmp_path, workers=2, draws=10**7, until="ess:300")
    assert result.stopped == "enough effective draws"
    assert all(row["ess"] >= 300 for row in result.summary_rows().values())


def test_what_user_code_prints_goes_to_a_log(rows, tmp_path):
    result = sample(rows, tmp_path, TalkativeModel(), workers=2, draws=50)
    assert result.stopped == "done"
    logs = (tmp_path / "run" / "logs").glob("process-*.log")
    assert any(b"hello" in log.read_bytes() for log in logs)  # the other may have had no turn


def test_what_user_code_raises_is_told(rows, tmp_path):
    with pytest.raises(WorkerFailedError, match="a row that cannot be") as caught:
        sample(rows, tmp_path, BrokenModel(), workers=2)
    assert "ZeroDivisionError" in caught.value.traceback
    folder = tmp_path / "run" / "shards"
    assert 7 in ShardSet.open(folder).shard(caught.value.shard)["row"]


def test_what_a_sampler_warns_of_in_a_worker_is_passed_on(rows, tmp_path):
    with pytest.warns(WrongShapeWarning, match=r"shard \d, worker \d"):
        sample(rows, tmp_path, BananaModel(), workers=2, draws=20)


def test_a_run_without_a_single_draw_is_a_result_too(rows, tmp_path):
    result = sample(rows, tmp_path, workers=2, until=quorate.Until(time=1e-3))
    assert result.stopped == "time is up"
    assert result.unconstrained.shape == (0, 2)
    assert result.summary_rows() == {}
    assert all(draws.shape == (0, 2) for draws in result.shard_draws)
    assert "0 draws" in repr(result)


def test_one_worker_needs_no_word_about_redundancy(rows, tmp_path):
    assert sample(rows, tmp_path, workers=1, draws=30).redundancy == 1


@pytest.mark.parametrize(
    "options", [{}, {"precision": "estimated", "cov_ridge": 1e-4, "precision_ridge": 1.0}]
)
def test_coded_runs(options, rows, tmp_path):
    scheme = quorate.Coded(redundancy=2, **options)
    result = sample(rows, tmp_path, scheme=scheme, draws=200)
    assert result.unconstrained.shape == (200, 2)
    assert result.shard_draws == ()


def test_a_folder_of_our_own_goes_when_a_run_breaks(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(BadInputError, match="picklable"):
        quorate.sample(LockedModel(), rows, workers=2)
    assert not list(tmp_path.iterdir())


def test_draws_in_the_form_of_arviz(rows, tmp_path):
    result = sample(rows, tmp_path, workers=2, draws=60)
    posterior = result.posterior["posterior"]
    assert posterior["theta"].dims == ("chain", "draw", "theta_dim_0")
    assert posterior["theta"].shape == (4, 15, 2)
    stats = result.posterior["sample_stats"]
    in_order = np.argsort(stats["row"].to_numpy().ravel())
    assert np.all(np.diff(stats["release_time"].to_numpy().ravel()[in_order]) >= 0)
    assert list(result.summary().index) == ["theta[0]", "theta[1]"]
    assert all(len(draws) >= 60 for draws in result.shard_draws)
    result.to_netcdf(tmp_path / "draws.nc")
    assert (tmp_path / "draws.nc").stat().st_size > 0


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from helpers.processes import MeanModel
import numpy as np, quorate
rows = {{"z": np.random.default_rng(0).normal(size=(100, 2)), "row": np.arange(100)}}
def tell(progress):
    if progress.draws > 50:
        print("running", flush=True)
result = quorate.sample(MeanModel(), rows, workers=3, draws=10**8, sampler="ellipse",
                        run_dir={run!r}, progress=tell)
print(result.stopped, result.n_draws, flush=True)
"""


@pytest.fixture
def script(tmp_path):
    """A run in a process of its own, without a `__main__` guard, read from standard input."""
    tests = str(Path(__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.stdin.write(SCRIPT.format(tests=tests, run=str(tmp_path / "run")))
    process.stdin.close()
    assert process.stdout.readline() == "running\n"
    with process:
        yield process
        process.kill()


def test_workers_do_not_outlive_a_killed_coordinator(script):
    pids = workers_of(script.pid)
    assert len(pids) == 3
    processes = [os.pidfd_open(pid) for pid in [*templates_of(script.pid), *pids]]
    script.kill()
    assert all(ended(process) for process in processes)


def test_ctrl_c_keeps_what_is_there(script):
    pids = [*templates_of(script.pid), *workers_of(script.pid)]
    processes = [os.pidfd_open(pid) for pid in pids]
    script.send_signal(signal.SIGINT)
    reason, n_draws = script.stdout.read().splitlines()[-1].split()
    assert reason == "interrupted"
    assert int(n_draws) > 50
    assert all(ended(process) for process in processes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"workers": N_ROWS + 1}, "shard"),
        ({"draws": 0}, "at least 1"),
        ({"redundancy": 9}, "from 1 to the number of workers, 4, not 9"),
        ({"scheme": "magic"}, "cmc, grouped, coded"),
        ({"sampler": "magic"}, "ellipse"),
        ({"until": quorate.Until(time=1.0), "every": -1.0}, "0 seconds or more"),
        ({"until": "ess:-1"}, "above 0"),
        ({"draws": 2.5}, "at least 1, not 2.5"),
        ({"model": 7}, "quorate.models"),
        ({"faults": "slow:3x2,dead:2"}, "only 4"),
        ({"faults": "straggle:0.5"}, "above 1"),
        ({"faults": "asleep:2"}, "slow:VALUE, dead:VALUE, straggle:VALUE"),
        ({"until": "ess:many"}, "Cannot read 'ess:many'"),
        ({"scheme": "coded", "on_lost_shard": "exclude"}, "coded cannot leave shards out"),
        ({"scheme": "coded", "sampler": lambda target, start, rng: None}, "same bits"),
        ({"scheme": quorate.CMC(), "redundancy": 2}, r"Give redundancy to CMC\(\.\.\.\)"),
    ],
)
def test_bad_input(change, message, rows, tmp_path):
    with pytest.raises(BadInputError, match=message):
        sample(rows, tmp_path, **change)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "estimated"}, "need `cov_ridge`"),
        ({"weights": "magic"}, "draws or shrunk"),
        ({"redundancy": 2.5}, "whole number"),
    ],
)
def test_bad_options_of_a_scheme(options, message):
    with pytest.raises(BadInputError, match=message):
        quorate.Coded(**options).start(Setup(4, 2, 10))


def test_unknown_settings_are_named(rows, tmp_path):
    with pytest.raises(TypeError, match=r"no setting gap\. Its settings are method, workers"):
        sample(rows, tmp_path, gap=3)


def test_stream_takes_what_sample_takes():
    assert inspect.signature(quorate.stream) == inspect.signature(quorate.sample).replace(
        return_annotation=inspect.signature(quorate.stream).return_annotation
    )
    assert len(inspect.signature(quorate.sample).parameters) <= 18
