"""Hamiltonian steps in numpy: what they leave as it is, how they end, and what they count."""

from functools import partial

import numpy as np
import pytest
from scipy.special import polygamma

from helpers.assertions import assert_mean
from quorate.samplers.trajectories import Dynamics, Walk, hmc, nuts

SHAPES = np.array([1.0, 4.0])
INVERSE_MASSES = np.array([0.5, 2.0])
KERNELS = {"nuts": nuts, "hmc": partial(hmc, n_leapfrog=3)}


def log_gamma(z):
    """Logarithms of Gamma(shape) variables: skewed, the more so the smaller the shape."""
    return float(np.sum(SHAPES * z - np.exp(z))), SHAPES - np.exp(z)


def standard_normal(z):
    return float(-0.5 * z @ z), -z


def started(dynamics, z, rng):
    return dynamics.start(z, *dynamics.density(z), rng.standard_normal(len(z)))


def after_one_step(kernel, step_size, rng, n=3000):
    """Where independent draws of the target are one step later, with their squares."""
    dynamics = Dynamics(log_gamma, step_size, INVERSE_MASSES)
    starts = np.log(rng.gamma(SHAPES, size=(n, 2)))
    ends = np.array([kernel(dynamics, started(dynamics, z, rng), rng).end.z for z in starts])
    return np.hstack([ends, (ends - polygamma(0, SHAPES)) ** 2])


def always_accepted(dynamics, start, rng):
    return Walk(dynamics.after(start, dynamics.step_size), 1.0, False, 1)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("step_size", [0.3, 1.0])
def test_a_step_leaves_the_target_as_it_is(kernel, step_size, rng):
    expected = np.hstack([polygamma(0, SHAPES), polygamma(1, SHAPES)])
    assert_mean(after_one_step(KERNELS[kernel], step_size, rng), expected)


def test_without_a_choice_of_points_the_target_is_another(rng):
    """The control of the test above."""
    expected = np.hstack([polygamma(0, SHAPES), polygamma(1, SHAPES)])
    with pytest.raises(AssertionError, match=r"\|z\|"):
        assert_mean(after_one_step(always_accepted, 1.0, rng), expected)


def test_there_and_back_again(rng):
    dynamics = Dynamics(log_gamma, 0.3, INVERSE_MASSES)
    start = started(dynamics, np.array([0.5, 1.0]), rng)
    back = dynamics.after(dynamics.after(start, 0.3), -0.3)
    np.testing.assert_allclose(back.z, start.z, rtol=1e-12)
    np.testing.assert_allclose(back.momentum, start.momentum, rtol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_are_counted(kernel, rng):
    calls = []
    dynamics = Dynamics(lambda z: calls.append(z) or log_gamma(z), 0.3, INVERSE_MASSES)
    start = started(dynamics, np.zeros(2), rng)
    calls.clear()
    walk = KERNELS[kernel](dynamics, start, rng)
    assert walk.n_gradients == len(calls)
    assert 0 < walk.acceptance <= 1
    assert not walk.is_divergent


def test_trajectories_end_where_they_turn_back(rng):
    """Half a turn in many dimensions takes about π: some 32 points a tenth apart.

    A trajectory turns at time t where cot(t/2) falls to p·z/|p|², which is normal with sd 1/√200:
    before 16 points, or after 63, it would have to be 15 sds off.
    """
    for step_size, fewest, most in [(0.1, 16, 63), (1e-4, 2**10 - 1, 2**10 - 1)]:
        dynamics = Dynamics(standard_normal, step_size, np.ones(200))
        for _ in range(10):
            walk = nuts(dynamics, started(dynamics, rng.normal(size=200), rng), rng)
            assert fewest <= walk.n_gradients <= most


@pytest.mark.parametrize("kernel", KERNELS)
def test_where_there_is_no_number_a_trajectory_ends(kernel, rng):
    """A model is never asked for what lies beyond."""
    calls = []

    def lost(z):
        calls.append(z)
        return np.nan, np.full(2, np.nan)

    start = started(Dynamics(log_gamma, 0.3, INVERSE_MASSES), np.zeros(2), rng)
    walk = KERNELS[kernel](Dynamics(lost, 0.3, INVERSE_MASSES), start, rng)
    assert walk.end is start
    assert walk.is_divergent
    assert walk.n_gradients == len(calls) == 1


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_trajectory_that_diverges_leads_nowhere(kernel, rng):
    dynamics = Dynamics(log_gamma, 1e3, INVERSE_MASSES)
    start = started(dynamics, np.zeros(2), rng)
    with np.errstate(all="ignore"):
        walk = KERNELS[kernel](dynamics, start, rng)
    assert walk.is_divergent
    assert walk.end is start
    assert walk.acceptance == 0
