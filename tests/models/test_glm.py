"""Generalised linear models: against scipy's densities, numerical gradients, and bad data."""

import pickle

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit

from quorate.errors import BadInputError
from quorate.models import linear, logistic, negative_binomial, poisson
from quorate.models.priors import parse
from quorate.models.regressions.families import distinct
from quorate.models.subposterior import Target


def numerical_gradient(function, x, step=1e-5):
    return np.array(
        [(function(x + step * e) - function(x - step * e)) / (2 * step) for e in np.eye(len(x))]
    )


def by_scipy(kind, x, shard):
    eta = shard["X"] @ x[:3]
    if kind is linear:
        return stats.norm(eta, np.exp(x[-1])).logpdf(shard["y"]).sum()
    if kind is logistic:
        return stats.bernoulli(expit(eta)).logpmf(shard["y"]).sum()
    if kind is poisson:
        return stats.poisson(np.exp(eta)).logpmf(shard["y"]).sum()
    phi = np.exp(x[-1])
    return stats.nbinom(phi, phi / (phi + np.exp(eta))).logpmf(shard["y"]).sum()


def shard_for(kind, rng, n=40):
    columns = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    if kind is linear:
        response = columns @ [1, 2, -1] + rng.standard_normal(n)
    elif kind is logistic:
        response = (rng.random(n) < 0.4).astype(float)
    else:
        response = rng.poisson(3, n).astype(float)
    return {"X": columns, "y": response}


KINDS = pytest.mark.parametrize("kind", [linear, logistic, poisson, negative_binomial])


@KINDS
def test_log_likelihoods_are_those_of_scipy(kind, rng):
    model, shard = kind(3), shard_for(kind, rng)
    for x in 0.5 * rng.standard_normal((5, model.dim)):
        expected = by_scipy(kind, x, shard)
        assert model.log_likelihood(x, shard) == pytest.approx(expected, rel=1e-11)


@KINDS
def test_rows_that_repeat_count_as_often_as_they_are_there(kind, rng):
    model, shard = kind(3), shard_for(kind, rng)
    again = rng.integers(40, size=400)
    responses = [shard_for(kind, rng)["y"] for _ in range(10)]
    repeated = {"X": shard["X"][again], "y": np.concatenate(responses)}
    for x in 0.5 * rng.standard_normal((5, model.dim)):
        value, gradient = model.log_likelihood_and_gradient(x, repeated)
        assert value == pytest.approx(by_scipy(kind, x, repeated), rel=1e-11)
        expected = numerical_gradient(lambda x: model.log_likelihood(x, repeated), x)
        np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-5)


def test_only_rows_that_are_equal_are_kept_as_one(rng):
    y = rng.random(60)
    grid = np.column_stack([np.ones(60), np.arange(60) % 4])
    columns, counts, sums = distinct(grid, y)
    assert len(columns) == 4
    np.testing.assert_array_equal(counts, 15)
    np.testing.assert_allclose(sums[columns[:, 1].astype(int).argsort()], y.reshape(15, 4).sum(0))
    hidden = np.column_stack([np.full(60, 1e20), np.arange(60.0)])  # all have one projection
    for all_differ in (hidden, rng.standard_normal((60, 2))):
        columns, counts, sums = distinct(all_differ, y)
        assert columns is all_differ
        assert sums is y
        np.testing.assert_array_equal(counts, 1)


@KINDS
def test_gradients_are_those_of_numerical_differentiation(kind, rng):
    scale = {"scale_prior": "gamma(2, 3)"} if kind in (linear, negative_binomial) else {}
    model = kind(3, "student_t(4, 0, 2.5)", priors={"beta[0]": "normal(1, 10)"}, **scale)
    shard = shard_for(kind, rng)
    for x in 0.5 * rng.standard_normal((5, model.dim)):
        value, gradient = model.log_likelihood_and_gradient(x, shard)
        assert value == pytest.approx(model.log_likelihood(x, shard), rel=1e-13)
        numerical = numerical_gradient(lambda at: model.log_likelihood(at, shard), x)
        np.testing.assert_allclose(gradient, numerical, rtol=1e-6, atol=1e-6)
        value, gradient = model.log_prior_and_gradient(x)
        assert value == model.log_prior(x)
        np.testing.assert_allclose(gradient, numerical_gradient(model.log_prior, x), atol=1e-8)


@KINDS
@pytest.mark.parametrize("n_shards", [2, 5])
def test_product_of_subposteriors_is_the_posterior(kind, n_shards, rng):
    model, whole = kind(3), shard_for(kind, rng)
    cuts = np.array_split(np.arange(40), n_shards)
    targets = [
        Target(model, {"X": whole["X"][cut], "y": whole["y"][cut]}, n_shards) for cut in cuts
    ]
    for x in 0.5 * rng.standard_normal((5, model.dim)):
        posterior = Target(model, whole, 1).log_density(x)
        assert sum(t.log_density(x) for t in targets) == pytest.approx(posterior, abs=1e-9)


@pytest.mark.parametrize("n", [1, 2, 200_000])
def test_linear_without_rows_kept(n, rng):
    """The triangle of few rows, and of more than are factorised at a time."""
    model = linear(3)
    shard = {"X": rng.standard_normal((n, 3)), "y": 1e6 + rng.standard_normal(n)}
    x = np.array([0.1, 0.2, 0.3, 13.0])
    assert model.log_likelihood(x, shard) == pytest.approx(by_scipy(linear, x, shard), rel=1e-11)


def test_linear_loses_no_digits_far_from_the_origin(rng):
    """With a control: sums of squares would."""
    columns = np.ones((1000, 1))
    response = 1e8 + rng.standard_normal(1000)
    x = np.array([1e8, 0.0])
    residual = response - 1e8
    expected = stats.norm.logpdf(residual).sum()
    value = linear(1).log_likelihood(x, {"X": columns, "y": response})
    assert value == pytest.approx(expected, rel=1e-6)
    naive = response @ response - 2e8 * response.sum() + 1000 * 1e16
    assert naive != pytest.approx(residual @ residual, rel=1e-3)


def test_far_out_nothing_is_nan(rng):
    for kind in (linear, logistic, poisson, negative_binomial):
        model, shard = kind(3), shard_for(kind, rng)
        for sign in (-1, 1):
            x = np.full(model.dim, sign * 400.0)
            assert model.log_likelihood(x, shard) < 0
            value, gradient = model.log_likelihood_and_gradient(x, shard)
            assert value == -np.inf or np.isfinite(gradient).all()
    confident = {"X": np.ones((2, 1)), "y": np.array([1.0, 0.0])}
    assert logistic(1).log_likelihood(np.array([1e4]), confident) == pytest.approx(-1e4)


def test_negative_binomial_tends_to_poisson(rng):
    shard = shard_for(poisson, rng)
    x = np.array([0.5, 0.1, -0.2])
    expected = poisson(3).log_likelihood(x, shard)
    for log_phi in (25.0, 50.0, 300.0):
        value, gradient = negative_binomial(3).log_likelihood_and_gradient(
            np.append(x, log_phi), shard
        )
        assert value == pytest.approx(expected, abs=1e-7)
        assert gradient[-1] == pytest.approx(0, abs=1e-7)


# ---------------------------------------------------------------- priors


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("normal(1, 2)", stats.norm(1, 2)),
        ("student_t(4, 1, 2.5)", stats.t(4, 1, 2.5)),
        ("cauchy(0, 2)", stats.cauchy(0, 2)),
        (" laplace( -1 , 2e0 ) ", stats.laplace(-1, 2)),
    ],
)
def test_priors_of_coefficients(words, expected, rng):
    values = rng.standard_normal(10)
    density, derivative = parse(words, "coefficient").log_density(values)
    np.testing.assert_allclose(density, expected.logpdf(values), rtol=1e-12)
    numerical = (expected.logpdf(values + 1e-6) - expected.logpdf(values - 1e-6)) / 2e-6
    np.testing.assert_allclose(derivative, numerical, atol=1e-7)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("half_normal(2)", stats.halfnorm(scale=2)),
        ("half_cauchy(2.5)", stats.halfcauchy(scale=2.5)),
        ("exponential(3)", stats.expon(scale=1 / 3)),
        ("gamma(2, 3)", stats.gamma(2, scale=1 / 3)),
        ("lognormal(1, 2)", stats.lognorm(2, scale=np.e)),
    ],
)
def test_priors_of_scales(words, expected):
    values = np.linspace(0.1, 5, 20)
    density, derivative = parse(words, "scale").log_density(values)
    np.testing.assert_allclose(density, expected.logpdf(values), rtol=1e-11)
    numerical = (expected.logpdf(values + 1e-6) - expected.logpdf(values - 1e-6)) / 2e-6
    np.testing.assert_allclose(derivative, numerical, atol=1e-6)


def test_half_student_t_is_normalised_on_the_log_scale():
    model = linear(1, "flat", scale_prior="half_student_t(4, 2)")
    total, _ = integrate.quad(lambda x: np.exp(model.log_prior(np.array([7.0, x]))), -30, 15)
    assert total == pytest.approx(1, abs=1e-6)


def test_flat_priors_leave_the_jacobian():
    model = linear(1, "flat", scale_prior="flat")
    assert model.log_prior(np.array([5.0, 2.0])) == 2
    assert model.log_prior_and_gradient(np.array([5.0, 2.0]))[1].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        ("norml(0, 1)", "coefficient", r"normal\(location, scale\); student_t"),
        ("half_normal(1)", "coefficient", "prior of a coefficient cannot be 'half_normal"),
        ("normal(0, 1)", "scale", "prior of a scale .*Write one of: half_normal"),
        ("normal(0)", "coefficient", r"Write normal\(location, scale\)"),
        ("normal(0, -1)", "coefficient", "scale must be a number above 0"),
        ("normal(a, 1)", "coefficient", "plain numbers"),
        ("normal(0, 1", "coefficient", "one of"),
        (2.5, "coefficient", "one of"),
    ],
)
def test_priors_that_mean_nothing(words, kind, message):
    with pytest.raises(BadInputError, match=message):
        parse(words, kind)


# ---------------------------------------------------------------- names and bad data


def test_names_come_from_columns(rng):
    model = linear(["Intercept", "age"], priors={"Intercept": "flat"})
    assert model.names == ("Intercept", "age", "log(sigma)")
    named = model.constrain(np.zeros((7, 3)))
    assert {name: value.shape for name, value in named.items()} == dict.fromkeys(
        ["Intercept", "age", "sigma"], (7,)
    )
    assert (named["sigma"] == 1).all()
    assert pickle.loads(pickle.dumps(model)) == model
    with pytest.raises(
        BadInputError,
        match=r"No parameter named `agee` .*mean `age`.*There are Intercept, age, sigma",
    ):
        linear(["Intercept", "age"], priors={"agee": "flat"})
    with pytest.raises(BadInputError, match="must differ"):
        logistic(["a", "a"])


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (logistic, {"y": np.array([0.0, 2.0])}, r"y\[1\] is 2.0. A logistic response is 0 or 1"),
        (poisson, {"y": np.array([0.5, 1.0])}, r"y\[0\] is 0.5. A count"),
        (negative_binomial, {"y": np.array([1.0, -1.0])}, r"y\[1\] is -1.0. A count"),
        (negative_binomial, {"y": np.array([1.0, 1e6])}, "count in y is 1000000. Counts above"),
        (linear, {"y": np.array([1.0, np.nan])}, "y is missing in 1 row, the first being row 1"),
        (linear, {"y": np.array(["a", "b"])}, "must hold numbers"),
        (logistic, {"y": np.ones(3)}, r"y has shape \(3,\). Each row needs one y"),
        (logistic, {"X": np.ones((2, 3))}, r"X has shape \(2, 3\). It needs 2 columns"),
        (logistic, {"X": np.array([[1, np.nan], [1, 1]])}, "is nan in row 0. It must be finite"),
    ],
)
def test_bad_shards(kind, change, message):
    shard = {"X": np.ones((2, 2)), "y": np.ones(2)} | change
    model = kind(2)
    with pytest.raises(BadInputError, match=message):
        model.log_likelihood(np.zeros(model.dim), shard)


def test_a_shard_without_a_response():
    with pytest.raises(BadInputError, match=r"No array named `y`. The data are X"):
        poisson(1).log_likelihood(np.zeros(1), {"X": np.ones((2, 1))})


def test_a_column_that_is_not_finite_is_named(rng):
    shard = shard_for(poisson, rng)
    shard["X"][7, 2] = np.inf
    with pytest.raises(BadInputError, match=r"`hour` of X is inf in row 7.*drop or fill"):
        poisson(["one", "day", "hour"]).log_likelihood(np.zeros(3), shard)
