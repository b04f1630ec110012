"""Slow workers are told from dead and stuck ones: no clock, no process."""

import numpy as np
import pytest

from helpers import schemes as make
from helpers.slow_workers import SlowProcess, run_in_virtual_time
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.messages import Beat, Doing, Kill
from quorate.protocol.patience import Limits, Patience

DIM, N_WORKERS, RUNS = 2, 4, 100


def beat(patience, now, worker=0, step="", seconds=0.0, **longest):
    patience.beat(Beat(worker, Doing(step, seconds, longest)), now)


def first_complaint(patience, worker, since, until, step=0.5):
    """When a worker is first complained about, and in which words."""
    for now in np.arange(since, until, step):
        if said := patience.complaint(worker, now):
            return now, said
    return None, ""


@pytest.fixture
def patience():
    patience = Patience(Limits(), 3)
    for worker in range(3):
        patience.started(worker, 0.0)
    return patience


def test_no_sign_of_life_for_ten_seconds(patience):
    beat(patience, 5.0, step="draw", draw=0.1)
    then, said = first_complaint(patience, 0, 5.0, 60.0)
    assert then == 15.5
    assert said == "no sign of life for 10.5 s"


def test_a_process_that_the_kernel_says_is_stopped(patience):
    beat(patience, 5.0, step="warm_up")  # of a length that nobody knows
    patience.beat(Beat(0, is_stopped=True), 6.0)
    then, said = first_complaint(patience, 0, 6.0, 60.0)
    assert then == 11.5
    assert said == "its process is stopped, no sign of life for 6.5 s"


def test_a_process_that_was_stopped_and_goes_on_is_forgiven(patience):
    beat(patience, 5.0)
    patience.beat(Beat(0, is_stopped=True), 9.0)
    beat(patience, 10.0)
    assert not patience.complaint(0, 19.0)


def test_code_that_holds_the_lock_may_be_silent_for_as_long_as_its_steps_take(patience):
    beat(patience, 0.0, step="log_density", log_density=20.0)
    assert first_complaint(patience, 0, 0.0, 200.0)[0] == 60.5
    beat(patience, 0.0, worker=1, step="survey")
    assert first_complaint(patience, 1, 0.0, 200.0)[0] == 60.5


def test_a_step_that_takes_a_thousand_times_what_is_usual_is_stuck(patience):
    for now in range(60):
        beat(patience, now, step="log_density", seconds=float(now), log_density=0.05)
        said = patience.complaint(0, now)
        assert bool(said) == (now > 50)
    assert said == "stuck: log_density has taken 59.0 s, where 0.05 s is usual"


def test_a_step_may_always_take_half_a_minute(patience):
    beat(patience, 30.0, step="log_density", seconds=30.0, log_density=1e-4)
    assert not patience.complaint(0, 30.0)
    beat(patience, 31.0, step="log_density", seconds=31.0, log_density=1e-4)
    assert "stuck" in patience.complaint(0, 31.0)


def test_a_first_step_is_judged_by_what_the_others_needed(patience):
    """As long as nobody has finished one, nobody is stuck: it may be a long compilation."""
    beat(patience, 3600.0, step="warm_up", seconds=3600.0)
    assert not patience.complaint(0, 3600.0)
    beat(patience, 3600.0, worker=1, warm_up=2.0)
    assert "stuck" in patience.complaint(0, 3600.0)
    beat(patience, 3600.0, worker=2, warm_up=9.0)
    assert not patience.complaint(0, 3600.0)


def test_a_restarted_worker_keeps_its_record(patience):
    beat(patience, 0.0, log_density=1.0)
    patience.started(0, 10.0)
    beat(patience, 500.0, step="log_density", seconds=490.0)
    assert not patience.complaint(0, 500.0)


def test_who_waits_for_work_is_never_stuck(patience):
    beat(patience, 1e6, seconds=1e6, log_density=1e-3)
    assert not patience.complaint(0, 1e6)


def test_a_first_sign_may_take_long_but_not_for_ever(patience):
    assert first_complaint(patience, 0, 0.0, 1e4)[0] is None
    beat(patience, 0.01, worker=1)
    assert first_complaint(patience, 0, 0.0, 1e4)[0] == 60.5


# ---------------------------------------------------------------- runs in virtual time


def a_run(rng, factor, n_processes=N_WORKERS, redundancy=2):
    """A supervisor and processes, one of which is slower: from the beginning or at some moment.

    Evaluations differ by a factor of e^(0.2 z), z normal. One that is 200 times slower than the
    only one before takes more than 1,000 times as long where z of two differ by 8: never.
    """
    scheme = make.grouped(N_WORKERS, redundancy, 1.0)
    supervisor = make.supervisor_of(Coordinator(scheme, 8, queue_depth=2), DIM)
    usual = 10 ** rng.uniform(-3, -0.7)  # seconds for an evaluation
    changes = rng.integers(0, 15)  # evaluations before it gets slow

    def process(place):
        def seconds(n):
            slowed = factor if place == 0 and n >= changes else 1.0
            return usual * slowed * rng.lognormal(0.0, 0.2)

        return SlowProcess(list(range(place, N_WORKERS, n_processes)), seconds, DIM)

    return supervisor, [process(place) for place in range(n_processes)]


@pytest.mark.parametrize("n_processes", [N_WORKERS, 1])
@pytest.mark.parametrize("factor", [10, 50, 200])
def test_slow_workers_are_never_replaced_while_they_work(factor, n_processes, rng):
    for _ in range(RUNS):
        redundancy = int(rng.choice([1, 2]))
        notes, finished = run_in_virtual_time(*a_run(rng, factor, n_processes, redundancy))
        assert notes == []
        assert finished


def test_a_process_that_is_frozen_is_found_within_ten_seconds(rng):
    for _ in range(20):
        supervisor, processes = a_run(rng, 200, redundancy=1)
        processes[1].seconds = lambda n: 1e5  # it works all the time
        at = float(rng.integers(1, 40))
        notes, _ = run_in_virtual_time(supervisor, processes, freeze=(processes[1], at))
        assert [command.worker for _, command in notes if isinstance(command, Kill)] == [1]
        assert notes[0][0] - at < 10
