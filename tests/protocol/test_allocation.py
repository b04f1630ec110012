from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.errors import BadInputError
from quorate.protocol import allocation

sizes = st.integers(1, 30).flatmap(lambda k: st.tuples(st.just(k), st.integers(1, k)))


def test_one_to_one():
    assert allocation.one_to_one(3).held == ((0,), (1,), (2,))


def test_groups_of_the_paper():
    five = allocation.groups(5, 2)
    assert five.held == ((0, 1), (0, 1), (2, 3), (2, 3), (4,))
    assert allocation.worker_groups(5, 2) == [(0, 1), (2, 3), (4,)]
    assert five.holders_of(1) == (0, 1)
    assert five.holders_of(4) == (4,)


@given(sizes)
def test_groups_hold_their_own_shards(size):
    n_workers, redundancy = size
    groups = allocation.worker_groups(n_workers, redundancy)
    assert [worker for group in groups for worker in group] == list(range(n_workers))
    assert all(len(group) == redundancy for group in groups[:-1])
    held = allocation.groups(n_workers, redundancy)
    for group in groups:
        assert all(held.shards_of(worker) == group for worker in group)


@given(sizes, st.integers(0, 5))
def test_regular_allocations(size, seed):
    n_workers, redundancy = size
    for made in (
        allocation.cyclic(n_workers, redundancy),
        allocation.random_regular(n_workers, redundancy, seed),
    ):
        assert all(len(set(shards)) == redundancy for shards in made.held)
        counts = Counter(shard for shards in made.held for shard in shards)
        assert counts == dict.fromkeys(range(n_workers), redundancy)
        for shard in range(n_workers):
            assert all(shard in made.shards_of(worker) for worker in made.holders_of(shard))


def test_random_allocations_differ_by_seed():
    made = {allocation.random_regular(12, 3, seed).held for seed in range(10)}
    assert len(made) == 10
    assert allocation.random_regular(12, 3, 4) == allocation.random_regular(12, 3, 4)


@pytest.mark.parametrize(("n_workers", "redundancy"), [(0, 1), (-1, 1), (3, 0), (3, 4)])
@pytest.mark.parametrize("make", [allocation.groups, allocation.cyclic])
def test_impossible_sizes(make, n_workers, redundancy):
    with pytest.raises(BadInputError, match=r"workers|redundancy"):
        make(n_workers, redundancy)
