"""Covariances for weights: shrunk from draws towards fits, or towards no correlation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.cases import REFERENCE, subposterior_moments, targets
from helpers.targets import Density, LogisticWithGradient, logistic_rows, stream
from quorate.errors import BadInputError
from quorate.merging.consensus import consensus_weights
from quorate.merging.fit import Fit, as_arrays, fits_among
from quorate.merging.weights import (
    shrink_to_diagonal,
    shrink_to_fit,
    shrunk_covariance,
    shrunk_covariances,
)
from quorate.models.subposterior import Target
from quorate.numerics.moments import Moments, running_covariances
from quorate.numerics.streams import ChainStream, Streams
from quorate.samplers import EllipseSampler, fit_of, make_sampler
from quorate.samplers.laplace import laplace_fit


def a_covariance(rng, dim):
    root = rng.normal(size=(dim, dim + 2))
    sds = np.exp(rng.normal(size=dim))
    return sds[:, None] * (root @ root.T) * sds / dim


def some_draws(rng, cov, n):
    return rng.normal(size=(n, len(cov))) @ np.linalg.cholesky(cov).T + 3.0


def is_positive_definite(cov):
    """Judged in units of its own standard deviations."""
    sds = np.sqrt(np.diag(cov))
    scaled = cov / np.outer(sds, sds)
    return np.allclose(scaled, scaled.T) and np.linalg.eigvalsh(scaled)[0] > 1e-13


@pytest.mark.parametrize("is_fitted", [True, False])
@pytest.mark.parametrize("n", [3, 40, 4000])
def test_units_do_not_matter(is_fitted, n, rng):
    cov, units = a_covariance(rng, 4), 2.0 ** np.array([-30, 0, 7, 40])
    draws, fit = some_draws(rng, cov, n), Fit(np.zeros(4), 1.3 * cov)
    in_units = Fit(fit.mean, fit.covariance * np.outer(units, units))
    found = shrunk_covariance(Moments.of(draws), fit if is_fitted else None)
    again = shrunk_covariance(Moments.of(draws * units), in_units if is_fitted else None)
    np.testing.assert_allclose(again, found * np.outer(units, units), rtol=1e-11)


def test_the_fitted_rule_does_not_mind_mixed_coordinates(rng):
    cov, mixed = a_covariance(rng, 4), rng.normal(size=(4, 4))
    moments = Moments.of(some_draws(rng, cov, 300))
    fit, turned = 1.5 * cov, mixed @ (1.5 * cov) @ mixed.T
    found = shrink_to_fit(moments.covariance(), 300, fit)
    again = shrink_to_fit(mixed @ moments.covariance() @ mixed.T, 300, turned)
    np.testing.assert_allclose(again, mixed @ found @ mixed.T, rtol=1e-8, atol=1e-10)


@settings(max_examples=100)
@given(
    st.integers(1, 12),
    st.integers(0, 60),
    st.integers(0, 2**32 - 1),
    st.floats(-6, 6),
    st.booleans(),
)
def test_covariances_are_positive_definite(dim, n, seed, log_width, is_fitted):
    rng = np.random.default_rng(seed)
    cov = a_covariance(rng, dim)
    draws = some_draws(rng, cov, n) if n else np.empty((0, dim))
    fit = Fit(np.zeros(dim), np.exp(log_width) * a_covariance(rng, dim)) if is_fitted else None
    moments = Moments.of(draws) if n else Moments.none(dim)
    covs = shrunk_covariances([moments, Moments.of(some_draws(rng, cov, 50))], [fit, None])
    assert all(is_positive_definite(cov) for cov in covs)
    assert np.isfinite(consensus_weights(covs)).all()


def test_a_coordinate_that_never_moved_leaves_the_fit(rng):
    fit, draws = Fit(np.zeros(3), a_covariance(rng, 3)), rng.normal(size=(500, 3))
    draws[:, 2] = 1.0
    np.testing.assert_array_equal(shrunk_covariance(Moments.of(draws), fit), fit.covariance)


@pytest.mark.parametrize("is_fitted", [True, False])
def test_draws_have_the_last_word(is_fitted, rng):
    """With a fit that is wrong in scale and in shape, at the rate of 1/n that noise leaves.

    A deviation δ of a log eigenvalue loses limit²/δ, at most 100/(nδ) here; all δ are above 0.4.
    """
    cov = a_covariance(rng, 4)
    moments = Moments.of(some_draws(rng, cov, 1000)).covariance()
    lower = np.linalg.cholesky(moments)
    wrong = lower @ np.diag([0.1, 0.5, 4.0, 9.0]) @ lower.T
    sds = np.sqrt(np.diag(moments))
    for n in (10**5, 10**7, 10**9):
        found = shrink_to_fit(moments, n, wrong) if is_fitted else shrink_to_diagonal(moments, n)
        assert np.abs((found - moments) / np.outer(sds, sds)).max() < 1e4 / n
    far = shrink_to_fit(moments, 5, wrong) if is_fitted else shrink_to_diagonal(moments, 5)
    assert np.abs((far - moments) / np.outer(sds, sds)).max() > 0.01


def test_a_right_fit_is_left_alone_by_noise(rng):
    """Draws are repeated five times, as correlated as those of a chain may be.

    86 % of fits stay exactly as they are (6,000 repetitions), so fewer than half of 100 do once in
    10¹⁷. The root mean square change was 0.018 with an sd of 0.005, that of draws alone 0.24 with
    one of 0.01: limits are 9 sds away.
    """
    cov = a_covariance(rng, 5)
    found = [
        shrunk_covariance(
            Moments.of(np.repeat(some_draws(rng, cov, 100), 5, axis=0)), Fit(cov, cov)
        )
        for _ in range(100)
    ]

    def changes(covs):
        return np.array([np.linalg.eigvals(np.linalg.solve(cov, each)).real - 1 for each in covs])

    of_draws = [Moments.of(some_draws(rng, cov, 100)).covariance() for _ in range(30)]
    assert np.mean(np.abs(changes(found)).max(axis=1) < 1e-9) > 0.5
    assert np.sqrt(np.mean(changes(found) ** 2)) < 0.1
    assert np.sqrt(np.mean(changes(of_draws) ** 2)) > 0.15


def test_noise_of_heavy_tails_leaves_the_fit(rng):
    """Student-t draws with 5 degrees of freedom: fourth moments are 3 times those of a normal.

    A fit that knows of them stayed in 6,000 of 6,000 cases, so more than 5 changes in 100 come once
    in 10¹⁰. The control, which does not, stays in 68 %: more than 90 of 100 once in 10⁷.
    """
    cov, stays = 5 / 3 * np.eye(3), {1.0: 0, 7.0: 0}
    for _ in range(100):
        moments = Moments.of(np.repeat(rng.standard_t(5, size=(100, 3)), 5, axis=0))
        for noise in stays:
            found = shrunk_covariance(moments, Fit(np.zeros(3), cov, noise))
            stays[noise] += np.allclose(found, cov, rtol=1e-9)
    assert stays[7.0] >= 95
    assert stays[1.0] <= 90


def test_fits_travel(rng):
    full = Fit(rng.normal(size=2), a_covariance(rng, 2), 3.5, 700.0)
    fits = [None, full, Fit(np.zeros(2), np.eye(2))]
    found = fits_among(as_arrays(fits), [4, 7, 9])
    assert sorted(found) == [7, 9]
    assert (found[7].noise, found[9].noise) == (3.5, 1.0)
    assert (found[7].worth, found[9].worth) == (700.0, 0.0)
    np.testing.assert_array_equal(found[7].covariance, full.covariance)
    np.testing.assert_array_equal(found[7].mean, full.mean)


def test_no_draws_or_one_give_the_fit(rng):
    fit = Fit(np.zeros(3), a_covariance(rng, 3))
    for moments in (Moments.none(3), Moments.of(rng.normal(size=(1, 3)))):
        np.testing.assert_array_equal(shrunk_covariance(moments, fit), fit.covariance)
        found = shrunk_covariances([moments, moments], [fit, fit])
        np.testing.assert_array_equal(found, [fit.covariance] * 2)


def test_a_shard_of_which_nothing_is_known_takes_the_mean_of_the_others(rng):
    cov = a_covariance(rng, 3)
    one, many = Moments.of(rng.normal(size=(1, 3))), Moments.of(some_draws(rng, cov, 50))
    covs = shrunk_covariances([many, one, many], [Fit(np.zeros(3), cov), None, None])
    np.testing.assert_allclose(covs[1], (covs[0] + covs[2]) / 2)
    np.testing.assert_array_equal(shrunk_covariances([one, one], [None, None]), [np.eye(3)] * 2)


def test_a_scale_common_to_all_fits_is_common_to_shards_with_few_draws(rng):
    """The scale of 2,000 draws in 4 dimensions has an sd of √(2 / 8000): 20 % are 12 of these."""
    cov = a_covariance(rng, 4)
    fit = Fit(np.zeros(4), cov / 5)
    many = [Moments.of(some_draws(rng, cov, 2000)) for _ in range(3)]
    covs = shrunk_covariances([*many, Moments.none(4)], [fit] * 4)
    np.testing.assert_allclose(covs[3], cov, rtol=0.2, atol=0.0)


def test_shards_with_heavy_tails_do_not_set_the_common_scale(rng):
    """Two of three are far out; the third, which can be told, is as wide as its fit."""
    cov = a_covariance(rng, 4)
    heavy, light = Fit(np.zeros(4), cov, noise=100.0), Fit(np.zeros(4), cov)
    exact = Moments(500, np.zeros(4), 500 * cov)
    far = Moments(500, np.zeros(4), 500 * 9 * cov)
    covs = shrunk_covariances([far, far, exact], [heavy, heavy, light])
    np.testing.assert_allclose(covs, [cov] * 3, rtol=0.01)
    believed = shrunk_covariances([far, far, exact], [light] * 3)
    np.testing.assert_allclose(believed[0], 9 * cov, rtol=0.01)


def test_many_counts_at_once_are_one_by_one(rng):
    cov, fitted = a_covariance(rng, 3), a_covariance(rng, 3)
    draws = some_draws(rng, cov, 40)
    running, _ = running_covariances(draws)
    at_once = shrink_to_fit(running[1:], np.arange(2, 41), fitted)
    alone = [shrunk_covariance(Moments.of(draws[:n]), Fit(cov, fitted)) for n in range(2, 41)]
    np.testing.assert_allclose(at_once, alone, rtol=1e-9)
    without = shrink_to_diagonal(running[1:], np.arange(2, 41))
    alone = [shrunk_covariance(Moments.of(draws[:n]), None) for n in range(2, 41)]
    np.testing.assert_allclose(without, alone, rtol=1e-9)


def test_a_constant_coordinate_without_a_fit_is_named(rng):
    draws = rng.normal(size=(20, 3))
    good, draws[:, 1] = Moments.of(draws), 4.0
    with pytest.raises(
        BadInputError, match=r"draws of shard 1 are equal along coordinates \[1\].*Draw more"
    ):
        shrunk_covariances([good, Moments.of(draws)], [None, None])
    with pytest.raises(BadInputError, match="the shard are equal along"):
        shrunk_covariance(Moments.of(draws), None)


def test_what_is_not_a_number_or_a_covariance_is_named(rng):
    good, fit = Moments.of(rng.normal(size=(20, 2))), Fit(np.zeros(2), np.eye(2))
    bad = Moments(20, np.zeros(2), np.full((2, 2), np.nan))
    with pytest.raises(BadInputError, match="draws of shard 1 contain NaN"):
        shrunk_covariances([good, bad], [fit, None])
    for wrong in (np.ones((2, 2)), np.full((2, 2), np.nan), np.diag([1.0, np.inf])):
        with pytest.raises(
            BadInputError, match="fit to shard 0 is not finite and positive definite"
        ):
            shrunk_covariances([good, good], [Fit(np.zeros(2), wrong), fit])


@pytest.mark.parametrize("case", ["kidscore_interaction", "wells_dae_inter", "capture_Mt"])
def test_weights_of_real_posteriors_are_right_from_500_draws(case, seed, tmp_path):
    """Errors through weights: at most a third of those with covariances of draws.

    The control, without fits, does not come that far.
    """
    blocks, fits = [], []
    for s, target in enumerate(targets(case, 4, tmp_path / "shards")):
        sampler, chain = EllipseSampler(warns=False), ChainStream(Streams(seed), s, 0)
        state = sampler.warm_up(target, chain)
        blocks.append(sampler.draw(target, state, chain, 2000)[0].reshape(4, 500, -1))
        fits.append(fit_of(state))
    moments = [[Moments.of(block) for block in shard] for shard in zip(*blocks, strict=True)]
    means = np.stack(blocks, axis=1).mean(axis=2)
    true_weights = consensus_weights(subposterior_moments(case)[1])

    def error(covs):
        gaps = np.einsum("bsij,bsj->bi", consensus_weights(np.stack(covs)) - true_weights, means)
        return np.sqrt(np.mean((gaps / REFERENCE[case]["sd"]) ** 2))

    of_draws = error([[of.covariance() for of in shards] for shards in moments])
    assert error([shrunk_covariances(shards, fits) for shards in moments]) < of_draws / 3
    assert error([shrunk_covariances(shards, [None] * 4) for shards in moments]) > of_draws / 3


@pytest.mark.parametrize("name", ["ellipse", "hmc", "random_walk", "auto"])
def test_samplers_keep_their_fit(name, seed):
    target = Target(LogisticWithGradient(3), logistic_rows(60, 3), 4)
    state = make_sampler(name).warm_up(target, stream(seed))
    fit, found = laplace_fit(target), fit_of(state)
    np.testing.assert_allclose(found.covariance, fit.cov, rtol=0.01, atol=1e-4)
    away = np.linalg.solve(fit.lower, found.mean - fit.mode)
    assert np.abs(away).max() < (0.3 if found.worth else 0.01)  # a mean is not the mode


class StandardNormal(Density):
    def log_prior_and_gradient(self, x):
        return 0.0, np.zeros(self.dim)

    def log_likelihood_and_gradient(self, x, shard):
        return self.log_density(x), -x


@pytest.mark.parametrize("name", ["ellipse", "nuts", "hmc", "random_walk"])
def test_a_standard_normal_has_a_fit(name, seed):
    target = Target(StandardNormal(2, lambda x: -float(x @ x) / 2), {}, 1)
    found = fit_of(make_sampler(name).warm_up(target, stream(seed)))
    np.testing.assert_allclose(found.covariance, np.eye(2), atol=1e-3)


def test_states_without_a_fit():
    place = {"mean": np.zeros(2), "lower": np.eye(2), "has_mode": np.array(False)}
    assert fit_of({"index": np.array(0)}) is None
    assert fit_of({**place, "scale": np.array(1.0)}) is None  # `random_walk`
    assert fit_of({**place, "inverse_masses": np.ones(2)}) is None  # `hmc`
    adapted = fit_of({**place, "inverse_masses": np.array([4.0, 9.0])})  # `nuts`
    np.testing.assert_array_equal(adapted.covariance, np.diag([4.0, 9.0]))
