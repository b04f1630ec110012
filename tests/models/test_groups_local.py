"""Draws of the parameters of groups follow their density, whatever else is drawn with them."""

import numpy as np
import pytest
from scipy import special, stats

from quorate.models.groups.local import independence_draws, numbers_needed

SHAPE = 0.7  # of a Gamma distribution; the log of such a number is skewed


def log_of_gamma(z):
    return (SHAPE * z - np.exp(z)).sum(axis=-1)


@pytest.fixture
def problem(rng):
    """Points, groups and parameters: rough means, rough spreads, and numbers."""
    n, m, dim = 4_000, 3, 2
    shifts = np.array([[0.0], [0.3], [-0.3]])
    mean = np.full((n, m, dim), special.digamma(SHAPE)) + shifts
    factor = np.sqrt(special.polygamma(1, SHAPE)) * np.broadcast_to(
        [[1.0, 0.3], [0.0, 1.0]], (n, m, dim, dim)
    )
    return mean, factor, rng.uniform(size=(n, m, numbers_needed(dim)))


def test_draws_follow_the_density(problem):
    # Twelve thousand independent draws of each parameter; both tests: a false alarm in 1e6.
    draws = independence_draws(log_of_gamma, *problem).reshape(-1, 2)
    for values in draws.T:
        right = stats.kstest(special.gammainc(SHAPE, np.exp(values)), "uniform").pvalue
        wrong = stats.kstest(special.gammainc(SHAPE, np.exp(values + 0.15)), "uniform").pvalue
        assert right > 0.5e-6
        assert wrong < 0.5e-6  # the test would see a shift of a tenth of a standard deviation


def test_a_draw_depends_on_its_own_numbers_only(problem):
    some = tuple(array[5:9, 1:] for array in problem)
    whole = independence_draws(log_of_gamma, *problem)
    assert np.array_equal(whole[5:9, 1:], independence_draws(log_of_gamma, *some))


def test_what_has_density_0_is_not_drawn(problem):
    def half(z):
        return np.where(z[..., 0] > -6, log_of_gamma(z), np.nan)

    draws = independence_draws(half, *problem)
    assert (draws[..., 0] > -6).all()
