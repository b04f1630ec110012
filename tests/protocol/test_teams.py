"""Workers of one node answer together: few messages, the same bits, and nobody waits for a node."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from helpers.shards import Shards
from quorate.engines.latency import Pareto
from quorate.engines.virtual.passes import VirtualPasses
from quorate.numerics.streams import Streams
from quorate.passes.inquiry import Inquiry
from quorate.passes.one_question import OneQuestion
from quorate.protocol.allocation import cyclic, groups, random_regular, worker_groups
from quorate.protocol.coding.code import make_code
from quorate.protocol.messages import Values, WorkerJoined, WorkerLost
from quorate.protocol.passes import BLOCK, PassCoordinator, PassSchedule
from quorate.protocol.sums import AnyHolder, CodedSums
from quorate.protocol.teams import Teams

K, DRAWS = 8, 6
NOT_SHRUNK = (Phase.explicit, Phase.generate)  # a smaller seed is no simpler
SUMS = {
    "r = 1": lambda: AnyHolder.by_shard(groups(K, 1)),
    "cyclic": lambda: AnyHolder.by_shard(cyclic(K, 2)),
    "random": lambda: AnyHolder.by_shard(random_regular(K, 3, seed=1)),
    "by group": lambda: AnyHolder(groups(K, 2), tuple(worker_groups(K, 2))),
    "coded": lambda: CodedSums(make_code("grouped", K, 2)),
}


def exact(sums, seed):
    inquiry = Inquiry(np.zeros(2), ("a", "b"), DRAWS, seed, has_gradient=True)
    return PassSchedule(sums, inquiry, needs_surveys=True)


def asking(sums, n_points=3):
    question = OneQuestion(np.repeat(np.arange(n_points, dtype=float)[:, None], 2, axis=1))
    return PassSchedule(sums, question, needs_surveys=False)


def is_done(schedule):
    return schedule._has_begun and not schedule.inquirer.open


class Cluster:
    """Workers that come and go on nodes, and answer in any order."""

    def __init__(self, schedule, shards, rng, n_nodes):
        self.schedule, self.shards, self.rng = schedule, shards, rng
        self.n_nodes = n_nodes
        self.tasks, self.there, self.said = {}, set(), []

    def step(self):
        worker, what = int(self.rng.integers(K)), self.rng.random()
        self.schedule.now += self.rng.exponential()
        if worker not in self.there:
            self.schedule.joined(worker, f"node {self.rng.integers(self.n_nodes)}")
            self.there.add(worker)
        elif what < 0.05:
            self.there.discard(worker)
            self.tasks.pop(worker, None)
            self.schedule.take_back(worker)
        elif worker in self.tasks:
            answer = self.shards.answer(self.tasks.pop(worker))
            assert self.schedule.fault_in(answer) == ""
            self.schedule.receive(answer)
            self.said.append(answer)
        elif what < 0.1 and self.said:
            self.schedule.receive(self.said[int(self.rng.integers(len(self.said)))])
        elif task := self.schedule.next_task(worker, None):
            self.tasks[worker] = task


@pytest.mark.parametrize("name", SUMS)
@given(order=st.integers(0, 2**32), n_nodes=st.integers(1, 5), is_cut=st.booleans())
@settings(max_examples=4, phases=NOT_SHRUNK)
def test_nodes_change_no_bit(seed, name, order, n_nodes, is_cut):
    """Workers come, go, move between nodes and repeat themselves: the draws are the same."""
    shards = Shards(K, is_cut)
    cluster = Cluster(exact(SUMS[name](), seed), shards, np.random.default_rng(order), n_nodes)
    for _ in range(50_000):
        if is_done(cluster.schedule):
            break
        cluster.step()
    reference = exact(AnyHolder.by_shard(groups(K, 1)), seed)
    while not is_done(reference):
        for task in [task for k in range(K) if (task := reference.next_task(k, None))]:
            reference.receive(shards.answer(task))
    found, expected = cluster.schedule.inquirer, reference.inquirer
    assert found.draws().tobytes() == expected.draws().tobytes()
    assert len(found.draws()) == DRAWS
    assert found.evidence == expected.evidence
    assert not cluster.schedule.disputes


# ---------------------------------------------------------------- who is asked


def started(sums, n_nodes, n_points=3):
    """A coordinator of one question whose workers have all joined, and what they were given."""
    coordinator = PassCoordinator(asking(sums, n_points), n_points)
    n_workers = sums.allocation.n_workers
    for worker in range(n_workers):
        coordinator.scheme.joined(worker, f"node {worker % n_nodes}")
    given = [coordinator.handle(WorkerJoined(k, f"node {k % n_nodes}")) for k in range(n_workers)]
    return coordinator, [task for tasks in given for task in tasks]


@pytest.mark.parametrize("n_workers", [12, 120])
@pytest.mark.parametrize("redundancy", [1, 2])
def test_messages_grow_with_nodes_and_not_with_workers(n_workers, redundancy):
    sums = AnyHolder.by_shard(cyclic(n_workers, redundancy))
    _, tasks = started(sums, 6)
    assert len(tasks) == 6
    assert sorted(shard for task in tasks for shard in task.shards) == list(range(n_workers))


def test_without_nodes_every_worker_answers_for_itself():
    """The control of the test above."""
    coordinator = PassCoordinator(asking(AnyHolder.by_shard(cyclic(12, 2))), 3)
    tasks = [task for k in range(12) for task in coordinator.handle(WorkerJoined(k))]
    assert [len(task.shards) for task in tasks] == [1] * 12


def test_a_part_has_two_nodes_where_there_are_many_sets_of_holders():
    sums = AnyHolder.by_shard(random_regular(400, 4, seed=0))
    teams = Teams(sums)
    for worker in range(400):
        teams.joined(worker, f"node {worker % 8}")
    grouping, _ = teams.grouping(None, ())
    assert len(grouping.sums.cells) <= 8 + 8 * 7 / 2
    assert all(1 <= len(givers) <= 2 for givers in grouping.sums.givers)


def test_a_slow_node_is_not_waited_for():
    """With r = 2 in a ring of nodes, the neighbours answer for one that never does."""
    shards, n_workers = Shards(12), 12
    coordinator, tasks = started(AnyHolder.by_shard(cyclic(n_workers, 2)), 4)
    slow = coordinator.scheme.teams.of(0)
    now, n_answers = 0.0, Counter()
    while tasks:
        now += 1.0
        more = [
            command
            for task in tasks
            if task.worker not in slow
            for command in coordinator.handle(shards.answer(task), now)
        ]
        n_answers.update(task.worker for task in tasks)
        tasks = [task for task in [*more, *coordinator.wake(now + 10.0)] if hasattr(task, "shards")]
        now += 10.0
    assert coordinator.is_done
    assert n_answers[0] == 1


@pytest.mark.parametrize("n_points", [3, 2 * BLOCK])
def test_a_lost_node_is_covered(n_points):
    shards = Shards(12)
    coordinator, tasks = started(AnyHolder.by_shard(cyclic(12, 2)), 4, n_points)
    lost = coordinator.scheme.teams.of(1)
    assert lost == (1, 5, 9)
    tasks += [task for worker in lost for task in coordinator.handle(WorkerLost(worker), 1.0)]
    tasks = [task for task in tasks if task.worker not in lost]
    while not coordinator.is_done:
        assert tasks, "somebody has work until the end"
        task = tasks.pop(0)
        assert task.worker not in lost
        more = coordinator.handle(shards.answer(task), 1.0)
        tasks += [command for command in more if hasattr(command, "shards")]


def test_a_node_whose_only_holder_returns_is_asked_again():
    shards = Shards(4)
    schedule = asking(AnyHolder.by_shard(groups(4, 1)))
    for worker in range(4):
        schedule.joined(worker, "a" if worker < 2 else "b")
    first, other = schedule.next_task(0, None), schedule.next_task(2, None)
    assert (first.shards, other.shards) == ((0, 1), (2, 3))
    schedule.take_back(1)
    alone = schedule.next_task(0, None)
    assert alone.shards == (0,)
    schedule.receive(shards.answer(first))  # the answer to a question that was put otherwise
    schedule.receive(shards.answer(alone))
    again = schedule.next_task(2, None)
    assert again.shards == (2, 3)
    schedule.receive(shards.answer(again))
    assert schedule.inquirer.open
    schedule.joined(1, "a")
    last = schedule.next_task(0, None)
    assert last.shards == (1,)
    schedule.receive(shards.answer(last))
    expected = sum(shards.answer(task).values for task in (first, other))
    np.testing.assert_array_equal(schedule.inquirer.values, expected)


# ---------------------------------------------------------------- how much is done


class Counting(PassSchedule):
    """Counts how often somebody asks for work, and how many keys are looked at."""

    n_asked = n_keys = 0

    def next_task(self, worker, n_draws):
        self.n_asked += 1
        return super().next_task(worker, n_draws)

    def _lacking(self, worker):
        for key in super()._lacking(worker):
            self.n_keys += 1
            yield key


@pytest.mark.parametrize("redundancy", [1, 2, 3])
def test_the_work_for_an_answer_does_not_grow_with_the_workers(redundancy):
    """In virtual time with a heavy tail: each answer wakes only workers that can be of use."""
    for n_workers in (50, 800):
        question = OneQuestion(np.zeros((2 * BLOCK, 2)))
        sums = AnyHolder.by_shard(cyclic(n_workers, redundancy))
        schedule = Counting(sums, question, needs_surveys=False)
        coordinator = PassCoordinator(schedule, 2 * BLOCK)
        passes = VirtualPasses(coordinator, Zeros(), Pareto(0.1, 1.2), Streams(1))
        timeline = passes.run()
        assert timeline.finished
        n_answers = len(timeline.block_times)
        assert schedule.n_asked < 4 * redundancy * n_answers
        assert schedule.n_keys < 8 * redundancy * n_answers


class Zeros:
    """Answers zeros."""

    def answers(self, task):
        yield Values(task._replace(points=task.points[:0]), np.zeros(len(task.points)))
