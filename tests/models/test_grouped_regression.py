"""Regressions with groups: integrated likelihoods, gradients, priors, local moments and draws."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest, norm
from tests.helpers.grouped_rows import FAMILIES, brute_force, case

from quorate.errors import BadInputError
from quorate.models import linear, logistic
from quorate.models.groups.accuracy import Effort
from quorate.models.groups.levels import Level

BOTH = [(family, q) for family in FAMILIES for q in (1, 2)]


def points_around(truth, rng, n=4):
    """The truth, and points about as far from it as draws of the posterior are."""
    return np.vstack([truth, truth + 0.15 * rng.normal(size=(n - 1, len(truth)))])


@pytest.mark.parametrize(("family", "q"), BOTH)
def test_the_integrated_likelihood_is_that_of_brute_force(family, q, seed):
    rng = np.random.default_rng([seed, q])
    simulated = case(family, q, rng)
    model, shard = simulated.model, simulated.shard
    points = points_around(simulated.truth, rng)
    exact = np.array([brute_force(simulated, x) for x in points])
    error = model.log_likelihood_many(points, shard) - exact
    # A constant is no error of the posterior; with few nodes there may be one.
    assert np.abs(error).max() < (1e-6 if family == "linear" else 1.0)
    assert np.ptp(error) < 0.2
    if family != "linear":
        kept = model._kept(shard)
        finer = replace(kept, effort=Effort(15, 6)).log_likelihoods(model.taken_apart(points))
        assert np.abs(finer - exact).max() < 0.02  # the grid has an error too


@pytest.mark.parametrize(("family", "q"), BOTH)
def test_gradients_are_those_of_the_integral(family, q, seed):
    rng = np.random.default_rng([seed, q])
    simulated = case(family, q, rng)
    model, shard, x = simulated.model, simulated.shard, simulated.truth
    kept = model._kept(shard)
    if family != "linear":  # nodes so many that where they lie does not matter
        kept = replace(kept, effort=Effort(17, 6))

    def values(points):
        return kept.log_likelihoods(model.taken_apart(points))

    step = 1e-5 * np.eye(model.dim)
    expected = (values(x + step) - values(x - step)) / 2e-5
    _, slopes = kept.log_likelihoods_and_gradients(model.taken_apart(x[None]))
    np.testing.assert_allclose(model.gradients(x[None], slopes)[0], expected, atol=2e-3)
    prior = model.log_prior_and_gradient(x)[1]
    differences = (model.log_prior_many(x + step) - model.log_prior_many(x - step)) / 2e-5
    np.testing.assert_allclose(prior, differences, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_point_and_many_points_agree(family, seed):
    rng = np.random.default_rng(seed)
    simulated = case(family, 2, rng)
    points = points_around(simulated.truth, rng, n=20)
    many = simulated.model.log_likelihood_many(points, simulated.shard)
    each = [simulated.model.log_likelihood(x, simulated.shard) for x in points]
    np.testing.assert_allclose(many, each, rtol=1e-12)
    values, _ = simulated.model.log_likelihood_and_gradient_many(points, simulated.shard)
    np.testing.assert_allclose(values, many, rtol=1e-12)


def test_equal_rows_count_as_one(seed):
    rng = np.random.default_rng(seed)
    n = 2000
    group, x = rng.integers(0, 40, n), rng.integers(0, 2, n).astype(float)
    shard = {
        "X": np.column_stack([np.ones(n), x]),
        "y": (rng.random(n) < 0.3).astype(float),
        "group": group,
    }
    model = logistic(["Intercept", "x"], groups="g")
    for array in shard.values():
        array.flags.writeable = False
    kept = model._kept(shard)
    assert sum((bundle.counts > 0).sum() for bundle in kept.rows.bundles) <= 80
    noisy = {**shard, "X": shard["X"] + 1e-13 * rng.normal(size=(n, 2))}
    points = rng.normal(scale=0.3, size=(5, 3))
    apart = replace(model._prepare(noisy), effort=Effort(15, 6))
    merged = replace(kept, effort=Effort(15, 6))
    np.testing.assert_allclose(
        merged.log_likelihoods(model.taken_apart(points)),
        apart.log_likelihoods(model.taken_apart(points)),
        rtol=1e-8,
    )


def test_many_small_binary_groups_need_more_than_one_node(seed):
    """The control: plain Laplace, one node, is off by more than is tolerated."""
    rng = np.random.default_rng(seed)
    n_groups = 1500
    group = np.repeat(np.arange(n_groups), 3)
    local = 1.5 * rng.normal(size=n_groups)[group]
    y = (rng.random(len(group)) < 1 / (1 + np.exp(-local))).astype(float)
    shard = {"X": np.ones((len(group), 1)), "y": y, "group": group}
    for array in shard.values():
        array.flags.writeable = False
    model = logistic(["Intercept"], groups="g")
    kept = model._kept(shard)
    near = np.array([[0.0, np.log(1.5)], [0.0, np.log(1.5) + 0.15], [0.2, np.log(1.5) - 0.15]])

    def values(effort):
        return replace(kept, effort=effort).log_likelihoods(model.taken_apart(near))

    exact = values(Effort(41, 8))
    chosen, laplace = (values(effort) - exact for effort in (kept.effort, Effort(1, 8)))
    assert np.ptp(chosen) < 0.2
    assert np.ptp(laplace) > 0.5


def test_the_prior_of_correlations_is_a_density(seed):
    rho_is = 0.3
    for lkj in (1.0, 2.5):
        model = linear(["a"], groups="g", varying=["Intercept", "x"], lkj=lkj)
        (covariance,) = model.covariances

        def density(x, covariance=covariance):
            log_prior, _ = covariance.log_prior_and_gradient(np.array([[0.0, 0.0, x]]))
            base, _ = covariance.log_prior_and_gradient(np.array([[0.0, 0.0, 0.0]]))
            return np.exp(log_prior[0] - base[0])

        total = quad(density, -12, 12)[0]
        # LKJ of a 2 × 2 matrix: density of ρ proportional to (1 - ρ²)^(η - 1)
        reference = quad(lambda r, lkj=lkj: (1 - r**2) ** (lkj - 1), -1, 1)[0]
        jacobian = (1 - rho_is**2) ** (lkj - 1) * (1 - rho_is**2)
        np.testing.assert_allclose(density(np.arctanh(rho_is)) / total, jacobian / reference)
        whole = covariance.log_prior_and_gradient(np.zeros((1, 3)))[0]
        sds = sum(prior.log_density(np.ones(1))[0][0] for prior in covariance.sd_priors)
        np.testing.assert_allclose(whole[0] - sds, -np.log(total))


@pytest.mark.parametrize(("family", "q"), BOTH)
def test_draws_of_groups_have_the_moments_of_groups(family, q, seed):
    """False alarms: 1e-6, over groups, coefficients and both moments."""
    rng = np.random.default_rng([seed, q])
    simulated = case(family, q, rng)
    model, shard, n = simulated.model, simulated.shard, 4000
    points = np.repeat(simulated.truth[None], n, axis=0)
    moments = model.local_moments(points[:1], shard)["g"]
    mean = moments.centres + moments.sums[0]
    var = moments.sums[1] - moments.sums[0] ** 2
    groups = np.array([17, 3, 8])

    def uniforms(level, codes, width):
        return rng.random((n, len(codes), width))

    codes, draws = model.local_draws(points, shard, groups, uniforms)["g"]
    assert (codes == groups).all()
    limit = norm.isf(1e-6 / (4 * draws[0].size))
    z = (draws.mean(axis=0) - mean[groups]) / np.sqrt(var[groups] / n)
    # The moments are those of the nodes: their own error is within a hundredth of an sd.
    assert np.abs(z).max() < limit + 0.01 * np.sqrt(n)
    ratio = draws.var(axis=0) / var[groups] - 1
    kurtosis = 2.0 + 1.0  # of posteriors that are nearly normal, with some reserve
    assert np.abs(ratio).max() < limit * np.sqrt(kurtosis / n) + 0.05


def test_local_moments_of_linear_models_are_those_of_a_gaussian_posterior(seed):
    rng = np.random.default_rng(seed)
    simulated = case("linear", 2, rng)
    x, shard = simulated.truth, simulated.shard
    moments = simulated.model.local_moments(x[None], shard)["g"]
    sigma, sds = np.exp(x[2]), np.exp(x[3:5])
    for code in (0, 11):
        rows = shard["group"] == code
        z, r = shard["Z"][rows], shard["y"][rows] - shard["X"][rows] @ x[:2]
        cov = np.linalg.inv(z.T @ z / sigma**2 + np.diag(sds**-2.0))
        mean = cov @ z.T @ r / sigma**2
        np.testing.assert_allclose(moments.sums[0, code], mean)
        np.testing.assert_allclose(moments.sums[1, code], mean**2 + np.diag(cov))


def test_draws_of_a_skewed_group_are_from_its_posterior(seed):
    """Kolmogorov–Smirnov at a false-alarm rate of 1e-6; the control is the normal distribution."""
    rng = np.random.default_rng(seed)
    shard = {
        "X": np.ones((40, 1)),
        "y": np.concatenate([np.zeros(3), np.ones(37)]),
        "group": np.concatenate([np.zeros(3), np.repeat([1, 2, 3, 4], [9, 9, 9, 10])]).astype(int),
    }
    for array in shard.values():
        array.flags.writeable = False
    model = logistic(["Intercept"], groups="g")
    x, n = np.array([1.0, np.log(3.0)]), 6000
    points = np.repeat(x[None], n, axis=0)
    found = model.local_draws(
        points, shard, np.array([0]), lambda level, codes, width: rng.random((n, 1, width))
    )
    draws = found["g"][1][:, 0, 0]
    grid = np.linspace(-20, 12, 6001)
    log_density = norm.logpdf(grid, 0, 3.0) - 3 * np.logaddexp(0, 1.0 + grid)
    cdf = np.cumsum(np.exp(log_density - log_density.max()))
    cdf /= cdf[-1]
    assert kstest(draws, lambda z: np.interp(z, grid, cdf)).pvalue > 1e-6
    normal = norm(draws.mean(), draws.std())
    assert kstest(draws, normal.cdf).pvalue < 1e-6


def test_a_point_far_out_spoils_no_other(seed):
    rng = np.random.default_rng(seed)
    for family in FAMILIES:
        simulated = case(family, 2, rng)
        far = np.full(simulated.model.dim, 900.0)
        points = np.vstack([simulated.truth, far, -far, simulated.truth])
        values = simulated.model.log_likelihood_many(points, simulated.shard)
        alone = simulated.model.log_likelihood_many(simulated.truth[None], simulated.shard)
        np.testing.assert_allclose(values[[0, 3]], alone[0], rtol=1e-12)
        assert not (values[1:3] > values[0]).any()


@pytest.mark.parametrize(("family", "q"), BOTH)
def test_groups_that_do_not_differ_have_no_effect(family, q, seed):
    """However far the anchors are from 0, where all coefficients of groups then are."""
    simulated = case(family, q, np.random.default_rng([seed, q]))
    model, x = simulated.model, simulated.truth.copy()
    x[model.fixed.dim : model.fixed.dim + q] = -12.0
    expected = model.fixed.log_likelihood(x[: model.fixed.dim], simulated.shard)
    assert abs(model.log_likelihood(x, simulated.shard) - expected) < 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_points_far_out_are_not_better_than_the_truth(family, seed):
    simulated = case(family, 1, np.random.default_rng(seed))
    truth = simulated.truth
    far = np.vstack([truth, *(truth + shift * np.eye(len(truth)) for shift in (60, 300, 900))])
    values = simulated.model.log_likelihood_many(far, simulated.shard)
    assert not (values[1:] > values[0] + 20).any()


def test_names_follow_brms():
    model = linear(["Intercept", "x"], groups="county", varying=["Intercept", "x"])
    named = model.constrain(np.zeros((3, model.dim)))
    assert list(named) == [
        "Intercept",
        "x",
        "sigma",
        "sd_county__Intercept",
        "sd_county__x",
        "cor_county__Intercept__x",
    ]
    assert model.group_columns == "county"
    without = linear(["a"], groups="county", varying=["Intercept", "x"], lkj=None)
    assert without.dim == 4


def test_what_cannot_be_is_refused_in_words():
    with pytest.raises(BadInputError, match="may have 3"):
        logistic(["a"], groups="g", varying=list("abcd"))
    assert linear(["a"], groups="g", varying=list("abcd")).dim == 2 + 4 + 6
    with pytest.raises(BadInputError, match="lkj must be above 0"):
        logistic(["a"], groups="g", varying=["a", "b"], lkj=-1)
    with pytest.raises(BadInputError, match="No standard deviation named"):
        logistic(["a"], groups="g", sd_prior={"sd_h__Intercept": "half_normal(1)"})
    with pytest.raises(BadInputError, match="There are a, sd_g__Intercept"):
        logistic(["a"], groups="g", priors={"sd_h": "half_normal(1)"})
    model = logistic(["a"], groups=Level("g", ("Intercept", "x"), (2,)))
    rows = {"X": np.ones((2, 1)), "y": np.array([0.0, 1.0])}
    with pytest.raises(BadInputError, match="by='group:g'"):
        model.log_likelihood(np.zeros(4), rows)
    with pytest.raises(BadInputError, match=r"Z has shape \(2, 1\)"):
        model.log_likelihood(np.zeros(4), {**rows, "group": np.arange(2), "Z": np.ones((2, 1))})
