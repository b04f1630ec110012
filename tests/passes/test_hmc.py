"""Hamiltonian ensembles: the law of their draws, and that only the answers matter to them."""

import numpy as np
import pytest
from scipy.stats import gamma, kstest

from helpers.assertions import FALSE_FAIL_RATE
from helpers.passes import Posterior, gaussian, random_gaussian, skewed
from quorate.numerics.streams import Streams
from quorate.passes.hmc import HmcEnsemble
from quorate.samplers.base import Base
from quorate.samplers.laplace import LaplaceFit

N_CHAINS = 4000
BENT = Base.around(LaplaceFit(np.array([1.0, 0.5]), np.array([[1.2, 0.0], [0.4, 0.7]])))


def started(base, z, seed, n_settling=0, n_draws=1):
    return HmcEnsemble(
        base, z, n_settling=n_settling, n_draws=n_draws, streams=Streams(seed), lane=0
    )


def drawn(ensemble, posterior, wrong=0.0):
    """All draws; `wrong` adds to the log density what the gradient does not know of."""
    while not ensemble.is_done:
        points = ensemble.points()
        ensemble.take(posterior.values(points) + wrong * points[:, 1], posterior.gradients(points))
    return ensemble.draws


def last_of_skewed(seed, wrong=0.0):
    """Its second coordinate, after 60 trajectories of chains that share no random number."""
    ensemble = started(BENT, np.zeros((N_CHAINS, 2)), seed, n_settling=60)
    return drawn(ensemble, skewed(), wrong)[:, 0, 1]


def follows(values, cdf):
    return kstest(values, cdf).pvalue > FALSE_FAIL_RATE


def test_the_law_of_a_skewed_posterior(seed):
    """y is the log of a Gamma(2) variable. Refused once in 10⁶ though right."""
    assert follows(np.exp(last_of_skewed(seed)), gamma(2).cdf)


def test_values_decide_not_gradients(seed):
    """The control: with another density and the same gradients it has the other law."""
    other = np.exp(last_of_skewed(seed, wrong=0.5))
    assert not follows(other, gamma(2).cdf)
    assert follows(other, gamma(2.5).cdf)


def test_a_gaussian_in_many_dimensions_is_forgotten_in_one_trajectory(seed):
    """Most trajectories are accepted, and draws of a chain are nearly independent.

    At 60 seeds, the correlation of draws that follow each other was between -0.31 and 0.14.
    """
    mean, cov = random_gaussian(np.random.default_rng(seed), 40)
    base = Base.around(LaplaceFit(mean, np.linalg.cholesky(cov)))
    z = np.random.default_rng(seed + 1).standard_normal((64, 40))
    draws = drawn(started(base, z, seed, n_settling=20, n_draws=30), gaussian(mean, cov))
    centred = draws - draws.mean(axis=(0, 1))
    lag_one = np.mean(centred[:, 1:] * centred[:, :-1]) / np.mean(centred**2)
    assert abs(lag_one) < 0.6
    assert np.mean(np.any(np.diff(draws, axis=1) != 0, axis=2)) > 0.5


@pytest.mark.parametrize("n_first", [1, 4])
def test_extending_gives_the_same_draws_as_asking_for_all(n_first, seed):
    posterior, z = skewed(), np.zeros((10, 2))
    whole = drawn(started(BENT, z, seed, n_settling=3, n_draws=9), posterior)
    ensemble = started(BENT, z, seed, n_settling=3, n_draws=n_first)
    drawn(ensemble, posterior)
    ensemble.extend(9)
    np.testing.assert_array_equal(drawn(ensemble, posterior), whole)
    assert ensemble.log_densities.shape == (10, 9)


def test_points_without_density_are_never_drawn(seed):
    posterior = skewed().where(lambda x: x[:, 1] < 1.0)
    draws = drawn(started(BENT, np.zeros((50, 2)), seed, n_settling=5, n_draws=20), posterior)
    assert draws[..., 1].max() < 1.0


def test_trajectories_that_diverge_are_refused_without_a_warning():
    """Slopes of 1e200 make a momentum whose square is no number."""
    ensemble = started(BENT, np.zeros((4, 2)), seed=0, n_draws=3)
    steep = Posterior(2, lambda x: np.zeros(len(x)), lambda x: np.full(x.shape, 1e200))
    draws = drawn(ensemble, steep)
    np.testing.assert_array_equal(draws, np.broadcast_to(draws[:, :1], draws.shape))
