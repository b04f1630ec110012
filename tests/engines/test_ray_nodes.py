"""Which nodes can be reached, drain, or have room: without Ray, with real connections."""

import math
import socket
import time
from contextlib import ExitStack

import pytest

from helpers.processes import PATIENCE
from quorate.engines.ray.cluster import Node
from quorate.engines.ray.homes import Homes
from quorate.engines.ray.nodes import NodeWatch, reachable
from quorate.protocol.allocation import groups, one_to_one


class Listed:
    """The nodes of a cluster as Ray lists them: each is a port of this machine."""

    ray = None

    def __init__(self, stack):
        self._stack = stack
        self._links = {}
        self.listed = {}
        self.drained = set()

    def add(self, name, cores=2.0):
        self._links[name] = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.listed[name] = Node(cores, self._links[name].getsockname())

    def lose(self, name):
        """Ray still lists the node, but nobody listens there."""
        self._links[name].close()

    def nodes(self):
        return dict(self.listed)

    def draining(self):
        return set(self.drained)


@pytest.fixture
def listed():
    with ExitStack() as stack:
        cluster = Listed(stack)
        cluster.add("a")
        cluster.add("b")
        yield cluster


@pytest.fixture
def watch(listed):
    watch = NodeWatch(listed)
    yield watch
    watch.close()


@pytest.fixture
def homes(listed):
    """Makes the homes of workers, and closes them."""
    with ExitStack() as stack:

        def made(held, **options):
            homes = Homes(listed, held, **options)
            stack.callback(homes.close)
            for worker in range(len(held)):
                homes.choose(worker)
            return homes

        yield made


def eventually(holds):
    end = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def test_who_listens_can_be_reached(listed):
    addresses = {name: node.address for name, node in listed.listed.items()}
    assert reachable(addresses, 5.0) == {"a", "b"}
    listed.lose("b")
    assert reachable(addresses, 5.0) == {"a"}
    assert reachable({}, 5.0) == set()


def test_a_suspect_is_avoided_until_it_lets_us_connect(listed, watch):
    watch.suspect("b")
    eventually(lambda: set(watch.usable()) == {"a", "b"})
    listed.lose("b")
    watch.suspect("b")
    assert set(watch.usable()) == {"a"}
    eventually(lambda: watch.out_of_reach == {"b"})
    assert set(watch.steady()) == {"a"}


def test_a_check_does_not_avoid_what_may_be_fine(watch):
    watch.check("b")
    assert set(watch.usable()) == {"a", "b"}


def test_a_node_that_drains_gets_no_worker(listed, watch):
    listed.drained = {"b"}
    eventually(lambda: watch.draining == {"b"})
    assert set(watch.usable()) == set(watch.steady()) == {"a"}


def test_a_new_node_is_used_for_restarts_at_once_and_for_moves_when_it_is_steady(
    listed, watch, monkeypatch
):
    monkeypatch.setattr("quorate.engines.ray.nodes._STEADY", math.inf)
    listed.add("c")
    eventually(lambda: "c" in watch.usable())
    assert "c" not in watch.steady()
    monkeypatch.setattr("quorate.engines.ray.nodes._STEADY", 0.0)
    assert "c" in watch.steady()


def test_workers_of_a_node_that_is_out_of_reach_are_lost(listed, homes):
    there = homes(one_to_one(4).held)
    lives, silent = dict(there.placed), dict.fromkeys(range(4), 3.0)
    assert there.lost(lives, silent) == []  # not yet tried
    listed.lose("b")
    lost = eventually(lambda: there.lost(lives, silent))
    assert {worker for worker, _ in lost} == {k for k, node in lives.items() if node == "b"}
    assert {why for _, why in lost} == {"its node 127.0.0.1 cannot be reached"}


class Answers:
    """As much of Ray as it takes to ask a node: answers come, or are given up, when we say so."""

    class exceptions:  # noqa: N801
        RayError = RuntimeError

    def __init__(self):
        self.n_asked = 0
        self.came = {}  # by the number of the question: whether there is an answer

    def remote(self, **_):
        return lambda _: self

    def options(self, **_):
        return type("Asking", (), {"remote": self._ask})

    def _ask(self):
        self.n_asked += 1
        return self.n_asked

    def wait(self, asked, timeout):
        return [number for number in asked if number in self.came], []

    def get(self, numbers):
        if not all(self.came[number] for number in numbers):
            raise RuntimeError("given up")
        return [None] * len(numbers)


def test_a_silent_node_comes_back_when_it_answers_though_ray_had_given_it_up(
    listed, homes, monkeypatch
):
    monkeypatch.setattr("quorate.engines.ray.homes.on", lambda node, soft: {})
    listed.ray = Answers()
    there = homes(one_to_one(4).held)
    node = there.placed[0]
    there.ask_if_silent(node, {0: node}, {0: 60.0})
    assert there.choose(0) != node
    listed.ray.came[1] = False
    assert there.choose(0) != node  # it is asked once more
    assert listed.ray.n_asked == 2
    listed.ray.came[2] = True
    assert node in [there.choose(worker) for worker in range(4)]


@pytest.mark.parametrize("is_even", [True, False])
def test_small_nodes_get_an_actor_too_where_each_node_is_to_have_one(listed, homes, is_even):
    listed.add("big", 64.0)
    there = homes(one_to_one(3).held, is_even=is_even)
    assert (set(there.placed.values()) == {"a", "b", "big"}) == is_even


def test_workers_leave_a_node_that_drains(listed, homes):
    there = homes(one_to_one(4).held)
    lives = dict(there.placed)
    listed.drained = {"b"}
    moves = eventually(lambda: there.moves(lives, at_ease=()))
    assert {worker for worker, _ in moves} == {k for k, node in lives.items() if node == "b"}
    assert set(there.placed.values()) == {"a"}


def test_workers_move_to_a_node_with_room_one_holder_of_a_shard_at_a_time(
    listed, homes, monkeypatch
):
    monkeypatch.setattr("quorate.engines.ray.nodes._STEADY", 0.0)
    held = groups(8, 4).held  # two groups of four holders
    there = homes(held)
    lives, everybody = dict(there.placed), set(range(8))
    assert there.moves(lives, everybody) == []
    listed.add("c", 4.0)
    moves = eventually(lambda: there.moves(lives, everybody))
    assert len(moves) == len({worker // 4 for worker, _ in moves})  # no two of a group
    assert all(there.placed[worker] == "c" for worker, _ in moves)


def test_a_worker_that_would_lose_its_work_does_not_move(listed, homes, monkeypatch):
    monkeypatch.setattr("quorate.engines.ray.nodes._STEADY", 0.0)
    there = homes(one_to_one(6).held)
    lives = dict(there.placed)
    there.moves(lives, ())
    listed.add("c", 8.0)
    moves = eventually(lambda: there.moves(lives, {0, 5}))
    assert {worker for worker, _ in moves} <= {0, 5}
