"""The fit of the posterior: exact for a Gaussian, whatever the start, and the same bits always."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma, polygamma

from helpers.passes import Posterior, far_off, gaussian, random_gaussian, skewed, standing
from quorate.numerics.streams import Streams
from quorate.passes.centring import Centring, n_points, recentred, spread
from quorate.samplers.base import Base

# The base is rounded to 2⁻¹² sds: coordinates err by as much at most, each relative to its sd
# given those before it. Of 300 Gaussians of 1 to 6 dimensions none was further off than 5e-4.
ROUNDING = 1e-3


def errors(base, mean, cov):
    """Of the mean, in sds, and of the covariance, relative to `cov`."""
    lower = np.linalg.cholesky(cov)
    scaled = np.linalg.solve(lower, base.lower)
    gap = np.linalg.solve(lower, base.mean - mean)
    return np.abs(gap).max(), np.abs(scaled @ scaled.T - np.eye(len(mean))).max()


def a_pass(before, posterior, streams, *, with_gradient, noise=0.0, rng=None):
    """The fit after one more pass, with values and gradients perturbed by a relative `noise`."""
    dim = posterior.dim
    n = n_points(dim, with_gradient=with_gradient)
    z = spread(streams, before.n_passes, n, dim)
    points = before.base.points(z)
    values = posterior.values(points)
    gradients = posterior.gradients(points) if with_gradient else None
    if noise:
        values = values * (1 + noise * rng.uniform(-1, 1, n))
        if gradients is not None:
            gradients = gradients * (1 + noise * rng.uniform(-1, 1, (n, dim)))
    return recentred(before, z, values, gradients)


# ---------------------------------------------------------------- Gaussians


@pytest.mark.parametrize("with_gradient", [True, False])
@given(dim=st.integers(1, 6), key=st.integers(0, 2**32))
@settings(max_examples=30)
def test_a_gaussian_is_found_exactly_from_far_off(seed, with_gradient, dim, key):
    """A pass may change precisions by a factor of 4, so that a factor of 64 takes three."""
    rng = np.random.default_rng(key)
    mean, cov = random_gaussian(rng, dim)
    start = far_off(mean, cov, rng)
    assert min(errors(start, mean, cov)) > 1  # the control
    fit = standing(gaussian(mean, cov), start, Streams(seed), with_gradient=with_gradient)
    assert fit.stands
    assert fit.n_passes <= 12
    assert max(errors(fit.base, mean, cov)) < ROUNDING


@pytest.mark.parametrize("with_gradient", [True, False])
@pytest.mark.parametrize("dim", [1, 6, 25])
def test_one_pass_finds_a_gaussian_within_its_bounds(rng, seed, dim, with_gradient):
    """A start 1 sd off with sds 1.5 times too large; no quadratic is averaged over anything."""
    mean, cov = random_gaussian(rng, dim)
    lower = np.linalg.cholesky(cov)
    start = Base(mean + lower @ np.full(dim, 0.5), 1.5 * lower)
    fit = a_pass(Centring(start), gaussian(mean, cov), Streams(seed), with_gradient=with_gradient)
    assert max(errors(fit.base, mean, cov)) < 2 * ROUNDING
    assert fit.n_bounded == 1


def test_a_fit_that_is_right_stands_at_once(rng, seed):
    mean, cov = random_gaussian(rng, 3)
    start = Base(mean, np.linalg.cholesky(cov))
    fit = a_pass(Centring(start), gaussian(mean, cov), Streams(seed), with_gradient=True)
    assert fit.stands
    assert fit.move < 1e-6


def test_a_pass_moves_by_three_sds_and_fourfold_precisions_at_most(rng, seed):
    dim = 4
    mean, cov = random_gaussian(rng, dim)
    lower = np.linalg.cholesky(cov)
    start = Base(mean + 100 * lower @ np.ones(dim), 100 * lower)
    fit = a_pass(Centring(start), gaussian(mean, cov), Streams(seed), with_gradient=True)
    scaled = np.linalg.solve(start.lower, fit.base.lower)
    np.testing.assert_allclose(scaled @ scaled.T, np.eye(dim) / 4, atol=1e-3)
    narrow = Base(mean + 100 * lower @ np.ones(dim), lower / 100)
    fit = a_pass(Centring(narrow), gaussian(mean, cov), Streams(seed), with_gradient=True)
    moved = np.linalg.solve(narrow.lower, fit.base.mean - narrow.mean)
    far = np.sqrt(np.mean(moved**2))
    assert 1.5 < far < 3.01  # along each axis of the curvature, of which those far off move by 3
    assert not fit.stands
    assert fit.n_bounded == 0


@pytest.mark.parametrize("with_gradient", [True, False])
def test_a_fit_of_a_skewed_posterior_is_near_it(seed, with_gradient):
    """It need not be exact, being but a base: of 300 seeds the worst was 0.36 sds off."""
    mean = np.array([1.0, digamma(2)])
    cov = np.array([[1.5, 0.5], [0.5, polygamma(1, 2)]])
    start = Base(np.array([4.0, 2.0]), 0.25 * np.eye(2))
    fit = standing(skewed(), start, Streams(seed), with_gradient=with_gradient)
    assert fit.stands
    assert fit.n_passes < 10
    assert errors(fit.base, mean, cov)[0] < 0.7 < 2 < errors(start, mean, cov)[0]


# ---------------------------------------------------------------- points without density


@pytest.mark.parametrize("with_gradient", [True, False])
def test_points_without_density_are_left_out(rng, seed, with_gradient):
    """Where a Gaussian is cut off at 1 sd, the others still lie on the same quadratic."""
    mean, cov = random_gaussian(rng, 3)
    lower = np.linalg.cholesky(cov)
    cut = gaussian(mean, cov).where(lambda x: x[:, 0] < mean[0] + lower[0, 0])
    points = Base(mean, lower).points(spread(Streams(seed), 0, 256, 3))
    assert 0 < np.isinf(cut.values(points)).sum() < 128
    fit = a_pass(Centring(Base(mean, lower)), cut, Streams(seed), with_gradient=with_gradient)
    assert max(errors(fit.base, mean, cov)) < ROUNDING


def test_gradients_where_there_is_no_density_do_not_matter(rng, seed):
    mean, cov = random_gaussian(rng, 2)
    before = Centring(Base(mean, np.linalg.cholesky(cov)))
    z = spread(Streams(seed), 0, 256, 2)
    posterior, points = gaussian(mean, cov), before.base.points(z)
    values, gradients = posterior.values(points), posterior.gradients(points)
    values[::7] = -np.inf
    found = []
    for instead in (0.0, 1e9):
        gradients[::7] = instead
        found.append(recentred(before, z, values, gradients).base)
    np.testing.assert_array_equal(found[0].mean, found[1].mean)
    np.testing.assert_array_equal(found[0].lower, found[1].lower)


@pytest.mark.parametrize("with_gradient", [True, False])
def test_a_fit_shrinks_to_where_there_is_density(rng, seed, with_gradient):
    """If most points have none it moves to the mean of the others; then it finds the Gaussian."""
    mean, cov = random_gaussian(rng, 2)
    lower = np.linalg.cholesky(cov)
    inside = gaussian(mean, cov).where(
        lambda x: (np.linalg.solve(lower, (x - mean).T) ** 2).sum(axis=0) < 16
    )
    start = Base(mean + 10 * lower @ np.array([1.0, 0.0]), 10 * lower)
    points = start.points(spread(Streams(seed), 0, n_points(2, with_gradient=with_gradient), 2))
    has_density = np.isfinite(inside.values(points))
    assert 0 < has_density.sum() < len(points) / 2
    fit = a_pass(Centring(start), inside, Streams(seed), with_gradient=with_gradient)
    np.testing.assert_allclose(fit.base.lower, start.lower / 2, rtol=1e-3, atol=1e-3)
    gap = np.linalg.solve(start.lower, fit.base.mean - points[has_density].mean(axis=0))
    assert np.abs(gap).max() < ROUNDING
    assert not fit.stands
    fit = standing(inside, start, Streams(seed), with_gradient=with_gradient)
    assert fit.n_passes < 40
    assert max(errors(fit.base, mean, cov)) < 0.02


def test_without_any_density_the_fit_shrinks_where_it_is_and_ends(rng, seed):
    start = Base(rng.standard_normal(2), np.eye(2))
    nowhere = gaussian(np.zeros(2), np.eye(2)).where(lambda x: np.zeros(len(x), dtype=bool))
    fit = a_pass(Centring(start), nowhere, Streams(seed), with_gradient=True)
    np.testing.assert_allclose(fit.base.mean, start.mean, atol=1e-3)
    np.testing.assert_array_equal(fit.base.lower, start.lower / 2)
    fit = standing(nowhere, start, Streams(seed), with_gradient=True, most=1000)
    assert fit.n_passes == 40
    assert np.all(np.isfinite(fit.base.lower))


# ---------------------------------------------------------------- bits


@pytest.mark.parametrize("with_gradient", [True, False])
def test_rounding_errors_do_not_change_the_bits(rng, seed, with_gradient):
    """Perturbed by 1e-13; the grid is 2⁻¹² sds wide.

    Values are up to 1,000 log units here, so a coordinate moves by 1e-9 sds at most, and one in
    10⁵ lies so near to a boundary of the grid. There are 9 of each pass, and 6 passes: it fails
    once in 1,000 at worst, and perturbations by 0.1 are the control.
    """
    mean, cov = random_gaussian(rng, 3)
    for posterior in (gaussian(mean, cov), skewed()):
        start = Base.standard(np.full(posterior.dim, 3.0))
        options = {"with_gradient": with_gradient}
        exact, near, far = Centring(start), Centring(start), Centring(start)
        for _ in range(6):
            exact = a_pass(exact, posterior, Streams(seed), **options)
            near = a_pass(near, posterior, Streams(seed), noise=1e-13, rng=rng, **options)
            far = a_pass(far, posterior, Streams(seed), noise=0.1, rng=rng, **options)
        assert near.base.mean.tobytes() == exact.base.mean.tobytes()
        assert near.base.lower.tobytes() == exact.base.lower.tobytes()
        assert near.stands == exact.stands
        assert far.base.mean.tobytes() != exact.base.mean.tobytes()


@pytest.mark.parametrize("dim", [2, 17, 18, 60])
def test_points_of_a_pass_are_standard_normal_and_of_that_pass(seed, dim):
    """Evenly spread, or in opposite pairs: their mean is nearer to 0 than that of random points.

    The mean of random points would be above the limit in half of the cases at least.
    """
    n = 1024
    z = spread(Streams(seed), 0, n, dim)
    assert np.abs(z.mean(axis=0)).max() < 0.3 / np.sqrt(n)
    np.testing.assert_allclose(z.var(axis=0), 1.0, atol=5 * np.sqrt(4 / n))
    np.testing.assert_array_equal(z, spread(Streams(seed), 0, n, dim))
    assert not np.isin(z, spread(Streams(seed), 1, n, dim)).any()


def test_the_fit_of_500_coordinates_stands_soon(seed):
    """A product of logistic densities. With 1,024 points noise makes some direction look flat."""
    wide = Posterior(
        500,
        lambda x: -2 * np.log(np.cosh(x / 2)).sum(axis=1),
        lambda x: -np.tanh(x / 2),
    )
    base = Base.standard(np.ones(500))
    fit = standing(wide, base, Streams(seed), with_gradient=True, most=8)
    assert fit.stands
    assert fit.n_flat == 0
