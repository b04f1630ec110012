"""Statistical assertions that state how often they fail for no reason."""

import numpy as np
from scipy.stats import binom, norm

from quorate.numerics.ess import mean_ess

FALSE_FAIL_RATE = 1e-6


def assert_mean(draws, expected, *, false_fail_rate=FALSE_FAIL_RATE):
    """The mean of independent rows (n, d) is `expected`; Bonferroni over coordinates."""
    n, dim = draws.shape
    z = (draws.mean(axis=0) - expected) / (draws.std(axis=0, ddof=1) / np.sqrt(n))
    limit = norm.isf(false_fail_rate / (2 * dim))
    assert np.abs(z).max() < limit, f"|z| = {np.abs(z).max():.1f}, limit {limit:.1f}"


def assert_chain_mean(draws, expected, *, error=0.0, false_fail_rate=FALSE_FAIL_RATE):
    """The mean of a chain (n, d) is `expected`, known with standard `error`; n is its ESS."""
    variance = draws.var(axis=0, ddof=1) / mean_ess(draws[None]) + np.square(error)
    z = (draws.mean(axis=0) - expected) / np.sqrt(variance)
    limit = norm.isf(false_fail_rate / (2 * draws.shape[1]))
    assert np.abs(z).max() < limit, f"|z| = {np.abs(z).max():.1f}, limit {limit:.1f}"


def assert_covariance(draws, expected, *, false_fail_rate=FALSE_FAIL_RATE):
    """The covariance of independent rows is `expected`, for rows of a known mean 0."""
    products = (draws[:, :, None] * draws[:, None, :]).reshape(len(draws), -1)
    upper = np.triu_indices(draws.shape[1])
    columns = np.ravel_multi_index(upper, expected.shape)
    assert_mean(products[:, columns], expected[upper], false_fail_rate=false_fail_rate)


def assert_quantile(values, quantile, share, *, false_fail_rate=FALSE_FAIL_RATE):
    """`quantile` is the `share`-quantile of independent values: a test of the count below it."""
    n, n_below = len(values), int(np.sum(np.asarray(values) <= quantile))
    low, high = binom.ppf([false_fail_rate / 2, 1 - false_fail_rate / 2], n, share)
    assert low <= n_below <= high, f"{n_below} of {n} below, expected {low:.0f} to {high:.0f}"


def assert_often(outcomes, chance, *, false_fail_rate=FALSE_FAIL_RATE):
    """Independent outcomes are true with a probability of at least `chance`."""
    n, n_true = len(outcomes), int(np.sum(outcomes))
    least = binom.ppf(false_fail_rate, n, chance)
    assert n_true >= least, f"{n_true} of {n}, expected {least:.0f} at least"


def assert_known(value, mean, sd, *, false_fail_rate=FALSE_FAIL_RATE):
    """A nearly normal statistic is as it was over many seeds, with that mean and sd."""
    z, limit = (value - mean) / sd, norm.isf(false_fail_rate / 2)
    assert abs(z) < limit, f"{value:.4g}: |z| = {abs(z):.1f}, limit {limit:.1f}"
