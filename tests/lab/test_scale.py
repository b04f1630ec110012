"""The figure `scale`: the model is what the engines do, and virtual time agrees with it."""

import io

import numpy as np
import pytest

from quorate.engines.frames import write_frame
from quorate.engines.workers.service import answer_frame, task_frame
from quorate.lab.scale import (
    Questions,
    ScaleExperiment,
    ends,
    exact_costs,
    merge_costs,
    scaled,
    simulated,
)
from quorate.protocol.messages import Evaluate, Values

EXPERIMENT = ScaleExperiment(draws=256)
ASKED = Questions(60, 2400)


@pytest.fixture(scope="module")
def one():
    return simulated(EXPERIMENT, 1, 1, "mild")


def test_one_process_takes_what_the_model_says(one):
    """Mild times average out over the blocks of a run: within four standard errors."""
    run, asked = one
    model = exact_costs(EXPERIMENT, asked, np.array([1])).compute[0]
    error = 0.2 / np.sqrt(asked.n_blocks)  # 0.2: the standard deviation of a mild time
    # The survey of the shard takes as long as a block, and the model leaves it out
    assert run.seconds / model == pytest.approx(1 + 1 / asked.n_blocks, abs=4 * error)


@pytest.mark.parametrize("per_process", [1, 16])
def test_questions_do_not_depend_on_the_machines(one, per_process):
    _, asked = simulated(EXPERIMENT, 8, per_process, "mild")
    assert asked.n_points == one[1].n_points
    assert asked.n_blocks == pytest.approx(one[1].n_blocks, rel=0.1)  # some are asked for twice


def test_messages_grow_with_processes_and_not_with_workers():
    few, _ = simulated(EXPERIMENT, 8, 2, "mild")
    many, _ = simulated(EXPERIMENT, 8, 200, "mild")
    sums = [run.n_messages - run.workers for run in (few, many)]  # without surveys
    assert sums[1] < 1.2 * sums[0]


def test_bytes_are_those_of_frames():
    file = io.BytesIO()
    task = Evaluate(0, (0,), 0, 0, 0, np.zeros((64, 3)))
    write_frame(file, task_frame(task))
    write_frame(file, answer_frame(Values(task._replace(points=task.points[:0]), np.zeros(64))))
    costs = exact_costs(ScaleExperiment(dim=3), Questions(1, 64), np.array([10]))
    assert costs.n_bytes[0] == 10 * len(file.getvalue())


def test_where_a_method_ends_its_costs_cross():
    found = ends(EXPERIMENT, ASKED)
    at = np.array([found["exact, coordinator"] - 1, found["exact, coordinator"]])
    costs = exact_costs(EXPERIMENT, ASKED, at)
    assert list(costs.coordinator > costs.compute) == [False, True]
    at = np.array([found["merge, coordinator"] - 1, found["merge, coordinator"]])
    costs = merge_costs(EXPERIMENT, at)
    assert list(costs.coordinator > costs.compute) == [False, True]


def test_draws_of_shards_beyond_some_are_not_in_memory():
    costs = merge_costs(ScaleExperiment(), np.array([10, 100, 1000, 100_000]))
    assert costs.memory[0] == costs.n_bytes[0]
    assert costs.memory[2] == costs.memory[3] < 2**26


def test_all_sizes_are_run_with_all_times():
    told = []
    asked, runs = scaled(EXPERIMENT.up_to(4), lambda done, total: told.append((done, total)))
    assert told == [(i + 1, 4) for i in range(4)]
    assert [(run.workers, run.times) for run in runs] == [
        (1, "mild"), (4, "mild"), (1, "heavy"), (4, "heavy")
    ]  # fmt: skip
    assert asked.n_points > EXPERIMENT.draws
