"""Holders of one shard on different nodes, wherever that can be."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.engines.placement import is_silent, place, placement, settled, usable
from quorate.protocol.allocation import cyclic, groups, one_to_one, random_regular


def meetings(held, placed):
    """Pairs of workers that share a shard and a node."""
    pairs = combinations(range(len(held)), 2)
    return [(a, b) for a, b in pairs if placed[a] == placed[b] and set(held[a]) & set(held[b])]


def equal_nodes(n):
    return {f"node-{i}": 4.0 for i in range(n)}


allocations = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.sets(st.integers(0, 11), min_size=1, max_size=4), min_size=n, max_size=n)
)


@given(allocations, st.integers(1, 12))
def test_none_meet_where_there_are_nodes_to_spare(held, n_nodes):
    placed = placement([tuple(shards) for shards in held], equal_nodes(n_nodes))
    assert set(placed) == set(range(len(held)))
    most = max(sum(bool(mine & others) for others in held) for mine in held)  # itself among them
    if n_nodes >= most:
        assert not meetings(held, placed)


@given(st.integers(1, 30), st.integers(1, 5), st.integers(0, 3))
def test_r_nodes_are_enough_for_groups(n_workers, redundancy, n_more):
    held = groups(n_workers, min(redundancy, n_workers)).held
    assert not meetings(held, placement(held, equal_nodes(redundancy + n_more)))


@given(st.integers(1, 8), st.integers(1, 5))
def test_r_nodes_are_enough_for_a_ring_that_closes(n_rounds, redundancy):
    held = cyclic(n_rounds * redundancy, redundancy).held
    assert not meetings(held, placement(held, equal_nodes(redundancy)))


def test_one_node_is_where_all_meet():
    held = groups(4, 2).held
    assert meetings(held, placement(held, equal_nodes(1))) == [(0, 1), (2, 3)]


@pytest.mark.parametrize("seed", range(5))
def test_a_random_allocation_on_a_few_nodes(seed):
    held = random_regular(24, 3, seed).held
    assert not meetings(held, placement(held, equal_nodes(6)))


def test_nodes_carry_what_they_can():
    placed = placement(one_to_one(12).held, {"big": 8.0, "small": 4.0})
    assert list(placed.values()).count("big") == 8


@given(st.integers(2, 12), st.integers(0, 11))
def test_who_is_started_again_keeps_away_from_other_holders(n_workers, lost):
    held = groups(2 * n_workers, 2).held
    nodes = equal_nodes(4)
    placed = placement(held, nodes)
    lost %= 2 * n_workers
    del nodes[placed[lost]]
    placed[lost] = place(lost, held, nodes, placed)
    assert placed[lost] in nodes
    assert lost not in {worker for pair in meetings(held, placed) for worker in pair}


def test_a_node_is_silent_when_all_its_workers_are():
    placed = {0: "a", 1: "a", 2: "b"}
    assert is_silent("a", placed, {0: 11.0, 1: 9.0, 2: 0.3})
    assert not is_silent("a", placed, {0: 11.0, 1: 0.3, 2: 11.0})
    assert not is_silent("b", placed, {0: 11.0, 1: 9.0, 2: 0.3})


def test_silent_nodes_are_used_where_no_other_is_left():
    nodes = {"a": 4.0, "b": 2.0}
    assert usable(nodes, set()) == nodes
    assert usable(nodes, {"a", "gone"}) == {"b": 2.0}
    assert usable(nodes, {"a", "b"}) == nodes


@given(st.integers(2, 12), st.integers(2, 5))
def test_nobody_is_restarted_on_a_silent_node(n_workers, n_nodes):
    held, nodes = one_to_one(n_workers).held, equal_nodes(n_nodes)
    placed = placement(held, nodes)
    silent = placed[0]
    lost = [worker for worker, node in placed.items() if node == silent]
    for worker in lost:
        placed[worker] = place(worker, held, usable(nodes, {silent}), placed)
    assert silent not in placed.values()


@given(st.integers(2, 16), st.integers(1, 4))
def test_workers_spread_over_a_node_that_is_added(n_workers, n_nodes):
    held, before = one_to_one(n_workers).held, equal_nodes(n_nodes)
    placed = placement(held, before)
    nodes = equal_nodes(n_nodes + 1)
    after = settled(held, nodes, placed)
    loads = [list(after.values()).count(node) for node in nodes]
    assert max(loads) - min(loads) <= 1
    assert settled(held, nodes, after) == after
    moved = [worker for worker in after if after[worker] != placed[worker]]
    assert len(moved) == loads[-1]  # none between old nodes


def test_workers_on_other_nodes_stay_where_they_are():
    placed = {0: "gone", 1: "a", 2: "a"}
    after = settled(one_to_one(3).held, {"a": 2.0, "b": 2.0}, placed)
    assert after[0] == "gone"
    assert sorted([after[1], after[2]]) == ["a", "b"]
