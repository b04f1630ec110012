"""Workers that die, hang or lie, as the supervisor sees them: no clock, no process."""

import json

import numpy as np
import pytest

from helpers import schemes as make
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.messages import (
    Beat,
    Block,
    Doing,
    Keep,
    Kill,
    Note,
    Release,
    Start,
    Status,
    Stop,
    Task,
    Tick,
    WorkerFailed,
    WorkerJoined,
    WorkerLost,
    WorkerMoved,
)
from quorate.protocol.patience import Limits

DIM = 2


def supervised(scheme=None, n_draws=100, **limits):
    coordinator = Coordinator(scheme or make.grouped(2, 2, 1.0), n_draws)
    supervisor = make.supervisor_of(coordinator, DIM, Limits(**limits))
    assert supervisor.begin(0.0) == [Start(0, 0), Start(1, 0)]
    return supervisor


def block(task, first, n=1, value=0.0, state=None):
    payload = np.full((n, len(task.shards), DIM), value)
    return Block(task, first, payload, state=state or {"place": np.array(first + n)})


def only(kind, commands):
    return [command for command in commands if isinstance(command, kind)]


def words(commands):
    return [note.what for note in only(Note, commands)]


def working(supervisor, worker, now=0.0, n=4):
    """Let a worker join and send a first block; gives its task."""
    [task] = only(Task, supervisor.handle(WorkerJoined(worker), now))
    supervisor.handle(block(task, task.first_draw, n), now + 0.1)
    return task


def test_a_block_is_kept_before_what_follows_from_it():
    supervisor = supervised(make.cmc(2, 1.0), n_draws=5)
    tasks = [only(Task, supervisor.handle(WorkerJoined(k), 0.0))[0] for k in range(2)]
    supervisor.handle(block(tasks[0], 0), 0.1)
    kept, released = supervisor.handle(block(tasks[1], 0), 0.1)
    assert isinstance(kept, Keep)
    assert released == Release(1)


def test_a_lost_worker_is_started_again_and_goes_on_from_its_last_block():
    supervisor = supervised()
    working(supervisor, 0)
    commands = supervisor.handle(WorkerLost(0, "killed"), 1.0)
    assert words(commands) == ["lost"]
    assert supervisor.gone == {0}
    assert only(Start, supervisor.handle(Tick(), 1.2)) == []
    assert only(Start, supervisor.handle(Tick(), 1.3)) == [Start(0, 1)]
    [task] = supervisor.handle(WorkerJoined(0), 2.0)
    assert supervisor.gone == {0}  # it has sent nothing since
    assert task.first_draw == 4
    assert task.start["place"] == 4
    supervisor.handle(block(task, 4), 2.1)
    assert supervisor.gone == frozenset()


def test_a_state_is_sent_once_for_each_attempt():
    supervisor = supervised(n_draws=4)
    first = working(supervisor, 0, n=1)
    again = only(Task, supervisor.handle(block(first, 1), 0.2))
    assert [task.start for task in again] == [None]


def test_pauses_double_and_then_a_worker_is_retired():
    supervisor = supervised(restarts=3)
    now, pauses = 0.0, []
    while supervisor.status(0) != "retired":
        commands = supervisor.handle(WorkerLost(0), now)
        lost_at = now
        while supervisor.status(0) == "waiting":
            now += 0.01
            supervisor.handle(Tick(), now)
        pauses.append(now - lost_at)
    np.testing.assert_allclose(pauses[:-1], [0.25, 0.5, 1.0], atol=0.02)
    assert words(commands) == ["lost", "retired"]
    assert only(Stop, commands) == []  # worker 1 holds the same shards
    assert supervisor.handle(WorkerLost(0), now) == []


def test_a_block_in_between_makes_good():
    supervisor = supervised(restarts=1)
    now = 0.0
    for _ in range(5):
        working(supervisor, 0, now)
        supervisor.handle(WorkerLost(0), now + 1)
        now += 10
        assert only(Start, supervisor.handle(Tick(), now))
    assert supervisor.status(0) == "starting"


def test_the_last_holder_that_is_retired_ends_the_run():
    supervisor = supervised(make.cmc(2, 1.0), restarts=0)
    commands = supervisor.handle(WorkerLost(1), 0.0)
    assert words(commands) == ["lost", "retired"]
    assert commands[-1] == Stop(finished=False)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda task: block(task, 4, value=np.nan), "not finite"),
        (lambda task: block(task, 4, value=np.inf), "not finite"),
        (lambda task: block(task, 5), "where 4 was next"),
        (lambda task: block(task, 3), "where 4 was next"),
        (lambda task: block(task, 4, n=1000), "where 4 was next"),
        (lambda task: Block(task, 4, np.zeros((0, 2, DIM))), "where 4 was next"),
        (lambda task: Block(task, 4, np.zeros((1, 2, DIM + 1))), "shape"),
    ],
)
def test_what_cannot_be_draws_is_refused_and_drawn_again(wrong, message):
    supervisor = supervised(failures=3)
    task = working(supervisor, 0)
    note, kill = supervisor.handle(wrong(task), 0.2)[:2]
    assert note.what == "refused"
    assert message in note.details
    assert kill == Kill(0)
    assert supervisor.handle(block(task, 4), 0.2) == []  # a last word
    supervisor.handle(Tick(), 1.0)
    [again] = supervisor.handle(WorkerJoined(0), 1.0)
    assert again.first_draw == 4


def failed(worker, kind="ZeroDivisionError"):
    return WorkerFailed(worker, 1, kind, "a row that cannot be", "Traceback …")


def test_code_that_raises_gets_a_few_chances():
    supervisor = supervised(make.cmc(2, 1.0), failures=3)
    for now in (0.0, 10.0):
        commands = supervisor.handle(failed(1), now)
        assert words(commands) == ["failed"]
        assert "Traceback" in only(Note, commands)[0].details
        assert only(Start, supervisor.handle(Tick(), now + 5))
    commands = supervisor.handle(failed(1), 20.0)
    assert words(commands) == ["failed", "retired"]
    assert commands[-1] == Stop(finished=False)
    assert supervisor.failure == failed(1)


def test_a_few_draws_before_the_same_error_do_not_make_good():
    supervisor = supervised(failures=2, progress=100)
    working(supervisor, 0)
    supervisor.handle(failed(0), 1.0)
    supervisor.handle(Tick(), 2.0)
    working(supervisor, 0, 2.0)
    assert "retired" in words(supervisor.handle(failed(0), 3.0))


def test_what_quorate_refuses_is_not_tried_again():
    supervisor = supervised()
    note, stop = supervisor.handle(failed(0, "NotANumberError"), 0.0)
    assert note.what == "failed"
    assert stop == Stop(finished=False)


@pytest.mark.parametrize("kind", ["UserCodeError", "BadCallError", "OSError", "MemoryError"])
def test_what_user_code_raises_is_tried_again(kind):
    supervisor = supervised()
    commands = supervisor.handle(failed(0, kind), 0.0)
    assert words(commands) == ["failed"]
    assert only(Stop, commands) == []


def beat(worker, step="", seconds=0.0, **longest):
    return Beat(worker, Doing(step, seconds, longest))


def test_who_has_nothing_to_do_is_not_silent():
    supervisor = supervised(make.cmc(2, 1.0), n_draws=4)
    working(supervisor, 0, n=4)
    for now in np.arange(0.0, 60.0, 1.0):
        supervisor.handle(beat(1), now)  # worker 1 is starting
        assert supervisor.handle(Tick(), now) == []


def test_a_silent_worker_is_replaced():
    supervisor = supervised(n_draws=10_000)
    for k in range(2):
        working(supervisor, k, n=1)
        supervisor.handle(beat(k, "draw", draw=0.1), 0.1)
    silent = {}
    for now in np.arange(0.5, 30.0, 0.5):
        supervisor.handle(beat(1, "draw", draw=0.1), now)
        commands = supervisor.handle(Tick(), now)
        silent |= {note.worker: now for note in only(Note, commands) if note.what == "silent"}
    assert list(silent) == [0]
    assert 10.0 < silent[0] < 11.0


@pytest.mark.parametrize("is_needed", [True, False])
def test_who_has_no_task_is_replaced_only_if_others_wait_for_its_process(is_needed):
    supervisor = supervised(make.cmc(2, 1.0), n_draws=4)
    working(supervisor, 0, n=4)
    silent = []
    for now in np.arange(0.0, 10.0, 0.5):
        supervisor.handle(beat(1), now)
        supervisor.handle(Beat(0, None, now > 2.0, is_needed), now)
        silent += words(supervisor.handle(Tick(), now))
    assert silent == ["silent", "restarted"] * is_needed


def test_nobody_is_blamed_for_our_own_sleep():
    supervisor = supervised(n_draws=10_000)
    for k in range(2):
        working(supervisor, k, n=1)
        supervisor.handle(beat(k, "draw", draw=0.1), 0.1)
    assert supervisor.handle(Tick(), 3600) == []


def test_neighbours_of_a_worker_that_was_ended_are_not_to_blame():
    supervisor = supervised(restarts=0)
    commands = supervisor.handle(WorkerLost(0, "shared a process", with_another=True), 1.0)
    assert words(commands) == ["lost"]
    assert only(Start, supervisor.handle(Tick(), 2.0)) == [Start(0, 1)]
    assert words(supervisor.handle(WorkerLost(0), 3.0)) == ["lost", "retired"]


def test_a_worker_that_moves_starts_anew_at_once_and_continues():
    supervisor = supervised(restarts=0)
    working(supervisor, 0)
    note, *commands = supervisor.handle(WorkerMoved(0, "its node drains"), 1.0)
    assert note == Note(0, "moved", "its node drains")
    assert (commands[0], commands[-1]) == (Kill(0), Start(0, 1))
    assert supervisor.gone == frozenset()
    [task] = only(Task, supervisor.handle(WorkerJoined(0), 2.0))
    assert (task.first_draw, task.start["place"]) == (4, 4)
    assert words(supervisor.handle(WorkerLost(0), 3.0)) == ["lost", "retired"]  # none was used up


def test_a_worker_that_is_gone_does_not_move():
    supervisor = supervised()
    supervisor.handle(WorkerLost(0), 1.0)
    assert supervisor.handle(WorkerMoved(0, "its node drains"), 1.1) == []


def test_a_failure_that_was_recovered_from_is_forgotten():
    supervisor = supervised(n_draws=10_000)
    supervisor.handle(failed(0), 0.0)
    assert supervisor.failure == failed(0)
    supervisor.handle(Tick(), 1.0)
    working(supervisor, 0, 1.0)
    assert supervisor.failure is None


def test_a_replay_counts_and_asks_for_nothing():
    before = supervised(make.cmc(2, 1.0), n_draws=10)
    kept = [
        command.answer
        for k in range(2)
        for task in only(Task, before.handle(WorkerJoined(k), 0.0))
        for draw in range(3)
        for command in only(Keep, before.handle(block(task, draw), 1.0))
    ]
    after = supervised(make.cmc(2, 1.0), n_draws=10)
    for one in kept:
        after.replay(one)
    after.coordinator.take_all_back()
    assert after.coordinator.n_global == 3
    [task] = after.handle(WorkerJoined(0), 5.0)
    assert (task.first_draw, task.n_draws) == (3, 7)
    assert task.start["place"] == 3


def test_a_tick_is_due_when_there_may_be_something_to_do():
    supervisor = supervised()
    working(supervisor, 0)
    supervisor.handle(Tick(), 1.0)
    assert not supervisor.is_due(1.0)
    assert supervisor.is_due(1.1)  # time to look at all workers
    supervisor.coordinator.next_wake = lambda now: 1.0
    assert supervisor.is_due(1.0)


def test_a_status_is_known_and_travels_as_its_word():
    assert json.dumps(list(Status)) == '["starting", "working", "waiting", "retired"]'
    assert [status for status in Status if status.is_down] == [Status.WAITING, Status.RETIRED]
    assert supervised().status(0) is Status.STARTING
