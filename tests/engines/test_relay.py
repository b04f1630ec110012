"""What an actor does that has processes of its own: without Ray, and without processes."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.data.write import write_shards
from quorate.engines.frames import Frame, frames_in, packed_frame
from quorate.engines.processes.hosts import FOR_ALL
from quorate.engines.ray.actors import Actor
from quorate.engines.ray.node_sums import NodeSums
from quorate.engines.ray.relay import CALLS_HELD, Relay
from quorate.protocol.messages import Beat, Doing, Evaluate, Values, WorkerJoined, WorkerLost

POINTS = np.zeros((3, 2))


class Processes:
    """Processes that answer when a test says so. The value of a shard is its number."""

    def __init__(self, n_places):
        self.asked = [[] for _ in range(n_places)]
        self.places = list(range(n_places))
        self.now = 0.0
        self.sums = NodeSums(n_places, lambda place, frame: self.asked[place].append(frame))

    def ask(self, worker, shards, **arrays):
        fields = {"worker": worker, "shards": shards, "lane": 0, "question": 0, "first_point": 0}
        task = Frame("evaluate", fields, {"points": POINTS, **arrays})
        self.sums.begin(task, self.places, self.now)

    def answer(self, place):
        task = self.asked[place].pop(0)
        assert task.fields["worker"] == FOR_ALL
        values = np.full(3, float(sum(task.fields["shards"])))
        arrays = {"values": values, "gradients": -values}
        return self.sums.take(place, Frame("values", task.fields, arrays), self.now)

    def lose(self, place):
        self.asked[place].clear()
        self.places.remove(place)
        self.sums.gone(place, self.places, self.now)

    def shards(self):
        return [
            [shard for task in tasks for shard in task.fields["shards"]] for tasks in self.asked
        ]


def test_every_sum_is_dealt_evenly():
    node = Processes(3)
    node.ask(0, [1, 4, 9, 12, 15, 20])
    assert node.shards() == [[1, 12], [4, 15], [9, 20]]
    node.ask(0, [2, 9, 3, 8])  # a known shard stays where it is
    assert [len(shards) for shards in node.shards()] == [3, 3, 4]
    assert 9 in node.asked[2][1].fields["shards"]


def test_a_process_gets_the_recipes_of_its_shards():
    node = Processes(2)
    shards = [3, 7, 8]
    recipes = np.array([[shard, 10.0 * shard] for shard in shards])
    node.ask(0, shards, recipes=recipes)
    assert node.shards() == [[3, 8], [7]]
    for tasks in node.asked:
        (task,) = tasks
        np.testing.assert_array_equal(task.arrays["recipes"][:, 0], task.fields["shards"])
        np.testing.assert_array_equal(task.arrays["points"], POINTS)


@given(st.data())
def test_a_sum_is_complete_when_all_pieces_are_there_whoever_is_first_or_lost(data):
    n_places = data.draw(st.integers(1, 4), label="processes")
    node = Processes(n_places)
    tasks = data.draw(st.lists(st.sets(st.integers(0, 9), min_size=1), min_size=1, max_size=4))
    for number, shards in enumerate(tasks):
        node.ask(number, sorted(shards))
    found = {}
    while any(node.asked):
        busy = [place for place in node.places if node.asked[place]]
        place = data.draw(st.sampled_from(busy))
        node.now += data.draw(st.sampled_from([0.0, 1.0, 100.0]), label="seconds")
        node.sums.help(node.places, node.now)
        if len(node.places) > 1 and data.draw(st.booleans(), label="is lost"):
            node.lose(place)
        elif (total := node.answer(place)) is not None:
            assert total.fields["worker"] not in found
            found[total.fields["worker"]] = total
    assert found.keys() == set(range(len(tasks)))
    for number, shards in enumerate(tasks):
        assert found[number].fields["shards"] == sorted(shards)
        np.testing.assert_array_equal(found[number].arrays["values"], np.full(3, sum(shards)))
        np.testing.assert_array_equal(found[number].arrays["gradients"], np.full(3, -sum(shards)))


def test_what_a_lost_worker_was_asked_for_is_forgotten():
    node = Processes(2)
    node.ask(0, [0, 1])
    node.ask(7, [0, 1])
    node.sums.drop([0])
    assert node.answer(0) is None
    assert node.answer(1) is None
    assert node.answer(1) is None  # the other piece is missing
    assert not node.sums.is_busy(1)
    assert node.answer(0).fields["worker"] == 7
    assert node.sums.is_idle


def test_a_process_that_comes_back_gets_its_shards_again():
    node = Processes(2)
    node.ask(0, [0, 1])
    node.lose(1)
    assert node.shards() == [[0, 1], []]
    node.places = [0, 1]
    node.ask(0, [0, 1])
    assert node.shards() == [[0, 1, 0], [1]]


def test_an_idle_process_helps_out_one_that_is_late():
    node = Processes(3)
    node.ask(0, [0, 1, 2])
    node.now = 1.0
    assert node.answer(0) is node.answer(1) is None
    node.sums.help(node.places, 3.0)  # three times the usual and a tenth of a second
    assert node.shards() == [[], [], [2]]
    node.now = 3.2
    node.sums.help(node.places, node.now)
    node.sums.help(node.places, node.now)  # one helper is enough
    assert node.shards() == [[2], [], [2]]
    total = node.answer(0)
    np.testing.assert_array_equal(total.arrays["values"], np.full(3, 3.0))
    node.ask(0, [0, 1, 2])  # the third is behind, and gets nothing
    assert node.shards() == [[0, 2], [1], [2]]
    assert node.answer(2) is None  # too late
    node.ask(1, [0, 1, 2])
    assert node.asked[2][0].fields["shards"] == [2]


# ---------------------------------------------------------------- calls


@pytest.fixture
def relay(tmp_path):
    shards = write_shards({"x": np.arange(4.0)}, 2, tmp_path / "shards")
    return Relay([[0], [1]], (str(shards.folder), shards.fingerprint), is_team=True)


@pytest.fixture
def threads():
    with ThreadPoolExecutor(CALLS_HELD + 2) as pool:
        yield pool


def say(relay, *kinds):
    with relay._changed:
        for kind in kinds:
            relay._say(Frame(kind))
        relay._changed.notify_all()


def kinds_in(call):
    return [frame.kind for frame in frames_in(call.result())]


def test_calls_return_in_the_order_of_their_numbers(relay, threads):
    later = threads.submit(relay.turn, 1)
    say(relay, "first")
    earlier = threads.submit(relay.turn, 0)
    assert kinds_in(earlier) == ["first"]
    say(relay, "second")
    assert kinds_in(later) == ["second"]


def test_with_too_many_calls_the_first_returns(relay, threads):
    """So a new one always finds a thread, however long processes take."""
    calls = [threads.submit(relay.turn, number) for number in range(CALLS_HELD + 1)]
    assert kinds_in(calls[0]) == []
    for number in range(1, CALLS_HELD + 1):
        say(relay, f"{number}")
        assert kinds_in(calls[number]) == [f"{number}"]


def test_who_lacks_the_rows_says_so(tmp_path, threads):
    relay = Relay([[0], [1]], (str(tmp_path / "nowhere"), ""), is_team=True)
    assert kinds_in(threads.submit(relay.turn, 0)) == ["lacking"]


# ---------------------------------------------------------------- what the coordinator hears


class Handle:
    """An actor that never answers."""

    def __init__(self):
        self.turn, self.calls = self, []

    def remote(self, *items):
        self.calls.append(items)
        return object()


@pytest.fixture
def actor():
    actor = Actor(0, "node", Handle(), is_relay=True)
    for worker in range(3):
        actor.host(worker, 0)
        actor.said(WorkerJoined(worker))
    return actor


def values_of(worker):
    return Values(Evaluate(worker, (0,), 0, 0, 0, POINTS), np.zeros(3))


def test_last_words_of_a_worker_that_was_ended_do_not_count(actor):
    actor.end(1)
    assert not actor.said(values_of(1))
    assert not actor.said(WorkerLost(1))
    assert actor.said(values_of(2))
    actor.host(1, 1)
    assert not actor.said(values_of(1))  # of the first attempt, since the second is not there yet
    assert actor.said(WorkerJoined(1))
    assert actor.said(values_of(1))


def test_calls_to_a_relay_have_numbers_and_frames_wait_for_no_answer():
    actor = Actor(0, "node", Handle(), is_relay=True)
    for worker in range(CALLS_HELD + 3):
        actor.host(worker, 0)
    assert [number for number, *_ in actor.handle.calls] == list(range(CALLS_HELD + 2))
    assert len(actor.outgoing) == 1  # goes with the next call


def test_one_worker_is_to_blame_for_a_process_that_others_wait_for(actor):
    fields = {"workers": [0, 2, 5], "doing": None, "is_stopped": True, "is_needed": True}
    assert actor.beats(Frame("sign", fields)) == [Beat(0, None, True, True), Beat(2, None, True)]
    (told,) = frames_in(packed_frame(Frame("beat", Doing("draw", 1.0, {})._asdict())))
    assert actor.beats(told) == [Beat(worker, Doing("draw", 1.0, {})) for worker in range(3)]
