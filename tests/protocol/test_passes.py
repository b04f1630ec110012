"""Passes under any order of answers, and what becomes of those that are late, wrong or missing."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from helpers.shards import Shards
from quorate.passes.inquiry import Inquiry
from quorate.passes.one_question import OneQuestion
from quorate.protocol.allocation import cyclic, groups, worker_groups
from quorate.protocol.coding.code import CODES, make_code
from quorate.protocol.messages import Stop, Survey, Surveyed, Values, WorkerJoined, WorkerLost
from quorate.protocol.pass_blocks import BLOCK
from quorate.protocol.passes import PassCoordinator, PassSchedule
from quorate.protocol.sums import AnyHolder, CodedSums, values_on_grid

K, DRAWS = 5, 6
NOT_SHRUNK = (Phase.explicit, Phase.generate)  # a smaller seed is no simpler


def by_group(n_workers, redundancy):
    return AnyHolder(groups(n_workers, redundancy), tuple(worker_groups(n_workers, redundancy)))


SUMS = {
    "by shard, cyclic": lambda: AnyHolder.by_shard(cyclic(K, 2)),
    "by shard, groups": lambda: AnyHolder.by_shard(groups(K, 2)),
    "by shard, all": lambda: AnyHolder.by_shard(groups(K, K)),
    "by group": lambda: by_group(K, 2),
    "by group of 3": lambda: by_group(K, 3),
    **{
        f"{name}, r = {r}": lambda name=name, r=r: CodedSums(make_code(name, K, r))
        for name in CODES
        for r in (2, 3)
    },
}


def exact(sums, seed, n_draws=DRAWS):
    inquiry = Inquiry(np.zeros(2), ("a", "b"), n_draws, seed, has_gradient=True)
    return PassSchedule(sums, inquiry, needs_surveys=True)


def asking(sums, n_points=3):
    """The schedule of one question, at points (0, 0), (1, 1), …."""
    question = OneQuestion(np.repeat(np.arange(n_points, dtype=float)[:, None], 2, axis=1))
    return PassSchedule(sums, question, needs_surveys=False)


def expected(shards, schedule):
    """The sum at the points of the open question."""
    points = schedule.inquirer.open[0].points
    found = [values_on_grid(shards.evaluated(shard, points)[0]) for shard in range(shards.n_shards)]
    return np.sum(found, axis=0)


def in_order(schedule, shards):
    """Run to the end, one worker after the other; returns what was answered, for a journal."""
    n_workers = schedule.allocation.n_workers
    while not is_done(schedule):
        tasks = [task for k in range(n_workers) if (task := schedule.next_task(k, None))]
        assert tasks
        for task in tasks:
            schedule.receive(shards.answer(task))
        schedule.catch_up()
    return schedule.answered


def is_done(schedule):
    return schedule._has_begun and not schedule.inquirer.open


def same_bits(one, other):
    assert one.inquirer.draws().tobytes() == other.inquirer.draws().tobytes()
    assert one.inquirer.evidence == other.inquirer.evidence
    assert one.inquirer.n_passes == other.inquirer.n_passes


# ---------------------------------------------------------------- any order


def in_any_order(schedule, shards, rng, second=1.0):
    """Workers answer, die, come back, repeat themselves and are late, in any order.

    `second` is the mean time between two events.
    """
    n_workers = schedule.allocation.n_workers
    tasks, said = {}, []
    for _ in range(50_000):
        if is_done(schedule):
            return
        schedule.now += second * rng.exponential()
        worker, what = int(rng.integers(n_workers)), rng.random()
        if worker not in tasks:
            task = schedule.next_task(worker, None)
            tasks |= {worker: task} if task else {}
        elif what < 0.1:
            del tasks[worker]
            schedule.take_back(worker)
        elif what < 0.2 and said:
            schedule.receive(said[int(rng.integers(len(said)))])
        else:
            answer = shards.answer(tasks.pop(worker))
            assert schedule.fault_in(answer) == ""
            before = schedule.inquirer.n_complete
            assert schedule.receive(answer) >= before
            said.append(answer)
        if schedule.has_put_off and rng.random() < 0.5:
            schedule.catch_up()
        assert not schedule.out_of_reach(DRAWS, range(n_workers))
    raise AssertionError("it did not end")


@pytest.mark.parametrize("name", SUMS)
@given(order=st.integers(0, 2**32), is_cut=st.booleans())
@settings(max_examples=4, phases=NOT_SHRUNK)
def test_any_order_gives_the_same_draws(seed, name, order, is_cut):
    """Whoever answers and by whatever sums, also where some points have no density."""
    shards = Shards(K, is_cut)
    schedule = exact(SUMS[name](), seed)
    in_any_order(schedule, shards, np.random.default_rng(order))
    reference = exact(AnyHolder.by_shard(groups(K, 1)), seed)
    in_order(reference, shards)
    same_bits(schedule, reference)
    assert len(schedule.inquirer.draws()) == DRAWS
    assert not schedule.disputes
    assert all(schedule.next_task(worker, None) is None for worker in range(K))
    assert not schedule.out_of_reach(DRAWS, [])


@pytest.mark.parametrize("name", ["by shard, cyclic", "reed-solomon, r = 3"])
@given(order=st.integers(0, 2**32))
@settings(max_examples=1, phases=NOT_SHRUNK, deadline=None)
def test_any_order_gives_the_same_draws_of_a_large_ensemble(seed, name, order):
    """Devices answer within a millisecond, and get several blocks at once."""
    shards, n_draws = Shards(K, at_once=1500), 8 * 3000
    schedule = exact(SUMS[name](), seed, n_draws)
    in_any_order(schedule, shards, np.random.default_rng(order), second=1e-3)
    reference = exact(AnyHolder.by_shard(groups(K, 1)), seed, n_draws)
    in_order(reference, shards)
    same_bits(schedule, reference)
    assert schedule.inquirer.n_chains == 3000


def test_few_draws_do_not_depend_on_what_fills_a_device(seed):
    """So few that there are as many chains as on cores."""
    on_device, on_core = (exact(AnyHolder.by_shard(groups(K, 1)), seed, 400) for _ in range(2))
    in_order(on_device, Shards(K, at_once=4096))
    in_order(on_core, Shards(K))
    same_bits(on_device, on_core)


def test_a_quick_worker_gets_several_blocks():
    shards, schedule = Shards(1, at_once=1500), exact(AnyHolder.by_shard(groups(1, 1)), 0, 24_000)
    sizes = set()
    while not is_done(schedule):
        task = schedule.next_task(0, None)
        sizes.add(0 if isinstance(task, Survey) else len(task.points))
        schedule.now += 1e-3
        schedule.receive(shards.answer(task))
        schedule.catch_up()
    assert max(sizes) == 1500


def test_a_worker_outruns_others_that_are_slow():
    """One answers in a millisecond, the other in a second: the first does the rest as well."""
    shards, schedule = Shards(2), asking(AnyHolder.by_shard(groups(2, 2)), n_points=640)
    slow = schedule.next_task(1, None)
    schedule.now += 1.0
    schedule.receive(shards.answer(slow))
    assert schedule.next_task(1, None) is not None  # and does not answer
    while not is_done(schedule):
        task = schedule.next_task(0, None)
        schedule.now += 1e-3
        schedule.receive(shards.answer(task))
    assert schedule.now < 2.0


def test_another_seed_gives_other_draws(seed):
    """The control of the test above."""
    schedules = [exact(SUMS["by group"](), seed + i) for i in range(2)]
    for schedule in schedules:
        in_order(schedule, Shards(K))
    one, other = (schedule.inquirer.draws() for schedule in schedules)
    assert one.tobytes() != other.tobytes()


@given(order=st.integers(0, 2**32), n_points=st.integers(1, 200))
@settings(max_examples=40)
def test_a_question_under_any_order(order, n_points):
    """Each sum is there once, and right; what is known before the end is its beginning."""
    rng, shards = np.random.default_rng(order), Shards(K)
    schedule = asking(AnyHolder.by_shard(groups(K, 2)), n_points)
    sums, tasks = expected(shards, schedule), {}
    for _ in range(10_000):
        schedule.now += 1.0
        worker = int(rng.integers(K))
        if worker in tasks and rng.random() < 0.1:
            del tasks[worker]
            schedule.take_back(worker)
        elif worker in tasks:
            schedule.receive(shards.answer(tasks.pop(worker)))
        elif task := schedule.next_task(worker, n_points):
            assert set(task.shards) <= set(schedule.allocation.shards_of(worker))
            tasks[worker] = task
        if is_done(schedule):
            break
        known = schedule.known(0)
        assert len(known) % BLOCK == 0 or len(known) == n_points
        np.testing.assert_array_equal(known, sums[: len(known)])
    np.testing.assert_array_equal(schedule.inquirer.values, sums)


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize(("n_workers", "redundancy"), [(4, 2), (5, 2), (5, 3), (6, 4)])
def test_coded_sums_survive_any_missing_workers(name, n_workers, redundancy):
    """Any r - 1 of them; the sum has the bits of the sum of all, and one less is not enough."""
    shards = Shards(n_workers, is_cut=True)
    for missing in combinations(range(n_workers), redundancy - 1):
        schedule = asking(CodedSums(make_code(name, n_workers, redundancy)), n_points=7)
        sums = expected(shards, schedule)
        alive = [worker for worker in range(n_workers) if worker not in missing]
        assert not schedule.out_of_reach(7, alive)
        for worker in alive:
            if task := schedule.next_task(worker, None):
                schedule.receive(shards.answer(task))
        np.testing.assert_array_equal(schedule.inquirer.values, sums)
    assert schedule.sums.lost_shards((), alive[redundancy:])


def test_points_without_density_say_nothing_about_their_neighbours():
    """Complex codes pack numbers in pairs; one so low would cost its partner bits."""
    shards = Shards(K, is_cut=True)
    question = OneQuestion(np.array([[-1.0, 0.0], [1.0, 0.0], [2.0, 0.0], [-2.0, 1.0]]))
    for name in CODES:
        schedule = PassSchedule(CodedSums(make_code(name, K, 2)), question, needs_surveys=False)
        sums = expected(shards, schedule)
        for worker in range(K - 1):
            if task := schedule.next_task(worker, None):
                schedule.receive(shards.answer(task))
        found = schedule.inquirer.values
        assert list(found[[0, 3]]) == [-np.inf, -np.inf]
        np.testing.assert_array_equal(found[1:3], sums[1:3])


# ---------------------------------------------------------------- what is known is not forgotten


def test_a_journal_replayed_gives_the_same_state(seed):
    shards, schedule = Shards(K), exact(SUMS["by group"](), seed)
    journal = list(in_order(schedule, shards))
    for name in ("by shard, cyclic", "cyclic, r = 2"):
        again = exact(SUMS[name](), seed)
        for answered in journal:
            n_complete = again.replay(answered)
            assert not again.answered  # it is in the journal already
        assert n_complete == DRAWS
        same_bits(again, schedule)
        assert again._surveying.found.keys() == schedule._surveying.found.keys()


@given(share=st.floats(0, 1), order=st.integers(0, 2**32))
@settings(max_examples=5, phases=NOT_SHRUNK)
def test_a_run_goes_on_from_any_place_in_its_journal(seed, share, order):
    """With other sums, and in another order."""
    shards, schedule = Shards(K), exact(SUMS["by group"](), seed)
    journal = list(in_order(schedule, shards))
    resumed = exact(SUMS["reed-solomon, r = 2"](), seed)
    for answered in journal[: round(share * len(journal))]:
        resumed.replay(answered)
    in_any_order(resumed, shards, np.random.default_rng(order))
    same_bits(resumed, schedule)


def test_questions_of_a_lane_are_journaled_in_order(seed):
    schedule = exact(SUMS["by group"](), seed)
    journal = in_order(schedule, Shards(K))
    assert sorted(number for lane, number, _ in journal[:K]) == list(range(K))
    for lane in (0, 1):
        numbers = [number for of, number, _ in journal if of == lane]
        assert numbers == list(range(len(numbers)))
    with_gradients = ["gradients" in arrays for lane, _, arrays in journal if lane == 0]
    assert with_gradients == sorted(with_gradients, reverse=True)


# ---------------------------------------------------------------- late, stale and different


def test_a_late_part_is_asked_of_another_holder():
    """Late is twice the usual time, which is 1 here."""
    shards, schedule = Shards(2), asking(AnyHolder.by_shard(groups(2, 2)))
    slow, quick = schedule.next_task(0, None), schedule.next_task(1, None)
    assert (slow.shards, quick.shards) == ((0,), (1,))
    schedule.now = 1.0
    schedule.receive(shards.answer(quick))
    asked = []
    for now in (1.0, 1.9, 2.0, 2.1):
        schedule.now = now
        asked.append(schedule.next_task(1, None))
    assert [task and task.shards for task in asked] == [None, None, (0,), None]


def test_nothing_is_late_before_any_time_is_known():
    schedule = asking(AnyHolder.by_shard(groups(2, 2)))
    assert schedule.next_task(0, None).shards == (0,)
    assert schedule.next_task(1, None).shards == (1,)
    schedule.take_back(1)
    schedule.now = 1000.0
    assert schedule.next_task(1, None).shards == (1,)
    assert schedule.next_task(1, None) is None


def test_a_worker_is_not_asked_twice_for_what_it_is_late_with():
    shards, schedule = Shards(2), asking(AnyHolder.by_shard(groups(2, 2)))
    schedule.next_task(0, None)
    quick = schedule.next_task(1, None)
    schedule.now = 1.0
    schedule.receive(shards.answer(quick))
    schedule.now = 100.0
    assert schedule.next_task(0, None) is None
    assert schedule.next_task(1, None).shards == (0,)


def test_the_first_answer_counts(seed):
    """And the second, which is too late to matter, does no harm."""
    shards, schedule = Shards(2), asking(AnyHolder.by_shard(groups(2, 2)))
    sums = expected(shards, schedule)
    slow, quick = schedule.next_task(0, None), schedule.next_task(1, None)
    schedule.now = 1.0
    schedule.receive(shards.answer(quick))
    schedule.now = 9.0
    schedule.receive(shards.answer(schedule.next_task(1, None)))
    np.testing.assert_array_equal(schedule.inquirer.values, sums)
    stale = shards.answer(slow)
    assert schedule.fault_in(stale) == ""
    assert schedule.receive(stale) == 3
    wrong = stale._replace(values=np.full(1, np.nan))
    assert schedule.fault_in(wrong) == ""
    schedule.receive(wrong)
    np.testing.assert_array_equal(schedule.inquirer.values, sums)
    assert not schedule.disputes


def test_stale_answers_to_closed_questions_change_nothing(seed):
    """All answers of a run, to all its questions, once more after each of them."""
    shards, schedule = Shards(K), exact(SUMS["by group"](), seed)
    reference = exact(SUMS["by group"](), seed)
    in_order(reference, shards)
    said = []
    while not is_done(schedule):
        for worker in range(K):
            if task := schedule.next_task(worker, None):
                answer = shards.answer(task)
                schedule.receive(answer)
                said.append(answer)
        for answer in said[::7]:
            off = 1.0 if isinstance(answer, Values) and not is_open(schedule, answer) else 0.0
            schedule.receive(answer._replace(values=answer.values + off) if off else answer)
    same_bits(schedule, reference)
    assert not schedule.disputes


def is_open(schedule, answer):
    asked = schedule.inquirer.open.get(answer.task.lane)
    return asked is not None and asked.number == answer.task.question


def both_answers(change):
    """A schedule, and two workers that answered for the same shard, the second with a change."""
    shards, schedule = Shards(3), asking(AnyHolder.by_shard(groups(3, 3)))
    tasks = [schedule.next_task(worker, None) for worker in range(3)]
    schedule.now = 1.0
    schedule.receive(shards.answer(tasks[1]))
    schedule.now = 9.0
    again = schedule.next_task(1, None)
    schedule.receive(shards.answer(again))
    late = shards.answer(next(task for task in tasks if task.shards == again.shards))
    schedule.receive(late._replace(values=late.values + change))
    return schedule, (1, late.task.worker)


@pytest.mark.parametrize(("change", "is_disputed"), [(0.0, False), (1e-9, False), (1e-3, True)])
def test_workers_that_differ_are_named(change, is_disputed):
    """But not for rounding, of a millionth."""
    schedule, workers = both_answers(np.array([0.0, 0.0, change]))
    assert schedule.disputes == ({workers} if is_disputed else set())


def all_answer(sums, lies):
    """A schedule of one question that all workers answer in order; some add to their values."""
    n_workers = sums.allocation.n_workers
    shards, schedule = Shards(n_workers), asking(sums)
    answers = [shards.answer(schedule.next_task(worker, None)) for worker in range(n_workers)]
    late = []
    for worker, answer in enumerate(answers):
        late += [worker] if is_done(schedule) else []
        schedule.receive(answer._replace(values=answer.values + lies.get(worker, 0.0)))
    return schedule, late


@pytest.mark.parametrize(("lie", "is_disputed"), [(0.0, False), (1e-9, False), (1.0, True)])
@pytest.mark.parametrize("redundancy", [2, 3])
@pytest.mark.parametrize("name", CODES)
def test_late_coded_answers_are_compared(name, redundancy, lie, is_disputed):
    """When the sum is known, one more answer must obey the parity checks of the code."""
    sums = CodedSums(make_code(name, K, redundancy))
    schedule, late = all_answer(sums, {K - 1: lie})
    assert K - 1 in late
    assert {workers[-1] for workers in schedule.disputes} == ({K - 1} if is_disputed else set())
    honest, _ = all_answer(sums, {})
    np.testing.assert_array_equal(schedule.inquirer.values, honest.inquirer.values)


@pytest.mark.parametrize("name", CODES)
def test_late_coded_answers_tell_of_wrong_ones_that_were_used(name):
    schedule, _ = all_answer(CodedSums(make_code(name, K, 3)), {0: 1.0})
    assert schedule.disputes
    assert all(0 in workers for workers in schedule.disputes)


def test_copies_of_a_coded_answer_are_compared_before_the_sum_is_known():
    schedule, late = all_answer(CodedSums(make_code("grouped", 4, 2)), {1: 1.0})
    assert 1 not in late
    assert schedule.disputes == {(0, 1)}


@pytest.mark.parametrize("shape", [(0,), (2,), (3, 4)])
def test_late_coded_answers_of_wrong_shapes_are_ignored(shape):
    sums = CodedSums(make_code("reed-solomon", K, 2))
    schedule, _ = all_answer(sums, {})
    task = asking(sums).next_task(K - 1, None)
    schedule.receive(Values(task, np.ones(shape)))
    assert not schedule.disputes
    schedule.receive(Values(task, np.ones(3)))
    assert schedule.disputes


# ---------------------------------------------------------------- answers that cannot be


def first_question(schedule, shards):
    """The first task of worker 0 that asks for gradients; surveys are answered."""
    n_workers = schedule.allocation.n_workers
    while not schedule._has_begun:
        for task in [task for k in range(n_workers) if (task := schedule.next_task(k, None))]:
            schedule.receive(shards.answer(task))
    return schedule.next_task(0, None)


@pytest.mark.parametrize("name", ["by group", "cyclic, r = 2", "reed-solomon, r = 2"])
def test_wrong_shapes_and_numbers_are_refused(seed, name):
    shards, schedule = Shards(K), exact(SUMS[name](), seed)
    task = first_question(schedule, shards)
    assert task.scales is not None
    right = shards.answer(task)
    assert schedule.fault_in(right) == ""
    values, gradients = right.values, right.gradients
    shape = "shape"
    for wrong, why in (
        (right._replace(values=values[:-1]), shape),
        (right._replace(values=values[:, None]), shape),
        (right._replace(values=np.append(values, values)), shape),
        (right._replace(gradients=gradients[:-1]), shape),
        (right._replace(gradients=gradients.reshape(2, -1)), shape),
        (right._replace(gradients=None), "missing"),
        (right._replace(values=values * np.nan), "finite"),
        (right._replace(gradients=gradients * np.nan), "finite"),
        (right._replace(values=values - np.inf), "finite"),
    ):
        assert why in schedule.fault_in(wrong)


def test_surveys_that_are_not_finite_are_refused(seed):
    shards, schedule = Shards(K), exact(SUMS["by group"](), seed)
    right = shards.answer(schedule.next_task(0, None))
    assert isinstance(right, Surveyed)
    assert schedule.fault_in(right) == ""
    found = {**right.found, "0/mode": np.array([0.0, np.nan])}
    assert "finite" in schedule.fault_in(right._replace(found=found))
    assert schedule.fault_in(right._replace(found={})) == ""  # a shard without a mode


def test_a_second_survey_of_a_shard_is_ignored(seed):
    shards, schedule = Shards(K), exact(SUMS["by group"](), seed)
    survey = shards.answer(schedule.next_task(0, None))
    schedule.receive(survey)
    schedule.receive(survey._replace(found={}))
    assert len(schedule.answered) == 1
    assert "mode" in schedule._surveying.found[0]


# ---------------------------------------------------------------- out of reach


def test_a_question_needs_a_holder_of_every_shard():
    schedule = asking(AnyHolder.by_shard(groups(4, 2)))
    assert not schedule.out_of_reach(3, [0, 3])
    assert schedule.out_of_reach(3, [0, 1]) == (2, 3)
    assert asking(by_group(4, 2)).out_of_reach(3, [2]) == (0, 1)


def test_a_run_needs_what_is_not_surveyed_yet(seed):
    shards, schedule = Shards(4), exact(AnyHolder.by_shard(groups(4, 2)), seed)
    assert schedule.out_of_reach(DRAWS, [2, 3]) == (0, 1)
    schedule.receive(shards.answer(schedule.next_task(0, None)))
    assert schedule.out_of_reach(DRAWS, [2, 3]) == (1,)
    first_question(schedule, shards)
    assert schedule.out_of_reach(DRAWS, [2, 3]) == (0, 1)
    assert not schedule.out_of_reach(DRAWS, [1, 2])


def test_no_shard_is_left_out(seed):
    schedule = exact(SUMS["by group"](), seed)
    assert schedule.leave_out([0]) == 0
    assert schedule.next_task(0, None).shards == (0,)


# ---------------------------------------------------------------- the coordinator


def test_idle_workers_get_work_as_soon_as_there_is_some(seed):
    """Nobody waits while a part is not asked for; the run ends when all draws are there."""
    shards = Shards(4)
    coordinator = PassCoordinator(exact(by_group(4, 2), seed), DRAWS)
    queue = [task for k in range(4) for task in coordinator.handle(WorkerJoined(k), 0.0)]
    now, commands = 0.0, []
    while not (commands and isinstance(commands[-1], Stop)):
        now += 1.0
        commands = coordinator.handle(shards.answer(queue.pop(0)), now)
        queue += [command for command in commands if hasattr(command, "worker")]
    assert commands[-1].finished
    reference = exact(by_group(4, 2), seed)
    in_order(reference, shards)
    same_bits(coordinator.scheme, reference)


def test_a_run_ends_when_a_shard_is_lost(seed):
    coordinator = PassCoordinator(exact(by_group(4, 2), seed), DRAWS)
    for worker in range(4):
        coordinator.handle(WorkerJoined(worker), 0.0)
    assert not any(isinstance(c, Stop) for c in coordinator.handle(WorkerLost(0), 1.0))
    commands = coordinator.handle(WorkerLost(1), 2.0)
    assert commands == [Stop(finished=False)]


def test_time_alone_makes_late_parts_of_idle_workers():
    shards = Shards(2)
    coordinator = PassCoordinator(asking(AnyHolder.by_shard(groups(2, 2))), 3)
    coordinator.handle(WorkerJoined(0), 0.0)
    (task,) = coordinator.handle(WorkerJoined(1), 0.0)
    assert task.shards == (1,)
    assert coordinator.handle(shards.answer(task), 1.0) == []
    assert coordinator.wake(1.9) == []
    assert coordinator.next_wake(1.9) == 2.0
    (again,) = coordinator.wake(2.0)
    assert again.shards == (0,)
    assert isinstance(coordinator.handle(shards.answer(again), 3.0)[-1], Stop)
