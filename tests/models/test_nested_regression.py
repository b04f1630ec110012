"""Regressions with groups within groups: integrated likelihoods, gradients, moments and draws."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm
from tests.helpers.grouped_rows import FAMILIES, NAMES
from tests.helpers.nested_rows import levels, nested_brute_force, nested_case

from quorate.errors import BadInputError
from quorate.models import linear, logistic
from quorate.models.groups.accuracy import Effort
from quorate.models.groups.levels import Level
from quorate.models.groups.local import numbers_needed
from quorate.models.groups.regressions import nested

BY_NODES = [*((family, 1, 1) for family in FAMILIES if family != "linear"), ("logistic", 2, 1)]
BY_NODES += [("poisson", 1, 2)]
CLOSED = [("linear", q, q_inner) for q in (1, 2) for q_inner in (1, 2)]
FINE = Effort(15, 6)


def fine(model, shard):
    """The prepared shard, with so many nodes that where they lie does not matter."""
    kept = model._kept(shard)
    return kept.adapted(FINE) if hasattr(kept, "effort") else kept


def values(model, shard, points):
    return fine(model, shard).log_likelihoods(model.taken_apart(np.atleast_2d(points)))


@pytest.mark.parametrize(("family", "q", "q_inner"), BY_NODES)
def test_the_integral_and_means_are_those_of_brute_force(family, q, q_inner, seed):
    rng = np.random.default_rng([seed, q, q_inner])
    case = nested_case(family, q, q_inner, rng)
    model, shard = case.model, case.shard
    point = case.truth + 0.15 * rng.normal(size=model.dim)
    exact, *means = nested_brute_force(case, point)
    assert abs(model.log_likelihood(point, shard) - exact) < 0.2
    assert abs(values(model, shard, point)[0] - exact) < 2e-3
    found = fine(model, shard).moments(model.taken_apart(point[None]))
    for of, expected in zip(found, means, strict=True):
        np.testing.assert_allclose(of.centres + of.sums[0], expected, atol=2e-3)


@pytest.mark.parametrize(("family", "q", "q_inner"), [*BY_NODES, *CLOSED])
def test_gradients_are_those_of_the_integral(family, q, q_inner, seed):
    rng = np.random.default_rng([seed, q, q_inner])
    case = nested_case(family, q, q_inner, rng)
    model, shard, x = case.model, case.shard, case.truth
    step = 1e-5 * np.eye(model.dim)
    expected = (values(model, shard, x + step) - values(model, shard, x - step)) / 2e-5
    found, slopes = fine(model, shard).log_likelihoods_and_gradients(model.taken_apart(x[None]))
    np.testing.assert_allclose(model.gradients(x[None], slopes)[0], expected, atol=5e-3)
    np.testing.assert_allclose(found, values(model, shard, x), rtol=1e-12)
    prior = model.log_prior_and_gradient(x)[1]
    differences = (model.log_prior_many(x + step) - model.log_prior_many(x - step)) / 2e-5
    np.testing.assert_allclose(prior, differences, atol=1e-6)


@pytest.mark.parametrize(("family", "q", "q_inner"), CLOSED)
def test_linear_models_are_multivariate_normal(family, q, q_inner, seed):
    rng = np.random.default_rng([seed, q, q_inner])
    case = nested_case(family, q, q_inner, rng)
    shard, x = case.shard, case.truth + 0.3 * rng.normal(size=len(case.truth))
    outer, inner = (covs[0] for covs in case.model.taken_apart(x[None]).covs)
    same = [shard[name][:, None] == shard[name] for name in ("group", "inner")]
    cov = np.exp(2 * x[2]) * np.eye(len(shard["y"]))
    cov += same[0] * (shard["Z"] @ outer @ shard["Z"].T)
    cov += same[1] * (shard["Z_inner"] @ inner @ shard["Z_inner"].T)
    mean = shard["X"] @ x[:2]
    expected = multivariate_normal(mean, cov).logpdf(shard["y"])
    np.testing.assert_allclose(case.model.log_likelihood(x, shard), expected, rtol=1e-10)
    found = case.model.local_moments(x[None], shard)
    levels_are = [("a", "group", "Z", outer), ("a:b", "inner", "Z_inner", inner)]
    for level, codes, varying, prior in levels_are:
        for code in (0, 3):
            cross = prior @ (shard[varying] * (shard[codes] == code)[:, None]).T
            expected = cross @ np.linalg.solve(cov, shard["y"] - mean)
            left = np.diag(prior - cross @ np.linalg.solve(cov, cross.T))
            np.testing.assert_allclose(found[level].sums[0, code], expected, atol=1e-9)
            second = found[level].sums[1, code]
            np.testing.assert_allclose(second, expected**2 + left, rtol=1e-8)


@pytest.mark.parametrize("family", FAMILIES)
def test_without_inner_variance_there_is_one_level(family, seed):
    case = nested_case(family, 1, 1, np.random.default_rng(seed))
    one = FAMILIES[family](NAMES, groups="a")
    x = np.append(case.truth[:-1], -12.0)
    expected = values(one, case.shard, x[:-1])
    np.testing.assert_allclose(values(case.model, case.shard, x), expected, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_variances_add_where_each_group_has_one_group_within_it(family, seed):
    rng = np.random.default_rng(seed)
    case = nested_case(family, 1, 1, rng)
    shard = case.shard | {"inner": case.shard["group"]}
    one = FAMILIES[family](NAMES, groups="a")
    x = case.truth
    together = np.append(x[:-2], 0.5 * np.log(np.exp(2 * x[-2:]).sum()))
    atol = 1e-9 if family == "linear" else 1e-3
    np.testing.assert_allclose(
        values(case.model, shard, x), values(one, shard, together), atol=atol
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_points_do_not_disturb_each_other(family, seed):
    rng = np.random.default_rng(seed)
    case = nested_case(family, 1, 1, rng)
    far = np.full(case.model.dim, 900.0)
    points = case.truth + 0.15 * rng.normal(size=(9, case.model.dim))
    all_points = np.vstack([points[:4], far, -far, points[4:]])
    many = case.model.log_likelihood_many(all_points, case.shard)
    near, beyond = np.delete(many, [4, 5]), many[4:6]
    each = [case.model.log_likelihood(x, case.shard) for x in points]
    np.testing.assert_allclose(near, each, rtol=1e-11)
    assert not (beyond > near.max()).any()


def test_blocks_of_outer_groups_change_nothing(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    case = nested_case("logistic", 1, 1, rng, n_outer=9, n_inner=30, n=200)
    model, shard = case.model, case.shard
    whole = fine(model, shard)
    monkeypatch.setattr(nested, "_ROWS", 40)
    monkeypatch.setattr(nested, "_ENTRIES", 4000)
    cut = model._prepare(shard).adapted(FINE)
    assert len(whole.blocks) == 1
    assert len(cut.blocks) > 2
    points = model.taken_apart(case.truth + 0.1 * rng.normal(size=(5, model.dim)))
    np.testing.assert_allclose(
        whole.log_likelihoods(points), cut.log_likelihoods(points), rtol=1e-9
    )
    one, other = (of.log_likelihoods_and_gradients(points)[1] for of in (whole, cut))
    for first, second in zip(one.covs, other.covs, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-6)
    for first, second in zip(whole.moments(points), cut.moments(points), strict=True):
        np.testing.assert_array_equal(first.groups, second.groups)
        np.testing.assert_allclose(
            *((of.centres + of.sums[0] / 5) for of in (first, second)), atol=1e-4
        )
    uniforms = [rng.random((5, 30, numbers_needed(1))) for _ in range(2)]
    asked = np.array([1, 4, 8])
    found = [of.draws(points, asked, lambda i, codes: uniforms[i][:, codes]) for of in (whole, cut)]
    for (codes, draws), (again, same) in zip(*found, strict=True):
        np.testing.assert_array_equal(codes, again)
        np.testing.assert_allclose(draws, same, atol=1e-4)


@pytest.mark.parametrize("family", ["linear", "logistic", "poisson"])
def test_draws_have_the_moments_of_both_levels(family, seed):
    """False alarms: 1e-6, over groups and both moments."""
    rng = np.random.default_rng(seed)
    case = nested_case(family, 1, 1, rng)
    model, shard, n = case.model, case.shard, 3000
    points = np.repeat(case.truth[None], n, axis=0)
    moments = model.local_moments(points[:1], shard)

    def uniforms(level, codes, width):
        return rng.random((n, len(codes), width))

    drawn = model.local_draws(points, shard, np.array([2, 0]), uniforms)
    assert set(drawn["a"][0]) == {0, 2}
    within = np.unique(shard["inner"][np.isin(shard["group"], [0, 2])])
    np.testing.assert_array_equal(np.sort(drawn["a:b"][0]), within)
    limit = norm.isf(1e-6 / (8 * len(within)))
    for level, (codes, draws) in drawn.items():
        first, second, _ = moments[level].sums[:, codes]
        var = second - first**2
        mean = moments[level].centres[codes] + first
        z = (draws.mean(axis=0) - mean) / np.sqrt(var / n)
        # The moments are those of the nodes: their own error is within a hundredth of an sd.
        assert np.abs(z).max() < limit + 0.01 * np.sqrt(n)
        ratio = draws.var(axis=0) / var - 1
        assert np.abs(ratio).max() < limit * np.sqrt(3.0 / n) + 0.05


def test_draws_of_both_levels_are_joint(seed):
    """Of an outer and an inner intercept the rows know mostly the sum.

    False alarms: 1e-6. Draws of the two on their own would have a correlation of 0.
    """
    rng = np.random.default_rng(seed)
    for family in ("linear", "logistic"):
        case = nested_case(family, 1, 1, rng, n_outer=1, n_inner=1, n=60)
        points = np.repeat(case.truth[None], 3000, axis=0)
        drawn = case.model.local_draws(
            points, case.shard, np.array([0]), lambda _, codes, k: rng.random((3000, 1, k))
        )
        u, v = (drawn[level][1][:, 0, 0] for level in ("a", "a:b"))
        # exactly, u + v ~ N(m, s²) and v given u + v has mean (u + v) τ_b² / (τ_a² + τ_b²)
        share = 0.5**2 / (0.7**2 + 0.5**2)
        rest = v - share * (u + v)
        sd = np.sqrt(0.7**2 * share)
        assert abs(rest.mean()) < norm.isf(1e-7) * sd / np.sqrt(3000)
        assert abs(rest.var() / sd**2 - 1) < norm.isf(1e-7) * np.sqrt(2 / 3000) * 1.1
        assert abs(np.corrcoef(rest, u + v)[0, 1]) < norm.isf(1e-7) / np.sqrt(3000)
        assert np.corrcoef(u, v)[0, 1] < -0.5


def test_names_and_columns_follow_the_levels():
    model = linear(NAMES, groups=levels(2, 1), sd_prior={"sd_a:b__Intercept": "half_normal(1)"})
    named = model.constrain(np.zeros((3, model.dim)))
    assert list(named)[3:] == [
        "sd_a__Intercept",
        "sd_a__x",
        "cor_a__Intercept__x",
        "sd_a:b__Intercept",
    ]
    assert model.group_columns == "a/b"
    assert [level.name for level in model.levels] == ["a", "a:b"]


def test_what_cannot_be_is_refused_in_words(seed):
    with pytest.raises(BadInputError, match="a and of a:b together have 4 coefficients"):
        logistic(NAMES, groups=levels(2, 2))
    with pytest.raises(BadInputError, match="Name the inner level a:b"):
        logistic(NAMES, groups=[Level("a", ("Intercept",), (1,)), Level("b", ("Intercept",), (1,))])
    with pytest.raises(BadInputError, match="two levels that nest, not a, a:b, a:b:c"):
        logistic(NAMES, groups=[*levels(1, 1), Level("a:b:c", ("Intercept",), (1,))])
    case = nested_case("logistic", 1, 1, np.random.default_rng(seed))
    without = {name: array for name, array in case.shard.items() if name != "inner"}
    with pytest.raises(BadInputError, match="by='group:a/b'"):
        case.model.log_likelihood(case.truth, without)
    crossed = case.shard | {"inner": np.arange(len(case.shard["y"])) % 2}
    with pytest.raises(BadInputError, match="lie in several groups"):
        case.model.log_likelihood(case.truth, crossed)
