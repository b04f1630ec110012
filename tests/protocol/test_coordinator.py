"""The coordinator: events in, lists of commands out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import schemes as make
from quorate.errors import BadInputError
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.messages import (
    Block,
    DeadlinePassed,
    Release,
    Stop,
    Task,
    WorkerJoined,
    WorkerLost,
)

DIM = 2


def one(task, draw):
    """One draw of a task, as a plain worker sends it."""
    return Block(task, draw, np.full((1, len(task.shards), DIM), float(draw)))


def test_a_run_from_start_to_stop():
    coordinator = Coordinator(make.cmc(2, 1.0), n_draws=2)
    first, second = Task(0, (0,), 0, 0, 2), Task(1, (1,), 0, 0, 2)
    assert coordinator.handle(WorkerJoined(0)) == [first]
    assert coordinator.handle(WorkerJoined(1)) == [second]
    assert coordinator.handle(one(first, 0)) == []
    assert coordinator.handle(one(second, 0)) == [Release(1)]
    assert coordinator.handle(one(second, 1)) == []
    assert coordinator.handle(one(first, 1)) == [Release(2), Stop(finished=True)]


def test_a_worker_that_has_sent_all_of_a_task_is_asked_for_more():
    coordinator = Coordinator(make.grouped(2, 2, 1.0), n_draws=4)
    [task] = coordinator.handle(WorkerJoined(0))
    assert task == Task(0, (0, 1), 0, 0, 2)
    assert coordinator.handle(one(task, 0)) == [Release(1)]
    assert coordinator.handle(one(task, 1)) == [Release(2), Task(0, (0, 1), 0, 2, 1)]


def test_an_open_ended_run_goes_on_until_the_deadline():
    coordinator = Coordinator(make.cmc(1, 1.0))
    [task] = coordinator.handle(WorkerJoined(0))
    for draw in range(task.n_draws - 1):
        assert coordinator.handle(one(task, draw)) == [Release(draw + 1)]
    last = task.n_draws - 1
    more = Task(0, (0,), 0, task.n_draws, task.n_draws)
    assert coordinator.handle(one(task, last)) == [Release(last + 1), more]
    assert coordinator.handle(DeadlinePassed()) == [Stop(finished=True)]


def test_a_deadline_before_the_last_draw_is_said_so():
    assert Coordinator(make.cmc(1, 1.0), n_draws=3).handle(DeadlinePassed()) == [
        Stop(finished=False)
    ]


def test_queue_depth():
    coordinator = Coordinator(make.cmc(1, 1.0), queue_depth=2)
    tasks = coordinator.handle(WorkerJoined(0))
    assert [task.first_draw for task in tasks] == [0, tasks[0].n_draws]


def test_a_loss_that_others_cover_is_no_reason_to_stop():
    coordinator = Coordinator(make.grouped(4, 2, 1.0), n_draws=3)
    assert coordinator.handle(WorkerLost(0)) == []
    assert coordinator.handle(WorkerLost(0)) == []
    assert coordinator.handle(WorkerLost(2)) == []
    assert coordinator.handle(WorkerLost(1)) == [Stop(finished=False)]


def test_a_shard_nobody_holds_stops_the_run():
    assert Coordinator(make.cmc(3, 1.0), n_draws=1).handle(WorkerLost(1)) == [Stop(finished=False)]


def test_blocks_beyond_the_last_draw_stop_a_run_all_the_same():
    coordinator = Coordinator(make.grouped(2, 2, 1.0), n_draws=4)
    [one_task], [other_task] = (coordinator.handle(WorkerJoined(k)) for k in (0, 1))
    assert one_task.n_draws == other_task.n_draws == 2
    blocks = [
        Block(one_task, 0, np.zeros((2, 2, DIM))),
        Block(other_task, 0, np.zeros((1, 2, DIM))),
        Block(Task(0, (0, 1), 0, 2, 2), 2, np.zeros((2, 2, DIM))),
    ]
    assert coordinator.handle(blocks[0])[0] == Release(2)
    assert coordinator.handle(blocks[1]) == [Release(3)]
    assert coordinator.handle(blocks[2]) == [Release(4), Stop(finished=True)]


def test_a_loss_does_not_stop_an_open_ended_run():
    coordinator = Coordinator(make.cmc(2, 1.0))
    assert coordinator.handle(WorkerLost(0)) == []
    assert coordinator.handle(WorkerLost(1)) == []


def test_no_draws_is_bad_input():
    with pytest.raises(BadInputError, match="at least 1"):
        Coordinator(make.cmc(1, 1.0), n_draws=0)


@given(
    scheme=st.sampled_from(["cmc", "grouped", "coded"]),
    n_workers=st.integers(1, 6),
    redundancy=st.integers(1, 3),
    n_draws=st.integers(1, 6),
    code=st.sampled_from(["grouped", "reed-solomon", "cyclic"]),
    data=st.data(),
)
def test_any_order_of_arrivals_ends_with_all_draws(
    scheme, n_workers, redundancy, n_draws, code, data
):
    """Whoever is fast, and whoever dies where that is survivable: no draw lost, none doubled."""
    redundancy = min(redundancy, n_workers)
    options = {"code": code} if scheme == "coded" else {}
    made = make.started(scheme, n_workers, redundancy, DIM, 1.0, **options)
    coordinator = Coordinator(made, n_draws)
    under_way = {k: coordinator.handle(WorkerJoined(k)) for k in range(n_workers)}
    sent = dict.fromkeys(range(n_workers), 0)
    released, stopped = 0, None
    while stopped is None:
        busy = [worker for worker, tasks in under_way.items() if tasks]
        worker = data.draw(st.sampled_from(busy))
        if data.draw(st.integers(0, 9)) == 0 and not made.out_of_reach(
            n_draws, set(under_way) - {worker}
        ):
            assert coordinator.handle(WorkerLost(worker)) == []
            del under_way[worker]
            continue
        task = under_way[worker][0]
        width = DIM if scheme != "coded" else made.code.pack(np.zeros(DIM)).shape[-1]
        shape = (1, width) if scheme == "coded" else (1, len(task.shards), width)
        block = Block(task, sent[worker], np.zeros(shape))
        sent[worker] += 1
        if sent[worker] == task.first_draw + task.n_draws:
            under_way[worker].pop(0)
        for command in coordinator.handle(block):
            if isinstance(command, Release):
                assert command.n_global > released
                released = command.n_global
            elif isinstance(command, Task):
                assert command.worker == worker
                assert command.first_draw == sent[worker]
                under_way[worker].append(command)
            else:
                stopped = command
    assert stopped == Stop(finished=True)
    assert released == n_draws
    assert len(made.received.global_draws()) == n_draws
