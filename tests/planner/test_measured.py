"""Times read from journals, and the latency model made of them."""

import numpy as np
import pytest
from scipy.stats import norm

from helpers import journals
from helpers.assertions import FALSE_FAIL_RATE, assert_known
from helpers.journals import block, happened, task
from helpers.pareto_run import pareto_run
from quorate.errors import BadInputError
from quorate.planner.measured import Begun, Tail, measured, with_longer


def test_what_is_read_from_a_journal(tmp_path, rng):
    """A warm-up of 1 s for each shard, at about 0.02 s a draw, is worth 46 draws, times or by 1.08;
    a worker 5 times slower is 4.6 times slower than the median, times or by 1.08: over 40 seeds.
    """
    taken, _ = measured(pareto_run(tmp_path, rng, slow=5.0, dead=True))
    assert taken.n_workers == 4
    assert taken.block == 8
    assert taken.start == 1.0
    assert_known(np.log(taken.warm_up), np.log(45.6), 0.08)
    assert_known(np.log(taken.levels[0] / np.median(taken.levels)), np.log(4.62), 0.08)
    with pytest.raises(AssertionError):
        assert_known(np.log(taken.levels[1] / np.median(taken.levels)), np.log(4.62), 0.08)
    assert np.isfinite(taken.deaths).tolist() == [False, False, False, True]
    tail = taken.tail
    assert tail is not None
    assert abs(np.log(tail.index / 1.3)) < norm.isf(FALSE_FAIL_RATE / 2) / np.sqrt(tail.n_blocks)
    assert not tail.is_light


SIZES = [(1.0, 2, 0), (2.0, 10, 2), (4.0, 1, 12), (6.0, 3, 13)]


def test_totals_are_kept(tmp_path, rng):
    """Resampled blocks take as long as measured ones on average, whatever their sizes."""
    records = [
        task(0.0, 0, 0, 99, (0,), 0),
        *(block(t, 0, n=n, first=f, shards=(0,), chain=0) for t, n, f in SIZES),
    ]
    taken, _ = measured(journals.write(tmp_path, records, workers=1, redundancy=1))
    per_draw = taken.levels[0] * float(taken.factors @ taken.shares)
    assert per_draw == pytest.approx((SIZES[-1][0] - SIZES[0][0]) / 14)


NONE_BEGUN = Begun(np.empty(0), np.empty(0), np.empty(0, dtype=np.int64))


def tail_of(factors, begun=NONE_BEGUN):
    n = len(factors)
    return Tail.of(factors, np.full(n, 1 / n), np.zeros(n, dtype=np.int64), begun)


def test_light_and_unknown_tails(rng):
    light = tail_of(np.sort(1 + 0.1 * rng.uniform(size=400)))
    assert light is not None
    assert light.is_light
    assert tail_of(np.sort(rng.uniform(size=20))) is None
    flat = tail_of(np.ones(400))
    assert flat is not None
    assert flat.index == np.inf


def test_blocks_under_way_stand_for_longer_ones():
    """Kaplan and Meier by hand: a block gone on for 1.5 is as likely to take 2 as 3."""
    values, weights = with_longer(
        np.array([1.0, 2.0, 3.0]), np.ones(3), np.array([1.5, 9.0]), np.array([1.0, 0.5])
    )
    np.testing.assert_allclose(values, [1.0, 2.0, 3.0, 9.0])
    np.testing.assert_allclose(weights, [1.0, 1.5, 1.5, 0.5])


def test_the_tail_index_is_right_where_long_blocks_are_cut_off_and_not_if_that_is_ignored(rng):
    """Blocks are cut off at a factor of 4. A tail of n blocks has a relative error of 1/√n."""
    n, index, cut = 20_000, 1.5, 4.0
    factors = np.sort(rng.uniform(size=n) ** (-1 / index))
    ended, begun = factors[factors < cut], factors[factors >= cut]
    under_way = Begun(
        np.full(len(begun), cut),
        np.full(len(begun), 1 / len(ended)),
        np.zeros(len(begun), dtype=np.int64),
    )
    right, ignoring = tail_of(ended, under_way), tail_of(ended)
    assert right is not None
    assert ignoring is not None
    limit = norm.isf(FALSE_FAIL_RATE / 2) / np.sqrt(right.n_blocks)
    assert abs(np.log(right.index / index)) < limit
    assert abs(np.log(ignoring.index / index)) > limit


def test_what_is_under_way_in_the_end_is_read_from_a_journal(tmp_path):
    """Worker 1 has gone on with its block for 3 s, where others of its took 1 s."""
    records = [task(0.0, k, 0, 400) for k in range(2)]
    records += [block(1.0 + i, 1, first=4 * i) for i in range(8)]
    records += [block(1.0 + i, 0, first=4 * i) for i in range(11)]
    records.sort(key=lambda record: record.time)
    taken, _ = measured(journals.write(tmp_path, records))
    assert taken.begun.workers.tolist() == [0, 1]
    np.testing.assert_allclose(taken.begun.factors, [0.0, 3.0], atol=1e-12)
    np.testing.assert_allclose(taken.begun.shares, 1 / 17)


def test_time_away_belongs_to_the_next_block(tmp_path):
    records = [task(0.0, 0, 0, 400), *(block(1.0 + i, 0, first=4 * i) for i in range(4))]
    records += [happened(4.5, "lost", 0), task(8.0, 0, 16, 400)]
    records += [block(9.0, 0, first=16, attempt=1), block(10.0, 0, first=20, attempt=1)]
    taken, _ = measured(journals.write(tmp_path, records))
    np.testing.assert_allclose(taken.factors, [1.0, 1.0, 1.0, 1.0, 5.0])


def test_a_worker_that_sent_nothing_is_slow(tmp_path):
    records = [task(0.0, k, 0, 40) for k in range(2)]
    records += [block(1.0 + 0.5 * i, 0, first=4 * i) for i in range(11)]
    taken, _ = measured(journals.write(tmp_path, records))
    assert taken.silent == (1,)
    assert taken.levels[1] == pytest.approx(6 * taken.levels[0])  # 6 s, where another took 1


def test_a_run_without_blocks_cannot_be_planned_from(tmp_path):
    with pytest.raises(BadInputError, match=r"no block after warm-up to plan from\. Let it run"):
        measured(journals.write(tmp_path, [block(1.0, 0)]))
