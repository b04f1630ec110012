"""Ensembles of chains: the law of their draws, and that nothing but the values matters to them."""

import numpy as np
import pytest
from scipy.stats import gamma, kstest, norm, t

from helpers.assertions import FALSE_FAIL_RATE, assert_quantile
from helpers.passes import gaussian, random_gaussian, skewed, student
from quorate.numerics.ess import mean_ess
from quorate.numerics.streams import Streams
from quorate.passes.ensemble import Ensemble, log_base
from quorate.samplers.base import Base
from quorate.samplers.laplace import LaplaceFit

N_CHAINS = 4000
BENT = Base.around(LaplaceFit(np.array([1.0, 0.5]), np.array([[1.2, 0.0], [0.4, 0.7]])))


def started(posterior, base, z, seed, *, n_settling=0, n_draws=1, lane=0):
    return Ensemble(
        base,
        z,
        posterior.values(base.points(z)),
        n_settling=n_settling,
        n_draws=n_draws,
        streams=Streams(seed),
        lane=lane,
    )


def drawn(ensemble, posterior):
    """All draws (n_chains, n_draws, d) of an ensemble; answered as often as it asks."""
    while not ensemble.is_done:
        ensemble.take(posterior.values(ensemble.points()), None)
    return ensemble.draws


def wrong_base(ensemble, posterior):
    """Draws by an acceptance that forgets the density of the base: the control."""
    while not ensemble.is_done:
        z = np.linalg.solve(ensemble._base.lower, (ensemble.points() - ensemble._base.mean).T).T
        ensemble.take(posterior.values(ensemble.points()) + log_base(z), None)
    return ensemble.draws


# ---------------------------------------------------------------- the law of draws

# The last draws of chains that share no random number are independent. All start at 0 in units of
# the base, and 30 steps are dropped; a step of elliptical slice sampling forgets its start but for
# a few per cent where the base fits, so what is left of it is far below the noise of 4,000 draws.


def last_draws(posterior, base, seed, drawing=drawn, n_chains=N_CHAINS, n_settling=30):
    z = np.zeros((n_chains, posterior.dim))
    ensemble = started(posterior, base, z, seed, n_settling=n_settling)
    return drawing(ensemble, posterior)[:, 0]


def follows(values, cdf):
    """Whether independent values may have this law: refused once in 10⁶ if they have."""
    return kstest(values, cdf).pvalue > FALSE_FAIL_RATE


@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("stretch", [1.0, 2.0])
def test_draws_of_a_gaussian(rng, seed, dim, stretch):
    """Squared distances are χ², each coordinate is normal; for a base that fits, and one that is
    off by half a sd and too wide."""
    mean, cov = random_gaussian(rng, dim)
    lower = np.linalg.cholesky(cov)
    base = Base(mean + (stretch - 1) * 0.5 * lower.sum(axis=1), stretch * lower)

    def z(drawing):
        draws = last_draws(gaussian(mean, cov), base, seed, drawing)
        return np.linalg.solve(lower, (draws - mean).T)

    right, wrong = z(drawn), z(wrong_base)
    assert all(follows(norm.cdf(row), "uniform") for row in right)
    assert follows(np.sum(right**2, axis=0), gamma(dim / 2, scale=2).cdf)
    assert not follows(np.sum(wrong**2, axis=0), gamma(dim / 2, scale=2).cdf)


def test_draws_of_a_skewed_target(seed):
    """y is the log of a Gamma(2) variable, and x given y is normal."""
    x, y = last_draws(skewed(), BENT, seed).T
    assert follows(np.exp(y), gamma(2).cdf)
    assert follows(x - np.exp(y) / 2, norm.cdf)
    x, y = last_draws(skewed(), BENT, seed, wrong_base).T
    assert not follows(np.exp(y), gamma(2).cdf)


def test_draws_of_a_target_with_heavier_tails_than_the_base(seed):
    """t₃, where the base is t₇: far out, chains need long to come back, but they go there."""
    base = Base(np.zeros(1), np.eye(1))
    draws = last_draws(student(), base, seed, n_settling=60)[:, 0]
    assert follows(draws, t(3).cdf)
    assert_quantile(-np.abs(draws), -4.0, 2 * t(3).sf(4.0))
    with pytest.raises(AssertionError):
        assert_quantile(-np.abs(draws), -4.0, 2 * t(7).sf(4.0))
    wrong = last_draws(student(), base, seed, wrong_base, n_settling=60)[:, 0]
    assert not follows(wrong, t(3).cdf)


def test_means_along_chains_are_those_of_the_target(seed):
    """z-scores by the ESS of the mean: beyond 4.9 once in 10⁶; a mean of 2.2 is the control."""
    ensemble = started(skewed(), BENT, np.zeros((100, 2)), seed, n_settling=10, n_draws=50)
    counts = np.exp(drawn(ensemble, skewed())[..., 1])
    error = counts.std() / np.sqrt(mean_ess(counts))
    limit = norm.isf(FALSE_FAIL_RATE / 2)
    assert abs(counts.mean() - 2) / error < limit
    assert abs(counts.mean() - 2.2) / error > limit
    assert ensemble.n_evaluations < 4 * 100 * 60  # a base that fits is cheap


# ---------------------------------------------------------------- what draws depend on


@pytest.fixture
def cloud(rng):
    """The base of a 2-dimensional target, and starts of 12 chains."""
    return BENT, rng.standard_normal((12, 2))


def test_a_chain_does_not_depend_on_the_others(cloud, rng, seed):
    """Chains 0 to 4 of 5 are those of 12, and other starts of the others change nothing."""
    base, z = cloud
    all_draws = drawn(started(skewed(), base, z, seed, n_draws=40), skewed())
    few = drawn(started(skewed(), base, z[:5], seed, n_draws=40), skewed())
    assert few.tobytes() == all_draws[:5].tobytes()
    alone = drawn(started(skewed(), base, z[:1], seed, n_draws=40), skewed())
    assert alone.tobytes() == all_draws[:1].tobytes()
    others = np.concatenate([z[:5], 3 * rng.standard_normal((7, 2))])
    changed = drawn(started(skewed(), base, others, seed, n_draws=40), skewed())
    assert changed[:5].tobytes() == few.tobytes()
    assert changed[5:].tobytes() != all_draws[5:].tobytes()


def test_chains_and_lanes_share_no_numbers(cloud, seed):
    """From the same start, none of their draws are the same."""
    base, z = cloud
    same = np.repeat(z[:1], 4, axis=0)
    lanes = [
        drawn(started(skewed(), base, same, seed, n_draws=20, lane=lane), skewed())
        for lane in (0, 1)
    ]
    draws = np.concatenate(lanes).reshape(-1, 2)
    assert len(np.unique(draws[:, 0])) == len(draws)


def test_settling_drops_the_first_steps(cloud, seed):
    base, z = cloud
    whole = drawn(started(skewed(), base, z, seed, n_draws=30), skewed())
    late = drawn(started(skewed(), base, z, seed, n_settling=12, n_draws=18), skewed())
    assert late.tobytes() == whole[:, 12:].tobytes()


@pytest.mark.parametrize("n_first", [1, 5, 16, 33])
@pytest.mark.parametrize("n_answers", [0, 3, 1000])
def test_extending_gives_the_same_draws_as_asking_for_all(cloud, seed, n_first, n_answers):
    """Whether it is extended at the end, in the middle or before it has begun."""
    base, z = cloud
    options = {"n_settling": 3}
    whole = started(skewed(), base, z, seed, n_draws=40, **options)
    part = started(skewed(), base, z, seed, n_draws=n_first, **options)
    for _ in range(n_answers):
        if not part.is_done:
            part.take(skewed().values(part.points()), None)
    assert part.is_done == (n_answers == 1000)
    part.extend(n_first - 1)  # fewer is no change
    part.extend(40)
    drawn(part, skewed())
    assert drawn(whole, skewed()).tobytes() == part.draws.tobytes()
    assert whole.log_densities.tobytes() == part.log_densities.tobytes()
    assert whole.n_evaluations == part.n_evaluations


def test_draws_that_are_never_made_need_no_memory(cloud, seed):
    """A run until an ESS or a time is reached may be asked for any number of draws."""
    base, z = cloud
    few = started(skewed(), base, z, seed, n_draws=3)
    expected = drawn(few, skewed())
    many = started(skewed(), base, z, seed, n_draws=10**13)
    while many.n_complete < 3:
        many.take(skewed().values(many.points()), None)
    np.testing.assert_array_equal(many.draws[:, :3], expected)


def test_draws_have_their_log_densities(cloud, seed):
    base, z = cloud
    ensemble = started(skewed(), base, z, seed, n_draws=20)
    draws = drawn(ensemble, skewed())
    found = skewed().values(draws.reshape(-1, 2)).reshape(12, 20)
    np.testing.assert_array_equal(ensemble.log_densities, found)


def test_draws_that_all_chains_have_made_are_there(cloud, seed):
    """As many as the slowest chain has, in the middle of the run too, and they never change."""
    base, z = cloud
    whole = drawn(started(skewed(), base, z, seed, n_draws=20), skewed())
    ensemble, n_before = started(skewed(), base, z, seed, n_draws=20), 0
    while not ensemble.is_done:
        ensemble.take(skewed().values(ensemble.points()), None)
        n = ensemble.n_complete
        assert n >= n_before
        assert ensemble.draws.tobytes() == whole[:, :n].tobytes()
        n_before = n
    assert n_before == 20


# ---------------------------------------------------------------- points without density


def test_points_without_density_are_refused(rng, seed):
    """A Gaussian cut off at its mean: a half-normal. Nothing below, and the law above."""
    half = gaussian(np.zeros(1), np.eye(1)).where(lambda x: x[:, 0] > 0)
    z = np.abs(rng.standard_normal((N_CHAINS, 1)))
    ensemble = started(half, Base(np.zeros(1), np.eye(1)), z, seed, n_settling=30)
    draws = drawn(ensemble, half)[:, 0, 0]
    assert draws.min() > 0
    assert follows(draws, lambda x: 2 * norm.cdf(x) - 1)
    assert not follows(draws, norm.cdf)


def test_a_chain_that_finds_no_density_stays(seed):
    """It asks for angles ever nearer to 0, more than the row of a step has, and then gives up."""
    alone = gaussian(np.zeros(2), np.eye(2))
    start = np.array([[0.5, -0.25], [1.0, 0.0]])
    ensemble = started(alone, Base(np.zeros(2), np.eye(2)), start, seed, n_draws=2)
    n_passes = 0
    while not ensemble.is_done:
        ensemble.take(np.full(len(ensemble.points()), -np.inf), None)
        n_passes += 1
    np.testing.assert_array_equal(ensemble.draws, np.repeat(start[:, None], 2, axis=1))
    assert np.all(np.isfinite(ensemble.log_densities))
    assert 30 < n_passes < 400
