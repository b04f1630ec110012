"""After the last draw: progress is told, a signal is heard at once, and memory is bounded."""

import os
import signal
import time
import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest

import quorate
from helpers.processes import MeanModel
from quorate.merging.ess import ess_and_rhat
from quorate.numerics.ess import bulk_ess, ess_of_chains, mean_ess, split_rhat
from quorate.numerics.streams import Streams
from quorate.protocol.messages import Block
from quorate.protocol.scheme import Setup
from quorate.protocol.schemes.cmc import CMC
from quorate.protocol.timeline import Timeline
from quorate.results.result import Result
from quorate.run.exact import _ess_of_coordinates
from quorate.run.view import View
from quorate.trust.exact import ExactQuestion

N_WORKERS, DIM = 4, 10


@pytest.fixture
def rows(seed):
    return {"z": np.random.default_rng(seed).normal([1.0, -2.0], size=(200, 2))}


def sample(rows, run, listen, **options):
    options = {"workers": 2, "draws": 300, "scheme": "cmc", "method": "merge", **options}
    return quorate.sample(MeanModel(), rows, run_dir=run, progress=listen, every=0.0, **options)


def test_what_is_done_after_the_last_draw_is_told(rows, tmp_path):
    told = []
    sample(rows, tmp_path / "run", lambda progress: told.append(progress.phase))
    after = ["gathering", "summarising", "saving", "checking", "saving"]
    assert told[told.index("gathering") :] == after


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", ["gathering", "summarising", "checking", "saving"])
def test_a_signal_after_the_last_draw_ends_the_run_at_once(number, stage, rows, tmp_path):
    run = tmp_path / "run"

    def attack(progress):
        if progress.phase == stage:
            os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt, match="All draws are in the journal: resume"):
        sample(rows, run, attack)
    resumed = quorate.resume(run, progress=False)
    undisturbed = sample(rows, tmp_path / "other", False)
    np.testing.assert_array_equal(resumed.unconstrained, undisturbed.unconstrained)


def fed(n_draws, rng):
    """The view of a run that has received so many draws of every shard, a thousand at a time."""
    scheme = CMC().start(Setup(N_WORKERS, DIM, n_draws))
    for worker in range(N_WORKERS):
        task = scheme.next_task(worker, n_draws)
        for first in range(0, n_draws, 1000):
            scheme.receive(Block(task, first, rng.normal(size=(1000, 1, DIM))))
    return View(scheme, DIM, n_draws)


def test_merge_and_summary_take_a_few_times_the_memory_of_the_draws(rng):
    n_draws = 100_000
    view = fed(n_draws, rng)
    held = (N_WORKERS + 1) * n_draws * DIM * 8  # of the shards, and merged
    tracemalloc.start()
    try:
        merged, weights = view.global_draws(), view.weights()
        shards = view.shard_draws()
        ess_and_rhat(np.exp(merged), merged, weights, shards)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * held  # besides the draws that were there before, so 4 in all


def exact_result(draws, n_chains, folder):
    told = {"scheme": "adaptive", "stopped": "done", "method": "exact", "run_dir": str(folder)}
    counts = {"workers": 2, "redundancy": 2, "n_chains": n_chains}
    none = {"shard_draws": (), "weights": None, "excluded": (), "lost": frozenset()}
    return Result(Ten(), draws, timeline=Timeline(), **told, **counts, **none)


class Ten(MeanModel):
    """Ten parameters, two of which are positive."""

    dim = DIM
    names = tuple(f"theta[{i}]" for i in range(DIM))

    def constrain(self, draws):
        return {"theta": draws[:, :-2], "sigma": np.exp(draws[:, -2:])}


def summarised_checked_and_saved(result, n_chains):
    """What is done with the draws of an exact run; returns the ESS of coordinates and a verdict."""
    draws = result.unconstrained
    result.summary_rows()
    result.save()
    known = _ess_of_coordinates(result)
    question = ExactQuestion(Ten(), draws, n_chains, [], [None] * 2, ess=known)
    points = question.proposal().points(Streams(1), 100)
    verdict = question.answer(points, -0.5 * np.sum(points**2, axis=1))
    result.judged(verdict).save()
    return known, verdict


def test_summary_check_and_files_of_an_exact_run_take_little_memory(rng, tmp_path):
    draws, n_chains = rng.normal(size=(300_000, DIM)), 125
    result = exact_result(draws, n_chains, tmp_path)
    ess = ess_of_chains(draws, n_chains)
    tracemalloc.start()
    try:
        known, verdict = summarised_checked_and_saved(result, n_chains)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * draws.nbytes  # besides the draws, and the chains that have them
    np.testing.assert_allclose(known, ess, rtol=1e-9)
    rows = result.summary_rows()
    assert known[0] == rows["theta[0]"]["ess"]
    assert verdict.raw["sigma[1]"]["50%"] == np.sort(np.exp(draws[:, -1]))[len(draws) // 2 - 1]


@contextmanager
def deaf():
    """Collects for how many seconds of its own CPU time this thread has heard no signal.

    A signal comes every hundredth of a second of CPU time, and waits while numpy computes.
    """
    heard = [time.thread_time()]
    before = signal.signal(signal.SIGVTALRM, lambda *_: heard.append(time.thread_time()))
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.01, 0.01)
    try:
        yield heard
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def test_a_signal_is_heard_within_a_second_of_work(rng, tmp_path):
    """Of 10⁶ draws, so within its share of a second here."""
    n_draws, n_chains = 300_000, 125
    result = exact_result(rng.normal(size=(n_draws, DIM)), n_chains, tmp_path)
    with deaf() as heard:
        summarised_checked_and_saved(result, n_chains)
    assert len(heard) > 10
    assert np.diff(heard).max() < n_draws / 10**6


def test_many_draws_are_merged_as_few_are(rng):
    view = fed(60_000, rng)
    received = view.scheme.received
    merged = view.global_draws()
    assert merged.shape == (60_000, DIM)
    np.testing.assert_allclose(merged, received.global_draws()[:60_000], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("statistic", [bulk_ess, mean_ess, split_rhat])
def test_statistics_of_many_draws_are_those_of_each_function(statistic, rng):
    draws = np.cumsum(rng.normal(size=(2, 70_000, 8)), axis=1)
    one_by_one = [statistic(draws[..., [i]])[0] for i in range(8)]
    np.testing.assert_allclose(statistic(draws), one_by_one, rtol=1e-9)
