"""Effective sample sizes of merged draws: of coordinates, of functions of them, of coded draws."""

import numpy as np
import pytest
from scipy.signal import lfilter

from quorate.merging.consensus import consensus_weights, merge
from quorate.merging.ess import effective_draws, ess_and_rhat, fewest_draws, merged_ess
from quorate.merging.pairing import every_draw
from quorate.numerics.ess import bulk_ess, mean_ess, split_rhat
from quorate.numerics.streams import Streams

COVS = np.array([[[1.0, 0.5], [0.5, 1.0]], [[2.0, -0.6], [-0.6, 0.5]], [[0.7, 0.0], [0.0, 3.0]]])
WEIGHTS = consensus_weights(COVS)
POSTERIOR = np.diag(np.linalg.inv(np.linalg.inv(COVS).sum(axis=0)))


def chain(rng, n, dim, memory):
    """An autoregression of variance 1 whose neighbours have this correlation."""
    noise = rng.standard_normal((n, dim)) * np.sqrt(1 - memory**2)
    noise[0] /= np.sqrt(1 - memory**2)
    return lfilter([1.0], [1.0, -memory], noise, axis=0)


def test_merged_ess_is_the_posterior_variance_over_that_of_the_mean(rng):
    """Half of 21 estimates are within a factor of 1.35.

    One is further off in 5.7 % of cases (3,000 repetitions), so 11 are once in 10⁸. The control
    takes draws for independent, which is off by a factor of 3.
    """
    memory, counts = 0.5, np.array([3200, 800, 1600])
    times = (1 + memory) / (1 - memory)
    of_mean = np.einsum("sij,sjk,sik->i", WEIGHTS, COVS / counts[:, None, None], WEIGHTS)
    lowers = np.linalg.cholesky(COVS)
    found = [
        merged_ess(WEIGHTS, [chain(rng, n, 2, memory) @ lower.T for n, lower in pairs])
        for pairs in [list(zip(counts, lowers, strict=True))] * 21
    ]

    def median_factor(expected):
        return np.exp(np.median(np.abs(np.log(found / expected)), axis=0))

    assert (median_factor(POSTERIOR / (times * of_mean)) < 1.35).all()
    assert (median_factor(POSTERIOR / of_mean) > 2).all()


def test_equal_shards_have_the_harmonic_mean_of_their_ess(rng):
    draws = [rng.standard_normal((n, 1)) for n in (2000, 500)]
    weights = np.full((2, 1, 1), 0.5)
    parts = np.array([mean_ess(x[None])[0] for x in draws])
    variances = np.array([x.var(ddof=1) for x in draws])
    expected = variances.sum() / (variances / parts).sum()
    np.testing.assert_allclose(merged_ess(weights, draws), expected)
    assert parts.min() < expected < parts.max()


# ---------------------------------------------------------------- functions of the parameters

N = 4000


@pytest.fixture
def shards(rng):
    return [chain(rng, N, 3, memory) for memory in (0.9, 0.7, 0.95)]


@pytest.fixture
def weights(rng):
    roots = rng.standard_normal((3, 3, 3))
    return consensus_weights(roots @ np.swapaxes(roots, 1, 2) + np.eye(3))


@pytest.fixture
def draws(shards, weights, seed):
    which = every_draw(np.full(3, N), Streams(seed))
    paired = np.stack([x[order] for x, order in zip(shards, which, strict=True)], axis=1)
    return merge(weights, paired)


def along(line, weights, shards):
    """ESS and worst R-hat of a linear function, by the shares of its shards."""
    parts = [x @ weight.T @ line for x, weight in zip(shards, weights, strict=True)]
    variances = np.array([part.var(ddof=1) for part in parts])
    ess = np.array([mean_ess(part[None]) for part in parts])
    r_hat = max(split_rhat(part[None]) for part in parts)
    return variances.sum() / (variances / ess).sum(), r_hat


@pytest.mark.parametrize("coordinate", range(3))
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x,
        lambda x: 3 * x - 5,
        np.exp,
        lambda x: 1 / (1 + np.exp(2 * x)),
        lambda x: x**3,
        lambda x: np.minimum(x, np.quantile(x, 0.995)),  # ties, as rounding makes them
    ],
    ids=["identity", "line", "exp", "falling logistic", "cube", "few ties"],
)
def test_monotone_functions_have_the_ess_of_their_coordinate(
    function, coordinate, draws, weights, shards
):
    values = function(draws[:, coordinate])[:, None]
    ess, r_hat = ess_and_rhat(values, draws, weights, shards)
    assert ess[0] == merged_ess(weights, shards)[coordinate]
    assert r_hat[0] == pytest.approx(along(np.eye(3)[coordinate], weights, shards)[1], rel=1e-12)


def test_other_functions_have_the_ess_of_their_line(draws, weights, shards):
    """A sum of two coordinates, and the same bent a little."""
    total = draws[:, 0] + draws[:, 1]
    bent = total + 0.01 * draws[:, 2] ** 2
    ess, r_hat = ess_and_rhat(np.column_stack([total, bent]), draws, weights, shards)
    expected = along(np.array([1.0, 1.0, 0.0]), weights, shards)
    assert (ess[0], r_hat[0]) == pytest.approx(expected, rel=1e-3)  # ranks at a median may swap
    assert (ess[1], r_hat[1]) == pytest.approx(expected, rel=0.05)
    assert not np.isin(ess, merged_ess(weights, shards)).any()


def test_functions_far_from_a_line_have_the_least_ess(draws, weights, shards):
    """Squares, and an indicator whose ties say little of a coordinate's order."""
    squares = (draws[:, 0] - draws[:, 0].mean()) ** 2
    rare = (draws[:, 0] > np.quantile(draws[:, 0], 0.98)).astype(float)
    ess, r_hat = ess_and_rhat(np.column_stack([squares, rare]), draws, weights, shards)
    np.testing.assert_array_equal(ess, merged_ess(weights, shards).min())
    expected = max(along(line, weights, shards)[1] for line in np.eye(3))
    np.testing.assert_allclose(r_hat, expected, rtol=1e-12)


def test_a_constant_coordinate_has_no_functions(rng):
    """Nor does one that takes two values give its ESS to what merely differs between them."""
    draws = np.column_stack([np.repeat([0.0, 1.0], 200), rng.standard_normal(400)])
    values = draws[:, :1] * 10 + draws[:, 1:]
    shards, weights = [draws[::-1], draws], np.full((2, 2, 2), 0.5) * np.eye(2)
    ess, _ = ess_and_rhat(values, draws, weights, shards)
    assert not np.isin(ess, merged_ess(weights, shards)).any()


def test_pairs_of_draws_are_no_chain(draws, weights, shards):
    """Their order tells nothing of how often draws of shards repeat."""
    ess, _ = ess_and_rhat(draws, draws, weights, shards)
    assert (bulk_ess(draws[None]) > 8 * ess).all()


def test_r_hat_sees_a_shard_that_drifts(draws, shards):
    """By 30 sds. Without the drift R² - 1 is about 2 χ²₁ / ESS (two halves of a chain).

    The ESS of a chain of 4,000 draws with correlation 0.95 is 103: R-hat exceeds 1.3, χ²₁ 35, once
    in 3·10⁸.
    """
    equal = np.tile(np.eye(3) / 3, (3, 1, 1))
    stuck = [*shards[:2], shards[2] + np.linspace(0, 30, N)[:, None]]
    assert (ess_and_rhat(draws, draws, equal, shards)[1] < 1.3).all()
    assert (ess_and_rhat(draws, draws, equal, stuck)[1] > 1.5).all()


# ---------------------------------------------------------------- what everyone shows


def test_effective_draws_are_merged_ess_where_weights_are_known(draws, weights, shards):
    found = effective_draws(draws, weights, shards)
    np.testing.assert_array_equal(found, merged_ess(weights, shards))


def test_effective_draws_of_a_coded_run_are_those_of_a_chain(shards):
    np.testing.assert_array_equal(effective_draws(shards[0], None, []), bulk_ess(shards[0][None]))


def test_too_few_draws_have_no_ess(draws, weights, shards):
    n = fewest_draws(3)
    assert n == 14
    assert np.isfinite(effective_draws(draws[:n], None, [])).all()
    assert np.isnan(effective_draws(draws[: n - 1], None, [])).all()
    assert np.isnan(effective_draws(draws[: n - 1], weights, shards)).all()
    short = [x[:k] for x, k in zip(shards, (N, 3, N), strict=True)]
    found = effective_draws(draws, weights, short)
    np.testing.assert_array_equal(found, np.full(3, np.nan))
