"""Shards that several threads evaluate at the same time: the same bits, steps and errors."""

import threading

import numpy as np
import pytest

from helpers.processes import PATIENCE
from quorate.engines.workers.pulse import Pulse
from quorate.engines.workers.worker import Job, Worker
from quorate.models import linear, logistic, negative_binomial, poisson, student
from quorate.protocol.messages import Evaluate
from quorate.protocol.schemes.cmc import SendDraws
from quorate.samplers import make_sampler

N_SHARDS, SHARDS = 6, (0, 2, 3, 5)


class Rows:
    """Shards that are the same each time they are asked for, and cannot change."""

    def __init__(self, rng):
        self.shards = [self.made(rng) for _ in range(N_SHARDS)]

    @staticmethod
    def made(rng):
        rows = {"X": rng.normal(size=(700, 3)), "y": rng.integers(0, 2, 700).astype(float)}
        for array in rows.values():
            array.flags.writeable = False
        return rows

    def shard(self, number):
        return self.shards[number]


def worker_on(model, rows, n_threads, pulse=None):
    job = Job(model, make_sampler("auto"), SendDraws(), "", N_SHARDS, 0)
    return Worker(job, {}, rows, pulse, n_threads)


def answer(worker, points, with_gradient=True):
    scales = np.ones(points.shape[1]) if with_gradient else None
    (values,) = worker.answers(Evaluate(0, SHARDS, 0, 0, 0, points, scales))
    return values


@pytest.mark.parametrize("family", [linear, logistic, poisson, negative_binomial, student])
@pytest.mark.parametrize("with_gradient", [True, False])
def test_threads_change_no_bit(rng, family, with_gradient):
    model, rows = family(3), Rows(rng)
    points = rng.normal(size=(70, model.dim))
    alone = answer(worker_on(model, rows, 1), points, with_gradient)
    for _ in range(5):
        together = answer(worker_on(model, rows, 3), points, with_gradient)
        np.testing.assert_array_equal(together.values, alone.values)
        np.testing.assert_array_equal(together.gradients, alone.gradients)


class Meeting:
    """A model whose evaluations wait for one another."""

    dim, names = 3, ("a", "b", "c")

    def __init__(self, seconds, runs_in_threads):
        self.runs_in_threads = runs_in_threads
        self.barrier = threading.Barrier(len(SHARDS))
        self.seconds = seconds

    def log_prior_many(self, points):
        return np.zeros(len(points))

    def log_likelihood_many(self, points, shard):
        self.barrier.wait(self.seconds)
        return np.zeros(len(points))


def test_shards_are_evaluated_at_the_same_time(rng):
    model = Meeting(PATIENCE, runs_in_threads=True)
    values = answer(worker_on(model, Rows(rng), len(SHARDS)), np.zeros((9, 3)), False)
    np.testing.assert_array_equal(values.values, np.zeros(9))


def test_models_that_do_not_say_so_do_not_run_in_threads(rng):
    model = Meeting(0.01, runs_in_threads=False)
    with pytest.raises(threading.BrokenBarrierError):
        answer(worker_on(model, Rows(rng), len(SHARDS)), np.zeros((9, 3)), False)


class Broken(Meeting):
    """Raises on one shard, which it knows by the first number in it."""

    def __init__(self, broken):
        super().__init__(PATIENCE, runs_in_threads=True)
        self.broken = broken

    def log_likelihood_many(self, points, shard):
        if shard["X"][0, 0] == self.broken:
            raise ZeroDivisionError
        return np.zeros(len(points))


def test_an_error_in_a_thread_names_its_shard_and_ends_the_step(rng):
    rows, pulse = Rows(rng), Pulse()
    worker = worker_on(Broken(rows.shards[3]["X"][0, 0]), rows, 2, pulse)
    with pytest.raises(ZeroDivisionError):
        answer(worker, np.zeros((9, 3)), False)
    assert worker.chains.at_work_on == 3
    assert pulse.look().step == ""
