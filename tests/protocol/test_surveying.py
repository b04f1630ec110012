"""Workers that share a process survey one shard at a time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quorate.engines.latency import ShiftedExponential
from quorate.engines.virtual.passes import VirtualPasses
from quorate.lab.scale import Pooled
from quorate.numerics.streams import Streams
from quorate.passes.inquiry import Inquiry
from quorate.protocol.allocation import cyclic, groups
from quorate.protocol.exact import ExactScheme
from quorate.protocol.messages import RECIPE, Evaluate, Survey, WorkerJoined, WorkerLost
from quorate.protocol.passes import PassCoordinator
from quorate.protocol.sums import AnyHolder
from quorate.protocol.surveying import Surveying

DIM = 2


def coordinator(n_workers, redundancy, draws=64, devices=()):
    inquiry = Inquiry(np.zeros(DIM), ("a", "b"), draws, 0, has_gradient=False)
    sums = AnyHolder.by_shard(cyclic(n_workers, redundancy))
    return PassCoordinator(ExactScheme(sums, inquiry, devices), draws)


def surveys(commands):
    return [command for command in commands if isinstance(command, Survey)]


def test_a_process_surveys_one_shard_at_a_time():
    run = coordinator(8, 2)
    given_out = [s for k in range(8) for s in surveys(run.handle(WorkerJoined(k, f"{k % 2}")))]
    assert len(given_out) == 2
    answering = Pooled(8, DIM)
    n_answered = 0
    while given_out and n_answered < 8:
        task = given_out.pop(0)
        commands = run.handle(next(answering.answers(task)), now=n_answered // 2 + 1.0)
        n_answered += 1
        given_out += surveys(commands)
        assert len({task.worker % 2 for task in given_out}) == len(given_out)
    assert run.scheme.n_surveyed == 8


def test_each_process_of_a_node_surveys_a_shard():
    run = coordinator(8, 2)
    joining = [WorkerJoined(k, "one", f"process {k % 4}") for k in range(8)]
    assert len([survey for event in joining for survey in surveys(run.handle(event))]) == 4


@given(st.integers(1, 4), st.integers(0, 2**16))
def test_no_survey_is_made_twice_because_it_waits(n_processes, seed):
    """Times vary by a fifth, and nothing is late that is not waiting for another in its process."""
    run = coordinator(12, 2)
    nodes = [f"{k % n_processes}" for k in range(12)]
    latency = ShiftedExponential(0.9, 0.01)
    timeline = VirtualPasses(run, Pooled(12, DIM), latency, Streams(seed), nodes).run()
    assert timeline.finished
    assert sum(len(shards) == 1 for shards in timeline.block_shards[:12]) == 12
    assert run.scheme.n_surveyed == 12
    asked = list(timeline.block_shards[:12])
    assert len(set(asked)) == 12


@given(st.data())
def test_all_shards_are_surveyed_in_any_order_of_answers_and_losses(data):
    """No worker waits for a turn that never comes, and nothing has to be late for that."""
    n_workers = data.draw(st.integers(1, 8))
    redundancy = data.draw(st.integers(1, min(3, n_workers)))
    nodes = data.draw(st.lists(st.integers(0, 2), min_size=n_workers, max_size=n_workers))
    run, answering = coordinator(n_workers, redundancy), Pooled(n_workers, DIM)
    run.scheme._requests._pass_time = lambda now: None  # nothing is ever late
    under_way = []
    for k in data.draw(st.permutations(range(n_workers))):
        under_way += surveys(run.handle(WorkerJoined(k, f"{nodes[k]}")))
    n_losses = data.draw(st.integers(0, 3))
    while run.scheme.n_surveyed < n_workers:
        assert under_way, "nobody is asked, and shards are left"
        task = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
        if n_losses:
            n_losses -= 1
            gone = [k for k in range(n_workers) if nodes[k] == nodes[task.worker]]
            under_way = [other for other in under_way if other.worker not in gone]
            for k in gone:  # a process ends with all its workers, and comes back
                under_way += surveys(run.take_back(k))
            for k in gone:
                under_way += surveys(run.handle(WorkerJoined(k, f"{nodes[k]}")))
        else:
            under_way += surveys(run.handle(next(answering.answers(task))))


def test_those_who_are_gone_are_not_waited_for():
    """Of three workers of a process the second is lost while it waits: the third comes next."""
    turns = Surveying(cyclic(3, 2), ())
    for worker in range(3):
        turns.joined(worker, "here", 0.0)
    turns.begin(0)
    assert not turns.is_free(1)
    assert not turns.is_free(2)
    turns.lost(1)
    turns.end(0)
    assert turns.called() == [2]
    turns.begin(2)
    turns.lost(2)
    assert turns.called() == []
    assert turns.is_free(0)


def test_a_lost_worker_hands_its_turn_on():
    run = coordinator(4, 2)
    for k in range(4):
        run.handle(WorkerJoined(k, "one"))
    (again,) = surveys(run.handle(WorkerLost(0)))
    assert (again.worker, again.shards) == (1, (1,))


def test_a_device_surveys_one_shard_itself_unless_it_is_lost():
    """Worker 0 comes late: the others leave its first shard to it, and take it if it is gone."""
    run, answering = coordinator(3, 3, devices=[0]), Pooled(3, DIM)
    tasks = [s for k in (1, 2) for s in surveys(run.handle(WorkerJoined(k)))]
    for task in tasks:
        assert not surveys(run.handle(next(answering.answers(task)), now=1.0))
    assert run.scheme.n_surveyed == 2
    assert not surveys(run.wake(100.0))
    (own,) = surveys(run.handle(WorkerJoined(0), now=100.0))
    assert own.shards == (0,)
    (instead,) = surveys(run.handle(WorkerLost(0), now=101.0))
    assert instead.shards == (0,)
    run.handle(next(answering.answers(instead)), now=102.0)
    assert run.scheme.n_surveyed == 3


def test_a_device_that_does_not_start_is_not_waited_for_without_end():
    run, answering = coordinator(3, 3, devices=[0]), Pooled(3, DIM)
    tasks = [s for k in (1, 2) for s in surveys(run.handle(WorkerJoined(k), now=5.0))]
    for task in tasks:
        run.handle(next(answering.answers(task)), now=6.0)
    assert run.next_wake(6.0) == 125.0
    (instead,) = surveys(run.wake(125.0))
    assert instead.shards == (0,)


def test_each_device_has_a_shard_of_its_own():
    kept = Surveying(groups(4, 2), [0, 1])
    assert [kept.may(1, shard) for shard in range(2)] == [False, True]
    assert [kept.may(0, shard) for shard in range(2)] == [True, False]


# ---------------------------------------------------------------- recipes


def evaluations(commands):
    return [command for command in commands if isinstance(command, Evaluate)]


def test_each_worker_is_told_once_how_its_shards_were_prepared():
    """And the worker in the place of a lost one is told again."""
    run, answering = coordinator(2, 2), Pooled(2, DIM)
    tasks = [task for k in range(2) for task in run.handle(WorkerJoined(k))]
    recipes = {0: np.array([1.0, 2.0]), 1: np.array([3.0, 4.0])}
    asked = []
    while len(asked) < 40:
        task = tasks.pop(0)
        answer = next(answering.answers(task))
        if isinstance(task, Survey):
            (shard,) = task.shards
            answer = answer._replace(found={**answer.found, f"{shard}/{RECIPE}": recipes[shard]})
        else:
            asked.append(task)
        tasks += run.handle(answer)
    told = {(task.worker, *task.shards): task.recipes for task in asked if task.recipes is not None}
    assert len(told) == sum(task.recipes is not None for task in asked) > 0
    for (_, *shards), found in told.items():
        np.testing.assert_array_equal(found, [recipes[shard] for shard in shards])
    assert {(task.worker, shard) for task in asked for shard in task.shards} == {
        (worker, shard) for worker, *shards in told for shard in shards
    }
    worker = asked[-1].worker
    run.handle(WorkerLost(worker))
    (again, *_) = evaluations(run.handle(WorkerJoined(worker)))
    np.testing.assert_array_equal(again.recipes, [recipes[shard] for shard in again.shards])


def test_shards_without_a_recipe_are_prepared_by_their_holders():
    surveying = Surveying(cyclic(4, 2), ())
    surveying.found |= {0: {RECIPE: np.array([1.0, 2.0])}, 1: {"mode": np.zeros(2)}}
    surveying.found[2] = {RECIPE: np.zeros(5)}  # of another model
    assert surveying.recipes(0, [1]) is None
    assert surveying.recipes(0, [3]) is None
    assert surveying.recipes(0, [0, 1]) is None
    assert surveying.recipes(0, [0, 2]) is None
    np.testing.assert_array_equal(surveying.recipes(0, [0]), [[1.0, 2.0]])
    assert surveying.recipes(0, [0]) is None
    assert surveying.recipes(1, [0]) is not None
