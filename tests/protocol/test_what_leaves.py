"""What a coordinator that follows the protocol can compute from coded and grouped sums."""

from itertools import combinations

import numpy as np
import pytest

from quorate.protocol.coding.code import CODES, make_code
from quorate.protocol.schemes import Grouped
from quorate.protocol.sums import CodedSums

SIZES = [(4, 2), (6, 2), (6, 3), (7, 3), (8, 4), (9, 3)]


def isolates(sums, shards):
    """Whether some combination of all answers depends on these shards only: rows of `sums`."""
    others = np.delete(sums, shards, axis=1)
    return np.linalg.matrix_rank(others) < np.linalg.matrix_rank(sums)


def fewest_isolated(sums):
    """The size of the smallest set of shards that some combination of answers is about."""
    n_shards = sums.shape[1]
    for size in range(1, n_shards + 1):
        if any(isolates(sums, list(chosen)) for chosen in combinations(range(n_shards), size)):
            return size
    return 0


@pytest.mark.parametrize(("n_workers", "redundancy"), SIZES)
@pytest.mark.parametrize("name", CODES)
def test_coded_answers_of_all_workers_isolate_no_fewer_than_r_shards(name, n_workers, redundancy):
    sums = CodedSums(make_code(name, n_workers, redundancy))
    answers = np.zeros((n_workers, n_workers), dtype=complex)
    for worker in range(n_workers):
        (part,) = sums.parts_of(worker)
        answers[worker, list(part.shards)] = part.coefficients
    assert fewest_isolated(answers) >= redundancy


@pytest.mark.parametrize(("n_workers", "redundancy"), SIZES)
def test_grouped_answers_are_sums_over_groups(n_workers, redundancy):
    sums = Grouped(redundancy=redundancy).sums(n_workers, 0)
    answers = np.zeros((n_workers, n_workers))
    for worker in range(n_workers):
        for part in sums.parts_of(worker):
            answers[worker, list(part.shards)] = 1
    assert fewest_isolated(answers) == (n_workers % redundancy or redundancy)


def test_answers_for_single_shards_isolate_them():
    """The control: with the default scheme the coordinator sees every shard on its own."""
    assert fewest_isolated(np.eye(4)) == 1
