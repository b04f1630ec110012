"""Weights, trials and offsets of rows, and the family student, with and without groups."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from quorate.errors import BadInputError
from quorate.models import linear, logistic, negative_binomial, poisson, regression, student
from quorate.models.groups.accuracy import Effort
from quorate.models.groups.levels import Level
from quorate.models.regressions.families import Linear

FAMILIES = {
    "linear": linear,
    "logistic": logistic,
    "poisson": poisson,
    "negative_binomial": negative_binomial,
    "student": student,
}
N, P = 60, 3


def shard_of(family, rng, n=N):
    columns = np.column_stack([np.ones(n), rng.integers(0, 2, n), rng.normal(size=n)])
    eta = columns @ [0.3, -0.5, 0.4]
    response = {
        "linear": lambda: eta + rng.normal(size=n),
        "student": lambda: eta + rng.standard_t(3, n),
        "logistic": lambda: (rng.uniform(size=n) < expit(eta)).astype(float),
        "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
        "negative_binomial": lambda: rng.poisson(np.exp(eta) * rng.gamma(2, 0.5, n)).astype(float),
    }[family]()
    return {"X": columns, "y": response}


def repeated(shard, times):
    return {name: np.repeat(array, times, axis=0) for name, array in shard.items()}


def values(model, shard, points):
    """The four ways to evaluate a log-likelihood, which must agree."""
    many, slopes = model.log_likelihood_and_gradient_many(points, shard)
    one = [model.log_likelihood_and_gradient(x, shard) for x in points]
    np.testing.assert_allclose([value for value, _ in one], many, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose([slope for _, slope in one], slopes, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(model.log_likelihood_many(points, shard), many, rtol=1e-12)
    np.testing.assert_allclose(
        [model.log_likelihood(x, shard) for x in points], many, rtol=1e-9, atol=1e-9
    )
    return many, slopes


@pytest.mark.parametrize("family", FAMILIES)
def test_a_whole_weight_is_as_many_equal_rows(family, rng):
    shard, times = shard_of(family, rng), rng.integers(0, 4, N)
    model = FAMILIES[family](P)
    points = 0.5 * rng.normal(size=(4, model.dim))
    weighted = shard | {"weights": times.astype(float)}
    for found, expected in zip(
        values(model, weighted, points), values(model, repeated(shard, times), points), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-8)
    assert not np.allclose(values(model, shard, points)[0], values(model, weighted, points)[0])


@pytest.mark.parametrize("family", FAMILIES)
def test_an_offset_is_a_column_whose_coefficient_is_1(family, rng):
    shard, offset = shard_of(family, rng), rng.normal(size=N)
    model, wider = FAMILIES[family](P), FAMILIES[family](P + 1)
    points = 0.5 * rng.normal(size=(4, model.dim))
    with_one = np.insert(points, P, 1.0, axis=1)
    value, slope = values(model, shard | {"offset": offset}, points)
    expected, slopes = values(wider, shard | {"X": np.column_stack([shard["X"], offset])}, with_one)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    np.testing.assert_allclose(slope, np.delete(slopes, P, axis=1), rtol=1e-8, atol=1e-8)


def binomial_rows(rng):
    shard = shard_of("logistic", rng)
    trials = rng.integers(0, 12, N).astype(float)
    return shard | {"trials": trials, "y": rng.binomial(trials.astype(int), 0.4).astype(float)}


def test_binomial_counts_have_the_density_of_scipy(rng):
    shard, model = binomial_rows(rng), logistic(P)
    shard |= {"weights": rng.uniform(0.2, 3, N), "offset": rng.normal(size=N)}
    points = rng.normal(size=(3, P))
    found, _ = values(model, shard, points)
    chances = expit(points @ shard["X"].T + shard["offset"])
    expected = stats.binom.logpmf(shard["y"], shard["trials"], chances) @ shard["weights"]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_student_has_the_density_of_scipy_for_all_degrees_of_freedom(rng):
    shard = shard_of("student", rng) | {"weights": rng.uniform(0.2, 3, N)}
    model = student(P)
    log_nu = np.log([0.05, 0.7, 3.0, 119.9, 120.1, 1e4, 1e9])
    points = np.column_stack([0.3 * rng.normal(size=(7, P + 1)), log_nu])
    found, _ = values(model, shard, points)
    z = shard["y"] - points[:, :P] @ shard["X"].T
    expected = stats.t.logpdf(z / np.exp(points[:, [P]]), np.exp(points[:, [P + 1]]))
    expected = (expected - points[:, [P]]) @ shard["weights"]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_those_of_differences(family, rng):
    shard = shard_of(family, rng)
    shard |= {"weights": rng.uniform(0, 2, N), "offset": 0.3 * rng.normal(size=N)}
    if family == "logistic":
        shard |= {"trials": shard["y"] + rng.integers(0, 4, N)}
    model = FAMILIES[family](P)
    x, step = 0.3 * rng.normal(size=model.dim), 1e-5
    gradient = model.log_likelihood_and_gradient(x, shard)[1] + model.log_prior_and_gradient(x)[1]
    differences = [
        sum(
            sign * (model.log_likelihood(x + sign * move, shard) + model.log_prior(x + sign * move))
            for sign in (1, -1)
        )
        / (2 * step)
        for move in step * np.eye(model.dim)
    ]
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-5)


# ---------------------------------------------------------------- with groups

GROUPS = (Level("shop", ("Intercept",), (1,)),)
NESTED = (*GROUPS, Level("shop:till", ("Intercept",), (1,)))


def near_the_mode(model, shard, rng):
    """Points of the posterior, for which the nodes of integrals are placed."""
    mode, cov = model.rough_fit(shard, 1.0)
    return mode + 0.5 * np.sqrt(np.diag(cov)) * rng.normal(size=(3, model.dim))


def finely(model, shard, points):
    """Values and gradients with nodes so many that where they lie does not matter."""
    kept = model._kept(shard)
    if model.family != Linear():
        kept = kept.adapted(Effort(17, 6))
    totals, slopes = kept.log_likelihoods_and_gradients(model.taken_apart(points))
    return totals, model.gradients(points, slopes)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-3)


def grouped_rows(family, rng, n=90):
    shard = shard_of(family, rng, n)
    inner = np.arange(n) // 6
    return shard | {"group": inner // 3, "inner": inner}


@pytest.mark.parametrize("levels", [GROUPS, NESTED], ids=["groups", "nested"])
@pytest.mark.parametrize("family", ["linear", "logistic", "poisson", "negative_binomial"])
def test_whole_weights_of_rows_of_groups(family, levels, rng):
    shard = grouped_rows(family, rng)
    times = rng.integers(1, 4, len(shard["y"]))
    model = FAMILIES[family](P, groups=levels)
    counted = shard | {"weights": times.astype(float)}
    points = near_the_mode(model, counted, rng)
    weighted = finely(model, counted, points)
    expected = finely(model, repeated(shard, times), points)
    assert_same(weighted, expected)
    unweighted, _ = finely(model, shard, points)
    assert np.abs(unweighted - weighted[0]).min() > 10


@pytest.mark.parametrize("levels", [GROUPS, NESTED], ids=["groups", "nested"])
@pytest.mark.parametrize("family", ["linear", "logistic", "poisson", "negative_binomial"])
def test_offsets_of_rows_of_groups(family, levels, rng):
    shard = grouped_rows(family, rng)
    offset = 0.5 * rng.normal(size=len(shard["y"]))
    model = FAMILIES[family](P, groups=levels)
    wider = FAMILIES[family](P + 1, groups=levels)
    points = near_the_mode(model, shard | {"offset": offset}, rng)
    found = finely(model, shard | {"offset": offset}, points)
    columns = np.column_stack([shard["X"], offset])
    value, slope = finely(wider, shard | {"X": columns}, np.insert(points, P, 1.0, axis=1))
    assert_same(found, (value, np.delete(slope, P, axis=1)))


@pytest.mark.parametrize("levels", [GROUPS, NESTED], ids=["groups", "nested"])
def test_trials_of_rows_of_groups_are_so_many_rows(levels, rng):
    shard = grouped_rows("logistic", rng)
    n = len(shard["y"])
    trials = rng.integers(1, 5, n)
    successes = rng.binomial(trials, 0.5)
    model = logistic(P, groups=levels)
    counts = {"trials": trials.astype(float), "y": successes.astype(float)}
    points = near_the_mode(model, shard | counts, rng)
    found, slopes = finely(model, shard | counts, points)
    single = repeated(shard, trials)
    single["y"] = np.concatenate(
        [np.arange(t) < k for t, k in zip(trials, successes, strict=True)]
    ).astype(float)
    expected, same = finely(model, single, points)
    ways = stats.binom.logpmf(successes, trials, 0.5).sum() + trials.sum() * np.log(2)
    assert_same((found, slopes), (expected + ways, same))


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"weights": np.full(N, -1.0)}, r"weights\[0\] is \[-1\.\].*0 or above"),
        ({"weights": np.ones(3)}, r"weights has shape \(3,\)"),
        ({"trials": np.full(N, 2.5)}, "whole number"),
        ({"trials": np.zeros(N), "y": np.ones(N)}, "more than the number of trials"),
        ({"offset": np.full(N, np.nan)}, "must be finite"),
    ],
)
def test_bad_rows_are_named(more, message, rng):
    shard = shard_of("logistic", rng) | more
    with pytest.raises(BadInputError, match=message):
        logistic(P).log_likelihood(np.zeros(P), shard)


@pytest.mark.parametrize("family", ["linear", "poisson", "negative_binomial", "student"])
def test_only_binomial_counts_have_trials(family, rng):
    shard = shard_of(family, rng) | {"trials": np.full(N, 9.0)}
    model = FAMILIES[family](P)
    with pytest.raises(BadInputError, match="Use the family binomial"):
        model.log_likelihood(np.zeros(model.dim), shard)


def test_families_by_name():
    assert regression(2, "gaussian") == linear(2)
    assert regression(2, "bernoulli") == regression(2, "binomial") == logistic(2)
    assert regression(2, "student", df_prior="gamma(3, 1)").names[-1] == "log(nu)"
    with pytest.raises(BadInputError, match=r"'weibull'.*student.*bambi has more"):
        regression(2, "weibull")
