"""Points from mixtures of Student-t distributions, and what their weights estimate."""

import tracemalloc

import numpy as np
import pytest
from scipy.stats import multivariate_normal, multivariate_t, norm

from helpers.assertions import FALSE_FAIL_RATE, assert_mean
from quorate.numerics.importance import StudentMixture, Weighted, student_points
from quorate.numerics.streams import Purpose, Streams

CONSTANT = multivariate_t.logpdf(np.zeros(3), shape=np.eye(3), df=7)  # of a standard t


@pytest.fixture
def mixture(rng):
    """Three components, of very different widths along the coordinates."""
    roots = rng.standard_normal((3, 3, 3))
    lowers = np.linalg.cholesky(roots @ np.swapaxes(roots, 1, 2) + np.eye(3))
    lowers *= np.array([1.0, 100.0, 0.01])[:, None]
    means = rng.standard_normal((3, 3)) * [1.0, 100.0, 0.01]
    return StudentMixture(7.0, np.array([0.7, 0.2, 0.1]), means, lowers)


def points_of(mixture, seed, n):
    uniforms = Streams(seed).uniforms(Purpose.POINTS, [(0, 0)], 0, n, 5)[0]
    return mixture.points(uniforms[:, 0], uniforms[:, 1:4], uniforms[:, 4])


def inside(mixture):
    """A Gaussian whose density is at most a few times the mixture's: its ratios are bounded."""
    return multivariate_normal(mixture.means[0], mixture.lowers[0] @ mixture.lowers[0].T / 2)


def test_density_is_that_of_its_components(mixture, rng):
    points = rng.standard_normal((20, 3)) * [1.0, 100.0, 0.01]
    components = zip(mixture.shares, mixture.means, mixture.lowers, strict=True)
    parts = [
        share * multivariate_t.pdf(points, mean, lower @ lower.T, df=7)
        for share, mean, lower in components
    ]
    found = np.exp(mixture.log_density(points) + CONSTANT)
    np.testing.assert_allclose(found, np.sum(parts, axis=0))


def test_shares_may_have_any_sum(mixture, rng):
    points = rng.standard_normal((20, 3))
    counts = StudentMixture(7.0, 10 * mixture.shares, mixture.means, mixture.lowers)
    expected = mixture.log_density(points) + np.log(10)
    np.testing.assert_allclose(counts.log_density(points), expected)


def test_points_come_from_the_density(mixture, seed):
    """E[q/p] = 1 over points of p for any density q inside it; wider points are the control."""
    points, target = points_of(mixture, seed, 20_000), inside(mixture)

    def ratios(points):
        return np.exp(target.logpdf(points) - mixture.log_density(points) - CONSTANT)[:, None]

    assert_mean(ratios(points), np.ones(1))
    wider = StudentMixture(7.0, mixture.shares, mixture.means, 1.2 * mixture.lowers)
    with pytest.raises(AssertionError, match=r"\|z\|"):
        assert_mean(ratios(points_of(wider, seed, 20_000)), np.ones(1))


def test_standard_points_have_the_variance_of_their_degrees(seed):
    """ν / (ν - 2) for ν degrees of freedom, here 10/8; a normal distribution has 1."""
    uniforms = Streams(seed).uniforms(Purpose.POINTS, [(0, 0)], 0, 20_000, 3)[0]
    squares = student_points(uniforms[:, :2], uniforms[:, 2], 10.0) ** 2
    assert_mean(squares, np.full(2, 10 / 8))
    with pytest.raises(AssertionError, match=r"\|z\|"):
        assert_mean(squares, np.ones(2))


def largest_z(found, expected, error):
    return np.abs((found - expected) / error).max()


def test_weights_give_the_moments_of_the_target(mixture, seed):
    """Means, variances and a quantile of N(mean, cov), against their own standard errors.

    Ratios are bounded, so 4,000 points have normal errors; the limit is Bonferroni's over seven
    tests. Equal weights are the control.
    """
    points, target = points_of(mixture, seed, 4000), inside(mixture)
    weighted = Weighted.of(points, target.logpdf(points) - mixture.log_density(points) + 123.0)
    mean, cov = target.mean, target.cov
    limit = norm.isf(FALSE_FAIL_RATE / (2 * 7))

    def off(weighted):
        squares = (points - mean) ** 2
        below = (points[:, 0] < mean[0] + norm.ppf(0.3) * np.sqrt(cov[0, 0])).astype(float)
        return max(
            largest_z(weighted.mean(points), mean, weighted.error(points)),
            largest_z(weighted.mean(squares), np.diag(cov), weighted.error(squares)),
            largest_z(weighted.mean(below), 0.3, weighted.error(below)),
        )

    assert off(weighted) < limit
    assert off(Weighted.of(points, np.zeros(4000))) > limit


def test_moments_are_those_of_repeated_points(rng):
    """Whole multiples of weights are repetitions: numpy's moments are the truth."""
    points, times = rng.standard_normal((6, 2)), np.array([1, 5, 2, 2, 4, 6])
    repeated = np.repeat(points, times, axis=0)
    weighted = Weighted.of(points, np.log(times))
    np.testing.assert_allclose(weighted.mean(points), repeated.mean(axis=0))
    np.testing.assert_allclose(weighted.sd(points), repeated.std(axis=0))
    np.testing.assert_allclose(weighted.covariance, np.cov(repeated.T, bias=True))
    for share in (0.02, 0.31, 0.52, 0.99):
        expected = np.quantile(repeated[:, 0], share, method="inverted_cdf")
        assert weighted.quantiles(points[:, 0], [share]) == [expected]


def test_effective_number():
    points = np.zeros((4, 1))
    assert Weighted.of(points, np.full(4, 7.0)).ess == pytest.approx(4)
    assert Weighted.of(points, np.array([0.0, -1000, -1000, -np.inf])).ess == pytest.approx(1)
    assert Weighted.of(points, np.full(4, -np.inf)).ess == 1


def test_points_of_negligible_weight_are_left_out():
    points = np.array([[0.0], [np.inf], [1.0]])
    kept = Weighted.of(points, np.array([0.0, -100.0, -1.0])).without_negligible()
    np.testing.assert_array_equal(kept.points, [[0.0], [1.0]])
    assert np.isfinite(kept.mean(kept.points)).all()


def test_resampling_takes_points_as_often_as_they_weigh(seed):
    weighted = Weighted(np.zeros((3, 1)), np.array([0.5, 0.3, 0.2]))
    chosen = weighted.resampled(Streams(seed), 1000)
    assert np.abs(np.bincount(chosen, minlength=3) - [500, 300, 200]).max() <= 1
    assert (np.diff(chosen) < 0).any()  # in random order


def test_points_of_many_coordinates_take_little_memory(rng):
    """A triangle for each of the 500 points would take 160 MB; the points take 0.8."""
    n, dim = 500, 200
    lowers = np.tril(rng.standard_normal((2, dim, dim)))
    wide = StudentMixture(7.0, np.array([0.5, 0.5]), rng.standard_normal((2, dim)), lowers)
    choices, uniforms, scales = rng.random(n), rng.random((n, dim)), rng.random(n)
    tracemalloc.start()
    points = wide.points(choices, uniforms, scales)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6
    z, which = student_points(uniforms, scales, 7.0), (choices > 0.5).astype(int)
    expected = [wide.means[c] + lowers[c] @ of for c, of in zip(which, z, strict=True)]
    np.testing.assert_allclose(points, expected, rtol=1e-9, atol=1e-9)
