"""Balanced pairing of unequal numbers of draws, and how much the result is worth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter
from scipy.stats import chi2

from helpers import schemes as make
from helpers.assertions import FALSE_FAIL_RATE, assert_mean
from quorate.errors import BadInputError
from quorate.merging.consensus import consensus_weights, merge
from quorate.merging.pairing import REPEATS, every_draw, n_paired
from quorate.numerics.streams import Streams
from quorate.protocol.ledger import Ledger, Merging

counts_of_shards = st.lists(st.integers(1, 12), min_size=1, max_size=6).map(np.array)


@given(counts_of_shards, st.integers(0, 3))
def test_draws_of_a_shard_are_used_equally_often_in_any_prefix(counts, seed):
    which = every_draw(counts, Streams(seed))
    assert which.shape == (len(counts), REPEATS * counts.max())
    for count, row in zip(counts, which, strict=True):
        for end in {1, len(row) // 3, counts.max(), len(row)}:
            uses = np.bincount(row[:end], minlength=count)
            assert len(uses) == count
            assert uses.max() - uses.min() <= 1


@given(st.lists(counts_of_shards, min_size=1, max_size=4), st.integers(0, 3))
def test_runs_together_are_paired_as_on_their_own(runs, seed):
    n_shards = min(map(len, runs))
    counts = np.array([run[:n_shards] for run in runs])
    together = every_draw(counts, Streams(seed))
    for row, n, which in zip(counts, n_paired(counts), together, strict=True):
        np.testing.assert_array_equal(which[:, :n], every_draw(row, Streams(seed)))


def test_orders_are_random_and_shards_have_their_own(seed):
    """All 6 orders of three draws come equally often among 2,000 shards."""
    which = every_draw(np.full(2000, 3), Streams(seed))[:, :3]

    def statistic(which):
        orders, times = np.unique(which, axis=0, return_counts=True)
        times = np.append(times, np.zeros(6 - len(orders)))
        return np.sum((times - 2000 / 6) ** 2 / (2000 / 6))

    assert statistic(which) < chi2.isf(FALSE_FAIL_RATE, 5)
    which[:200] = which[0]  # the control: a tenth of the shards share an order
    assert statistic(which) > chi2.isf(FALSE_FAIL_RATE, 5)


def test_a_ledger_pairs_every_draw(rng, seed):
    draws = [rng.standard_normal((n, 2)) for n in (3, 5, 1)]
    ledger, plain = (
        Ledger([(0,), (1,), (2,)], Merging(1.0, pairing, seed)) for pairing in ("all", "paper")
    )
    for cell, x in enumerate(draws):
        for i, row in enumerate(x):
            ledger.add(cell, row[None, None], chain=i % 2)
            plain.add(cell, row[None, None])
    which = every_draw(np.array([3, 5, 1]), Streams(seed))
    covs = np.array([np.cov(x.T, bias=True) if len(x) > 1 else np.zeros((2, 2)) for x in draws])
    weights = consensus_weights(covs + np.eye(2))
    paired = np.stack([x[order] for x, order in zip(draws, which, strict=True)], axis=1)
    got = ledger.global_draws()
    np.testing.assert_allclose(got, merge(weights, paired), atol=1e-12)
    assert ledger.draw_counts() == (9, 9)
    assert plain.draw_counts() == (9, 3)
    assert len(plain.global_draws()) == 1
    np.testing.assert_array_equal(ledger.shard_draws()[1], draws[1][[0, 2, 4, 1, 3]])


def test_without_a_draw_of_every_shard_there_is_none():
    ledger = Ledger([(0,), (1,)], Merging(1.0, "all"))
    ledger.add(0, np.zeros((3, 1, 2)))
    assert len(ledger.global_draws()) == 0
    assert ledger.draw_counts() == (3, 0)


@pytest.mark.parametrize(
    ("scheme", "pairing", "message"),
    [
        ("cmc", "some", "Unknown pairing 'some'. Choose one of paper, all"),
        ("coded", "all", "has no option pairing"),
    ],
)
def test_bad_pairings(scheme, pairing, message):
    with pytest.raises(BadInputError, match=message):
        make.started(scheme, 4, 2, 3, 1.0, pairing=pairing)


# ---------------------------------------------------------------- what it is worth

COUNTS = np.array([160, 40, 80])
COVS = np.array([[[1.0, 0.5], [0.5, 1.0]], [[2.0, -0.6], [-0.6, 0.5]], [[0.7, 0.0], [0.0, 3.0]]])
WEIGHTS = consensus_weights(COVS)
POSTERIOR = np.diag(np.linalg.inv(np.linalg.inv(COVS).sum(axis=0)))
CORRELATION = 0.5  # of each draw with the one before
REPETITIONS = 1000


def chains(rng, counts):
    """Autoregressions with covariances `COVS`, one for each shard."""
    return [_chain(rng, np.linalg.cholesky(cov), n) for cov, n in zip(COVS, counts, strict=True)]


def _chain(rng, lower, n):
    noise = rng.standard_normal((n, 2)) * np.sqrt(1 - CORRELATION**2)
    noise[0] /= np.sqrt(1 - CORRELATION**2)
    return lfilter([1.0], [1.0, -CORRELATION], noise, axis=0) @ lower.T


def merged(draws, seed):
    which = every_draw(np.array([len(x) for x in draws]), Streams(seed))
    return merge(WEIGHTS, np.stack([x[i] for x, i in zip(draws, which, strict=True)], axis=1))


def variance_of_mean(counts):
    """Σ_s W_s C_s W_sᵀ / ESS_s, with the ESS of so many draws of an autoregression."""
    lags = [np.arange(1, n) for n in counts]
    pairs = zip(lags, counts, strict=True)
    times = [1 + 2 * np.sum((1 - lag / n) * CORRELATION**lag) for lag, n in pairs]
    of_means = COVS * (np.array(times) / counts)[:, None, None]
    return np.einsum("sij,sjk,sik->i", WEIGHTS, of_means, WEIGHTS)


def assert_variance(errors, variance):
    """Normal errors (n, d) of mean 0 have this variance: two-sided chi-squared test."""
    n = len(errors)
    ratio = (errors**2).sum(axis=0) / variance
    rate = FALSE_FAIL_RATE / (2 * errors.shape[1])
    assert np.all((chi2.ppf(rate, n) < ratio) & (ratio < chi2.isf(rate, n)))


def test_error_of_the_merged_mean_is_the_shards_and_not_that_of_so_many_draws(rng, seed):
    draws = [chains(rng, COUNTS) for _ in range(REPETITIONS)]
    means = np.array([merged(x, seed).mean(axis=0) for x in draws])
    assert_variance(means, variance_of_mean(COUNTS))
    with pytest.raises(AssertionError):  # the control: so many independent draws
        assert_variance(means, POSTERIOR / (REPEATS * COUNTS.max()))
    with pytest.raises(AssertionError):  # and as many as the shard with the most is worth
        assert_variance(means, POSTERIOR / (COUNTS.max() / 3))


def test_pairing_again_is_worth_something_for_variances(rng, seed):
    """The error of a variance from independent draws falls when they are paired eight times.

    By Hoeffding's decomposition, the share that depends on one shard alone is as noisy as its
    draws, and the share that depends on several is as noisy as the pairs. Pairing once, and
    independent draws in place of pairs, are the controls.
    """
    n, n_shards = 20, 4
    once, again = [], []
    for _ in range(REPETITIONS):
        draws = rng.standard_normal((n_shards, n))
        which = every_draw(np.full(n_shards, n), Streams(seed))
        sums = np.take_along_axis(draws, which, axis=1).mean(axis=0)
        once.append(n_shards * np.mean(draws.mean(axis=0) ** 2) - 1)
        again.append(n_shards * np.mean(sums**2) - 1)
    once, again = np.array(once), np.array(again)
    expected = 1 / n_shards + (1 - 1 / n_shards) * (1 / REPEATS + 1 / n)
    assert_mean(np.column_stack([again, again**2 - expected * once**2]), np.zeros(2))
    for wrong in (1.0, 1 / REPEATS):
        with pytest.raises(AssertionError, match=r"\|z\|"):
            assert_mean((again**2 - wrong * once**2)[:, None], np.zeros(1))
