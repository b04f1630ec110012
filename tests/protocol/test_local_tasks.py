"""Local tasks under any order of answers, and what becomes of those that are late or wrong."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.one_way import Nested, OneWay, rows
from quorate.engines.latency import Exponential, Pareto
from quorate.engines.virtual.passes import VirtualPasses
from quorate.engines.workers.after import computed
from quorate.engines.workers.local import LocalUniforms
from quorate.numerics.streams import Streams
from quorate.protocol.after import ShardSchedule, allocation_for
from quorate.protocol.coordinator import WakingCoordinator
from quorate.protocol.local import BLOCK, DrawsInOrder, LocalQuestion, MomentsOfShards
from quorate.protocol.messages import ShardFound, Stop, WorkerJoined, WorkerLost

N_SHARDS, N_POINTS = 4, 3 * BLOCK + 7


class Workers:
    """Answers tasks as any worker would, from rows in memory."""

    def __init__(self, model, data, n_shards=N_SHARDS, seed=1):
        self.model, self.streams = model, Streams(seed)
        owners = data["group"] % n_shards
        self.shards = [{k: v[owners == s] for k, v in data.items()} for s in range(n_shards)]

    def answers(self, task):
        (shard,) = task.shards
        yield ShardFound(
            task._replace(points=task.points[:0], numbers=task.numbers[:0]),
            computed(self.model, self.shards[shard], self.streams, task),
        )

    def answer(self, task):
        return next(self.answers(task))


def points_of(rng, n=N_POINTS):
    return rng.normal([1.0, -0.3, 0.4], 0.1, size=(n, 3))


def question(model, points, groups=None, shards=range(N_SHARDS)):
    widths = tuple(len(level.names) for level in model.levels)
    return LocalQuestion(points, np.arange(len(points)), widths, tuple(shards), groups)


class Schedule(ShardSchedule):
    """A schedule of local tasks, with the moments or draws that its answers make."""

    def __init__(self, allocation, question):
        kind = MomentsOfShards if question.groups is None else DrawsInOrder
        self.found = kind(question)
        super().__init__(allocation, question, self.found)


def every_group(workers):
    return {s: np.unique(rows["group"]) for s, rows in enumerate(workers.shards)}


def in_any_order(schedule, workers, pick):
    """Run to the end; `pick(n)` says which of n workers answers next, or is lost for good."""
    coordinator = WakingCoordinator(schedule, schedule.n_pieces)
    n_workers = schedule.allocation.n_workers
    to_do = {}
    commands = [c for k in range(n_workers) for c in coordinator.handle(WorkerJoined(k))]
    for now in range(10_000):
        to_do |= {command.worker: command for command in commands if hasattr(command, "points")}
        if commands and isinstance(commands[-1], Stop):
            return commands[-1].finished
        who = sorted(to_do)[pick(len(to_do))]
        commands = coordinator.handle(workers.answer(to_do.pop(who)), float(now))
    raise AssertionError("it does not end")


@settings(max_examples=20)
@given(data=st.data(), n_workers=st.integers(1, 6), redundancy=st.integers(1, 3))
def test_moments_do_not_depend_on_who_answers_when(data, n_workers, redundancy, seed):
    rng = np.random.default_rng(seed)
    model, points = OneWay(), points_of(rng)
    workers = Workers(model, rows(rng))
    allocation = allocation_for(n_workers, range(N_SHARDS), redundancy)
    schedule = Schedule(allocation, question(model, points))
    pick = st.integers(0, 1000)
    assert in_any_order(schedule, workers, lambda n: data.draw(pick) % n)
    (found,) = schedule.found.moments()
    plain = Schedule(allocation_for(1, range(N_SHARDS), 1), question(model, points))
    in_any_order(plain, workers, lambda n: 0)
    (expected,) = plain.found.moments()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", [OneWay, Nested])
def test_moments_are_those_of_all_rows_in_one_shard(kind, rng):
    model, points = kind(), points_of(rng)
    data = rows(rng)
    schedule = Schedule(allocation_for(3, range(N_SHARDS), 2), question(model, points))
    assert in_any_order(schedule, Workers(model, data), lambda n: n - 1)
    direct = model.local_moments(points, data)
    for level, found in zip(model.levels, schedule.found.moments(), strict=True):
        expected = direct[level.name]
        np.testing.assert_array_equal(found.groups, expected.groups)
        np.testing.assert_allclose(found.centres, expected.centres)
        np.testing.assert_allclose(found.sums, expected.sums)


@pytest.mark.parametrize("kind", [OneWay, Nested])
def test_draws_of_a_group_do_not_depend_on_the_others(kind, rng):
    model, points = kind(), points_of(rng)
    workers = Workers(model, rows(rng))
    asked = question(model, points, every_group(workers))
    every = Schedule(allocation_for(3, asked.shards, 2), asked)
    some = {1: np.array([5, 13]), 2: np.array([2])}
    few = Schedule(allocation_for(3, (1, 2), 2), question(model, points, some, shards=(1, 2)))
    for schedule in (every, few):
        assert in_any_order(schedule, workers, lambda n: 0)
    for (all_codes, all_draws), (codes, draws) in zip(
        every.found.draws(), few.found.draws(), strict=True
    ):
        assert len(codes) < len(all_codes)
        np.testing.assert_array_equal(draws, all_draws[:, np.searchsorted(all_codes, codes)])
    np.testing.assert_array_equal(few.found.draws()[0][0], [2, 5, 13])


def test_draws_of_a_few_points_are_those_of_all(rng):
    """Numbers of draws are the keys, not places among the points asked for."""
    numbers = np.array([0, 1, 2, 15, 16, 17, 40, 99])
    levels, groups = ("plane",), np.array([3, 4, 9])
    every = LocalUniforms(Streams(1), 2, levels, np.arange(100))("plane", groups, 2)
    some = LocalUniforms(Streams(1), 2, levels, numbers)("plane", groups, 2)
    np.testing.assert_array_equal(some, every[numbers])
    assert len(np.unique(every)) == every.size
    another = LocalUniforms(Streams(1), 3, levels, numbers)("plane", groups, 2)
    assert not np.any(another == some)


def test_a_lost_worker_costs_nothing_and_two_cost_the_shard(rng):
    model, points = OneWay(), points_of(rng)
    workers, asked = Workers(model, rows(rng)), question(model, points)
    schedule = Schedule(allocation_for(4, range(N_SHARDS), 2), asked)
    coordinator = WakingCoordinator(schedule, schedule.n_pieces)
    to_do = [c for k in range(4) for c in coordinator.handle(WorkerJoined(k), 0.0)]
    assert [task.shards for task in to_do] == [(0,), (1,), (2,), (3,)]
    more = coordinator.handle(WorkerLost(0), 0.0)
    assert schedule.out_of_reach(1, {1, 2, 3}) == ()
    assert not any(isinstance(command, Stop) for command in more)
    (after,) = coordinator.handle(WorkerLost(1), 0.0)
    assert after == Stop(finished=False)
    assert schedule.out_of_reach(1, {2, 3}) == (0,)
    assert schedule.receive(workers.answer(to_do[2])) == 1


@pytest.mark.parametrize(("n_workers", "n_shards", "copies"), [(1, 5, 2), (3, 7, 2), (9, 4, 6)])
def test_every_shard_has_holders_and_every_worker_a_shard(n_workers, n_shards, copies):
    allocation = allocation_for(n_workers, range(10, 10 + n_shards), copies)
    assert all(allocation.held)
    for shard in range(10, 10 + n_shards):
        assert len(set(allocation.holders_of(shard))) == min(copies, n_workers)


def test_what_is_late_is_asked_of_another_holder(rng):
    model, points = OneWay(), points_of(rng, BLOCK)
    workers, asked = Workers(model, rows(rng)), question(model, points)
    schedule = Schedule(allocation_for(4, range(N_SHARDS), 2), asked)
    coordinator = WakingCoordinator(schedule, schedule.n_pieces)
    to_do = [c for k in range(4) for c in coordinator.handle(WorkerJoined(k), 0.0)]
    for task in to_do[1:]:
        assert not [c for c in coordinator.handle(workers.answer(task), 1.0) if "points" in dir(c)]
    assert coordinator.next_wake(1.0) == 2.0
    (again,) = coordinator.wake(2.0)
    assert (again.worker, again.shards) == (1, (0,))
    assert coordinator.handle(workers.answer(again), 3.0)[-1] == Stop(finished=True)
    assert coordinator.handle(workers.answer(to_do[0]), 9.0) == []  # too late to matter


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda found: {**found, "0/sums": found["0/sums"] * np.nan}, "sums are not finite"),
        (lambda found: {**found, "0/centres": found["0/centres"][1:]}, "centres have shape"),
        (lambda found: {k: v for k, v in found.items() if "sums" not in k}, "have groups, centres"),
        (lambda found: {}, "of levels"),
    ],
)
def test_answers_that_cannot_be_are_refused(spoil, complaint, rng):
    model, points = OneWay(), points_of(rng)
    schedule = Schedule(allocation_for(4, range(N_SHARDS), 2), question(model, points))
    answer = Workers(model, rows(rng)).answer(schedule.next_task(0, None))
    assert schedule.fault_in(answer) == ""
    assert complaint in schedule.fault_in(answer._replace(found=spoil(answer.found)))


def test_local_tasks_in_virtual_time(rng):
    """Slow workers change when moments are there, and not what they are."""
    model, points = OneWay(), points_of(rng)
    workers, found, ends = Workers(model, rows(rng)), [], []
    for latency in (Exponential(1.0), Pareto(1.0, 1.5)):
        asked = question(model, points)
        schedule = Schedule(allocation_for(5, range(N_SHARDS), 2), asked)
        coordinator = WakingCoordinator(schedule, schedule.n_pieces)
        timeline = VirtualPasses(coordinator, workers, latency, Streams(1)).run()
        assert timeline.finished
        found.append(schedule.found.moments()[0].sums)
        ends.append(timeline.block_times[-1])
    np.testing.assert_array_equal(*found)
    assert ends[0] != ends[1]
