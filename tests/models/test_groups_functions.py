"""Local parameters of plain functions are integrated out, in numpy and in JAX."""

import pickle

import cloudpickle
import numpy as np
import pytest
from scipy import special, stats

from helpers.assertions import assert_mean
from helpers.grouped import (
    by_functions,
    frozen,
    gaussian_closed_form,
    logistic_by_quad,
    one_way,
)
from quorate.errors import BadInputError
from quorate.models import Positive, Real, Simplex, from_functions
from quorate.models.groups.accuracy import finest
from quorate.models.groups.programs.anchors import with_effort

BACKENDS = pytest.mark.parametrize("backend", ["numpy", "jax"])


@pytest.fixture
def shard(rng):
    return one_way(rng)


@pytest.fixture
def points(rng):
    return np.array([1.0, -0.5, -0.2]) + 0.3 * rng.standard_normal((4, 3))


def finely(model, points, shard):
    """The log-likelihood with as many nodes as others are compared with."""
    given = with_effort(model._ready(shard).given, finest(1))
    return np.array([model.backend.one(model.at.value, x, given) for x in points])


def differences(function, x, step=1e-5):
    moves = step * np.eye(len(x))
    return np.array([(function(x + e) - function(x - e)) / (2 * step) for e in moves])


@BACKENDS
def test_the_gaussian_model_has_its_closed_form(backend, shard, points):
    model = by_functions(backend, "gaussian")
    expected = [gaussian_closed_form(x, shard)[0] for x in points]
    assert np.allclose(model.log_likelihood_many(points, shard), expected, atol=1e-6)
    assert np.isclose(model.log_likelihood(points[0], shard), expected[0], atol=1e-6)
    assert model.names == ("mu", "b", "log(tau)")
    assert model.group_columns == "g"
    assert [level.names for level in model.levels] == [("z",)]


@BACKENDS
def test_the_logistic_model_agrees_with_adaptive_integration(backend, shard, points):
    model = by_functions(backend, "logistic")
    expected = [logistic_by_quad(x, shard) for x in points]
    assert np.allclose(finely(model, points, shard), expected, atol=1e-6)
    assert np.allclose(model.log_likelihood_many(points, shard), expected, atol=0.05)


@pytest.mark.parametrize("family", ["gaussian", "logistic"])
def test_gradients_agree_with_differences(family, shard, points):
    model = by_functions("jax", family)
    given = with_effort(model._ready(shard).given, finest(1))
    for x in points[:2]:
        expected = differences(lambda x: model.backend.one(model.at.value, x, given), x)
        _, gradient = model.backend.one(model.at.value_and_gradient, x, given)
        # Derivatives are taken under the integral, and nodes move with the point: the two differ by
        # the error of the quadrature, which the location of the points decides
        assert np.allclose(gradient, expected, atol=1e-3)
    values, gradients = model.log_likelihood_and_gradient_many(points, shard)
    value, gradient = model.log_likelihood_and_gradient(points[1], shard)
    assert np.isclose(value, values[1])
    assert np.allclose(gradient, gradients[1])
    expected = differences(model.log_prior, points[0])
    assert np.allclose(model.log_prior_and_gradient(points[0])[1], expected, atol=1e-6)


@BACKENDS
def test_a_value_does_not_depend_on_the_other_points(backend, shard, points):
    model = by_functions(backend, "logistic")
    many = model.log_likelihood_many(points, shard)
    assert np.allclose(model.log_likelihood_many(points[2:], shard), many[2:], rtol=1e-13)
    other = pickle.loads(cloudpickle.dumps(model))  # another worker that holds the shard
    assert np.allclose(other.log_likelihood_many(points, shard), many, rtol=1e-13)


@BACKENDS
def test_moments_of_local_parameters(backend, shard, points):
    moments = by_functions(backend, "gaussian").local_moments(points, shard)["g"]
    assert np.array_equal(moments.groups, np.unique(shard["group"]))
    known = [gaussian_closed_form(x, shard)[1:] for x in points]
    for k in (1, 2, 3):
        expected = sum(
            stats.norm(means - moments.centres[:, 0], sds).moment(k) for means, sds in known
        )
        assert np.allclose(moments.sums[k - 1][:, 0], expected, atol=1e-9)


@BACKENDS
def test_draws_of_local_parameters(backend, shard, points, rng):
    model, n = by_functions(backend, "gaussian"), 1_000
    groups = np.unique(shard["group"])[[5, 0, 2]]
    numbers = rng.uniform(size=(n, 3, 200))
    repeated = np.repeat(points[:1], n, axis=0)
    codes, draws = model.local_draws(repeated, shard, groups, lambda *a: numbers[..., : a[2]])["g"]
    assert np.array_equal(codes, np.sort(groups))
    _, means, sds = gaussian_closed_form(points[0], shard)
    white = (draws[..., 0] - means[[0, 2, 5]]) / sds[[0, 2, 5]]
    assert_mean(white, np.zeros(3))
    # A false alarm in 1e6. The control has sds that are a quarter too large.
    assert stats.kstest(white.ravel(), "norm").pvalue > 1e-6
    assert stats.kstest(1.25 * white.ravel(), "norm").pvalue < 1e-6


@BACKENDS
def test_constrained_local_parameters(backend, rng):
    # Poisson counts with a Gamma rate for each group: negative binomial sums, in closed form.
    if backend == "jax":
        import jax.numpy as xp
        from jax.scipy.special import gammaln
    else:
        xp = np
        gammaln = special.gammaln

    def log_local(p, local):
        a = p["a"]
        return a * xp.log(2.0) - gammaln(a) + (a - 1) * xp.log(local["rate"]) - 2 * local["rate"]

    model = from_functions(
        lambda p: -p["a"],
        lambda p, local, shard: shard["n"] * xp.log(local["rate"]) - local["rate"],
        {"a": Positive()},
        backend=backend,
        local={"rate": Positive()},
        groups="shop",
        log_local=log_local,
    )
    shop = np.repeat(np.arange(8), 5)
    shard = frozen({"shop": shop, "n": rng.poisson(3.0, 40).astype(float)})
    given = with_effort(model._ready(shard).given, finest(1))
    totals = np.bincount(shop, shard["n"])
    for log_a in (0.0, 1.0):
        a = np.exp(log_a)
        terms = (
            a * np.log(2)
            - special.gammaln(a)
            + special.gammaln(a + totals)
            - (a + totals) * np.log(7.0)
        )
        value = model.backend.one(model.at.value, np.array([log_a]), given)
        assert np.isclose(value, terms.sum(), atol=1e-4)
    moments = model.local_moments(np.array([[0.0]]), shard)["shop"]
    expected = (1 + totals) / 7  # the mean of a Gamma distribution
    assert np.allclose(moments.centres[:, 0] + moments.sums[0][:, 0], expected, rtol=1e-2)


def test_what_is_refused(shard):
    def build(local, **changed):
        given = {"groups": "g", "log_local": lambda p, local: 0.0, "local": local, **changed}
        return from_functions(lambda p: 0.0, lambda *a: 0.0, ["mu"], **given)

    with pytest.raises(BadInputError, match="4 local parameters"):
        build({"z": Real(4)})
    with pytest.raises(BadInputError, match="must be a dictionary"):
        build(["z"])
    for groups in (None, "", ["state", "county"]):
        with pytest.raises(BadInputError, match=r'groups must name the column.*"outer/inner"'):
            build({"z": Real()}, groups=groups)
    with pytest.raises(BadInputError, match="log_local must be a function"):
        build({"z": Real()}, log_local=None)
    with pytest.raises(BadInputError, match="none of `scale`, `vectorised`"):
        build({"z": Real()}, vectorised=True)
    assert build({"share": Simplex(3)}).levels[0].names == ("share[0]", "share[1]", "share[2]")
    with pytest.raises(BadInputError, match="one number for each group"):
        build({"z": Real()}).log_likelihood(np.zeros(1), shard)
    with pytest.raises(BadInputError, match='by="group:g"'):
        build({"z": Real()}).log_likelihood(np.zeros(1), {"y": shard["y"]})


def test_an_integral_that_is_off_is_refused(shard):
    # A spike between nodes: some numbers of nodes see it, and others do not.
    model = from_functions(
        lambda p: -0.5 * p["mu"] ** 2,
        lambda p, local, shard: -0.5 * (shard["y"] - local["z"]) ** 2,
        {"mu": Real()},
        local={"z": Real()},
        groups="g",
        log_local=lambda p, local: np.logaddexp(
            -0.5 * (local["z"] - p["mu"]) ** 2,
            -0.5 * (100 * (local["z"] - p["mu"])) ** 2 + np.log(100),
        ),
    )
    with pytest.raises(BadInputError, match="log units"):
        model.log_likelihood(np.zeros(1), shard)


def test_groups_follow_the_search_for_the_mode(rng):
    # Groups know their rates well and the search starts far from the mode, so that centres of
    # groups move by many of their standard deviations on the way.
    group = np.repeat(np.arange(20), 30)
    rates = np.exp(6.0 + 0.5 * rng.standard_normal(20))
    shard = frozen({"g": group, "n": rng.poisson(rates[group]).astype(float)})

    def log_likelihood(p, local, shard):
        eta = p["mu"] + local["z"]
        return shard["n"] * eta - np.exp(eta)

    model = from_functions(
        lambda p: -0.5 * (p["mu"] / 5) ** 2 - p["tau"],
        log_likelihood,
        {"mu": Real(), "tau": Positive()},
        local={"z": Real()},
        groups="g",
        log_local=lambda p, local: -0.5 * (local["z"] / p["tau"]) ** 2 - np.log(p["tau"]),
    )
    effects = np.log(np.bincount(group, shard["n"]) / 30)
    near = np.array([effects.mean(), np.log(effects.std())])
    points = near + np.array([[0.0, 0.0], [0.3, 0.3], [-0.3, -0.3]])
    found, expected = model.log_likelihood_many(points, shard), finely(model, points, shard)
    assert np.allclose(found, expected, atol=0.2)
