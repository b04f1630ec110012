"""Many points at once: the values and gradients of one point at a time, for every kind of model."""

import pickle
import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.errors import BadInputError, WrongShapeError
from quorate.models import (
    Positive,
    Real,
    Simplex,
    device,
    from_functions,
    from_numpyro,
    from_pymc,
    linear,
    logistic,
    negative_binomial,
    poisson,
    student,
)
from quorate.models.gaussian import paper_subposteriors
from quorate.models.parameters import declared
from quorate.models.products import alike, log_products
from quorate.models.programs import jaxed_many
from quorate.models.subposterior import NONE, Target, log_densities, log_densities_and_gradients

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the imports of PyMC
    import pymc as pm

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")

FAMILIES = [linear, logistic, poisson, negative_binomial, student]
N_ROWS = 1100  # two full chunks of rows, and some more


def one_by_one(target, points):
    """What `log_densities` promises, from the functions of one point."""
    values = np.full(len(points), NONE)
    for i, x in enumerate(points):
        try:
            with np.errstate(all="ignore"):
                value = target.log_density(x)
        except BadInputError:
            continue
        if np.isfinite(value):
            values[i] = max(value, NONE)
    return values


def pairs_one_by_one(target, points):
    """What `log_densities_and_gradients` promises, from the functions of one point."""
    values, gradients = np.full(len(points), NONE), np.zeros((len(points), target.dim))
    for i, x in enumerate(points):
        try:
            with np.errstate(all="ignore"):
                value, gradient = target.log_density_and_gradient(x)
        except BadInputError:
            continue
        if value > NONE and np.isfinite(gradient).all():
            values[i], gradients[i] = value, gradient
    return values, gradients


def assert_same(target, points, *, terms=1.0):
    """Agreement to 1e-12 of the value, or to the rounding of the sum of its `terms`."""
    digits, rounding = 1e-12, 4 * np.finfo(float).eps * terms
    expected = one_by_one(target, points)
    values = log_densities(target, points)
    assert values.shape == (len(points),)
    np.testing.assert_allclose(values, expected, rtol=digits, atol=rounding)
    if target.has_gradient:
        expected, slopes = pairs_one_by_one(target, points)
        values, gradients = log_densities_and_gradients(target, points)
        assert values.shape == (len(points),)
        assert gradients.shape == (len(points), target.dim)
        np.testing.assert_allclose(values, expected, rtol=digits, atol=rounding)
        largest = np.abs(slopes).max(initial=0.0)
        np.testing.assert_allclose(gradients, slopes, rtol=digits, atol=rounding + digits * largest)


# ---------------------------------------------------------------- generalised linear models


def shard_for(kind, rng, n_rows, n_distinct=None):
    columns = np.column_stack([np.ones(n_rows), 0.5 * rng.standard_normal((n_rows, 3))])
    if n_distinct is not None:  # rows that repeat are stored once, with their count
        columns = columns[rng.integers(min(n_distinct, n_rows), size=n_rows)]
    if kind in (linear, student):
        response = columns @ [1, 2, -1, 0] + rng.standard_normal(n_rows)
    elif kind is logistic:
        response = (rng.random(n_rows) < 0.4).astype(float)
    else:
        response = rng.poisson(3, n_rows).astype(float)
    return {"X": columns, "y": response}


@pytest.mark.parametrize("kind", FAMILIES)
@given(
    seed=st.integers(0, 10**6),
    n_rows=st.sampled_from([1, 2, 499, 500, 501, N_ROWS]),
    n_distinct=st.sampled_from([None, 1, 7]),
    n_points=st.sampled_from([0, 1, 2, 9]),
    spread=st.sampled_from([0.1, 1.0, 5.0]),
)
def test_generalised_linear_models(kind, seed, n_rows, n_distinct, n_points, spread):
    rng = np.random.default_rng(seed)
    model = kind(4, "student_t(4, 0, 2.5)", priors={"beta[0]": "laplace(1, 10)"})
    target = Target(model, shard_for(kind, rng, n_rows, n_distinct), 3)
    points = spread * rng.standard_normal((n_points, model.dim))
    largest = np.abs(target.shard["X"] @ points[:, :4].T).max(initial=1.0)
    terms = n_rows * largest * (1 + np.abs(target.shard["y"]).max())
    assert_same(target, points, terms=terms)


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("n_distinct", [None, 7])
def test_points_far_out_spoil_no_others(kind, n_distinct, rng):
    model = kind(4)
    shard = shard_for(kind, rng, N_ROWS, n_distinct)
    points = 0.3 * rng.standard_normal((40, model.dim))
    for i, far in enumerate([np.nan, np.inf, -np.inf, 1e3, -1e3, 1e160, -1e308]):
        points[5 * i] = far
        points[5 * i + 1, -1] = far
    target = Target(model, shard, 3)
    assert_same(target, points, terms=1e4)
    assert (log_densities(target, points) > NONE).sum() >= 26


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("weights", ["none", "equal", "few", "all differ"])
@pytest.mark.parametrize("has_offset", [False, True])
def test_weights_and_offsets(kind, weights, has_offset, rng):
    """Weights decide whether logarithms are taken of products of rows."""
    shard = shard_for(kind, rng, N_ROWS)
    if weights != "none":
        values = {"equal": [2.5], "few": [0.0, 1.0, 3.0], "all differ": rng.uniform(0, 3, N_ROWS)}
        shard["weights"] = rng.choice(values[weights], N_ROWS)
    if has_offset:
        shard["offset"] = rng.normal(size=N_ROWS)
    model = kind(4)
    assert_same(Target(model, shard, 3), rng.standard_normal((9, model.dim)), terms=1e5)


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("log_scale", [-30.0, -4.1, -3.9, 0.0, 3.9, 4.1, 30.0])
@pytest.mark.parametrize("intercept", [-40.0, 0.0, 12.0, 40.0])
def test_extreme_scales_and_predictors(kind, log_scale, intercept, rng):
    """Products that overflow, and scales at which a logarithm of 1 + t has lost its digits."""
    model = kind(4)
    points = 0.1 * rng.standard_normal((6, model.dim))
    points[:, 0] += intercept
    points[1:, 4:] += log_scale  # the first point has a usual scale: its value must not suffer
    assert_same(Target(model, shard_for(kind, rng, N_ROWS), 3), points, terms=1e6)


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_shard_without_rows(kind, rng):
    shard = {"X": np.zeros((0, 4)), "y": np.zeros(0)}
    model = kind(4)
    assert_same(Target(model, shard, 3), rng.standard_normal((5, model.dim)), terms=1e4)


@given(
    seed=st.integers(0, 10**6),
    n_rows=st.integers(1, 300),
    n_kinds=st.sampled_from([1, 3, 300]),
    chunk=st.sampled_from([1, 7, 64, 1000]),
)
def test_logarithms_of_products(seed, n_rows, n_kinds, chunk):
    """Σ w log t over chunks of rows, for any weights and any place of the cuts."""
    rng = np.random.default_rng(seed)
    weights = [rng.integers(n_kinds, size=n_rows).astype(float) for _ in range(2)]
    terms = rng.uniform(0.5, 9, (n_rows, 2))
    found = alike(weights, 9.0)
    order = np.arange(n_rows) if found.order is None else found.order
    assert sorted(order) == list(range(n_rows))
    total = np.zeros((2, 2))
    for start in range(0, n_rows, chunk):
        places = order[start : start + chunk]
        bounds = found.within(start, start + len(places))
        assert np.diff(bounds).max() <= 64
        logs = log_products(terms[places], bounds)
        total += [weight[places][bounds[:-1]] @ logs for weight in weights]
    expected = [weight @ np.log(terms) for weight in weights]
    np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize(
    "scale_prior",
    ["half_normal(1)", "half_student_t(4, 2)", "exponential(3)", "gamma(2, 3)", "lognormal(1, 2)"],
)
def test_priors_of_scales(scale_prior, rng):
    model = linear(2, "flat", scale_prior=scale_prior)
    target = Target(model, {"X": np.ones((2, 2)), "y": np.ones(2)}, 1)
    assert_same(target, rng.standard_normal((20, 3)), terms=100)


def test_the_product_of_500_terms_does_not_overflow():
    shard = {"X": np.ones((N_ROWS, 1)) + 1e-9 * np.arange(N_ROWS)[:, None], "y": np.ones(N_ROWS)}
    values = logistic(1).log_likelihood_many(np.array([[0.0], [1e-200]]), shard)
    np.testing.assert_allclose(values, -N_ROWS * np.log(2), rtol=1e-14)


def test_many_points_take_fewer_rows_at_a_time(rng):
    target = Target(logistic(4), shard_for(logistic, rng, N_ROWS), 1)
    assert_same(target, rng.standard_normal((700, 4)), terms=1e4)


def test_counts_that_are_large(rng):
    """More terms of Σ log(1 + j/φ) than are summed at a time, and the Poisson limit."""
    shard = {"X": np.ones((3, 1)), "y": np.array([0.0, 2.0, 3000.0])}
    points = np.column_stack([rng.normal(5, 2, 9), [-5, -1, 0, 1, 3, 10, 25, 50, 300.0]])
    assert_same(Target(negative_binomial(1), shard, 1), points, terms=1e6)


# ---------------------------------------------------------------- functions


def log_prior(p, xp=np):
    return (
        xp.sum(xp.log(p["scale"]) - p["scale"])
        + xp.log(p["deep"]["shares"][0])
        - p["deep"]["level"] ** 2
    )


def log_likelihood(p, shard, xp=np):
    mean = shard["X"] @ p["deep"]["shares"] + p["deep"]["level"]
    z = (shard["y"] - mean) / p["scale"][0]
    return -0.5 * xp.sum(z**2) - len(z) * xp.log(p["scale"][0])


def many_log_prior(p):
    scale, shares, level = p["scale"], p["deep"]["shares"], p["deep"]["level"]
    return (np.log(scale) - scale).sum(axis=-1) + np.log(shares[:, 0]) - level**2


def many_log_likelihood(p, shard):
    scale, deep = p["scale"][:, :1], p["deep"]
    mean = deep["shares"] @ shard["X"].T + deep["level"][:, None]
    z = (shard["y"] - mean) / scale
    return -0.5 * (z**2).sum(axis=1) - z.shape[1] * np.log(scale[:, 0])


def jax_log_prior(p):
    return log_prior(p, jnp)


def jax_log_likelihood(p, shard):
    return log_likelihood(p, shard, jnp)


DECLARED = {"scale": Positive(2), "deep": {"shares": Simplex(3), "level": Real()}}


def regression(X, y):  # noqa: N803
    beta = numpyro.sample("beta", dist.Normal(0, 2.5).expand([X.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("obs", dist.Normal(X @ beta, sigma), obs=y)


def pymc_regression(data):
    with pm.Model() as model:
        columns, response = pm.Data("X", data["X"]), pm.Data("y", data["y"])
        shift = pm.Data("shift", np.array([0.5, 0.0, -0.5]))  # which is not cut
        beta = pm.Normal("beta", 0, 2.5, shape=3)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("obs", columns @ (beta + shift), sigma, observed=response)
    return model


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    columns = rng.standard_normal((30, 3))
    return {"X": columns, "y": columns @ [1.0, -1.0, 0.5] + rng.standard_normal(30)}


def build(kind, data):
    split = {"X": 0, "y": 0}
    if kind == "numpyro":
        return from_numpyro(regression, split=split, data=data)
    if kind.startswith("pymc"):
        mode = "JAX" if kind == "pymc in JAX" else "FAST_COMPILE"
        return from_pymc(pymc_regression(data), split, mode=mode)
    if kind == "jax":
        return from_functions(jax_log_prior, jax_log_likelihood, DECLARED, backend="jax")
    if kind == "vectorised":
        return from_functions(many_log_prior, many_log_likelihood, DECLARED, vectorised=True)
    return from_functions(log_prior, log_likelihood, DECLARED)


@pytest.fixture(
    scope="module", params=["numpy", "vectorised", "jax", "numpyro", "pymc", "pymc in JAX"]
)
def compiled(request, data):
    return build(request.param, data)


def test_functions_and_programs(compiled, data, rng):
    target = Target(compiled, data, 3)
    for n in (0, 1, 2, 17, 40):
        assert_same(target, 0.5 * rng.standard_normal((n, compiled.dim)), terms=100)


def test_bad_points_among_good_ones(compiled, data, rng):
    points = 0.5 * rng.standard_normal((20, compiled.dim))
    points[2], points[5, 0], points[11, -1], points[13] = np.nan, np.inf, -np.inf, 1e3
    target = Target(compiled, data, 3)
    assert_same(target, points, terms=100)
    assert (log_densities(target, points) > NONE).sum() >= 16


@pytest.mark.parametrize("kind", ["jax", "vectorised"])
def test_some_points_after_others(kind, data, rng, monkeypatch):
    """With memory for four points at a time."""
    monkeypatch.setattr(device, "ON_A_CORE", 8 * 30 * 4)
    monkeypatch.setattr(device, "MEMORY", device.Memory())
    target = Target(build(kind, data), data, 3)
    for n in (1, 4, 5, 37):
        assert_same(target, 0.5 * rng.standard_normal((n, 5)), terms=100)


@pytest.mark.parametrize("kind", ["jax", "numpyro"])
def test_compiled_models_travel(kind, data, rng):
    model, points = build(kind, data), 0.5 * rng.standard_normal((9, 5 if kind == "jax" else 4))
    values = model.log_likelihood_many(points, data)  # compiled before it is pickled
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.log_likelihood_many(points, data), values)


def test_few_numbers_of_points_are_compiled(rng):
    traced = []

    def counted(x, shard):
        traced.append(x)
        return -(x @ x) * shard["y"].sum()

    model = from_functions(lambda x: 0.0, counted, 2, backend="jax")
    for n in range(1, 17):
        model.log_likelihood_many(rng.standard_normal((n, 2)), {"y": np.ones(3)})
    assert len(traced) == 1
    for n in (17, 20, 32):
        model.log_likelihood_many(rng.standard_normal((n, 2)), {"y": 2 * np.ones(3)})
    assert len(traced) == 2


@pytest.mark.parametrize("n_rows", [0, 1, 30, 2_000_000, 10**9])
def test_points_at_once_are_a_power_of_two(n_rows):
    n = jaxed_many.points_at_once(n_rows)
    assert n & (n - 1) == 0
    assert n == 1 or 8 * n_rows * n <= 16e6


@pytest.mark.parametrize("parameters", [3, ["a", "b"], Positive(2), DECLARED, {"a": "real"}])
def test_points_are_given_to_functions_as_before(parameters, rng):
    """Same keys, shapes and types as one point at a time."""
    given_to = declared(parameters)
    points = rng.standard_normal((4, given_to.dim))

    def same(one, other):
        assert type(one) is type(other)
        if isinstance(one, dict):
            assert list(one) == list(other)
            for key in one:
                same(one[key], other[key])
        else:
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=1e-15)

    for x, values in zip(points, given_to.constrained_one_by_one(points), strict=True):
        same(values, given_to.constrain(x))


def test_vectorised_functions_on_the_unconstrained_scale(rng):
    model = from_functions(
        lambda x: -(x**2).sum(axis=1),
        lambda x, shard: (x[:, :1] * shard["y"]).sum(axis=1),
        {"a": Real(), "s": Positive()},
        scale="unconstrained",
        vectorised=True,
        initial=[1.0, 2.0],
    )
    assert model.initial().tolist() == [1, 2]
    points, shard = rng.standard_normal((6, 2)), {"y": np.arange(3.0)}
    np.testing.assert_allclose(model.log_prior_many(points), -(points**2).sum(axis=1))
    np.testing.assert_allclose(model.log_likelihood_many(points, shard), 3 * points[:, 0])
    assert model.log_likelihood(points[0], shard) == pytest.approx(3 * points[0, 0])


# ---------------------------------------------------------------- functions that misbehave


def raises_above_one(x, shard):
    if (np.asarray(x) > 1).any():
        raise ZeroDivisionError
    return -(x**2).sum(axis=-1)


@pytest.mark.parametrize("vectorised", [False, True])
def test_functions_that_raise_at_some_points(vectorised):
    flat = (lambda x: np.zeros(len(x))) if vectorised else (lambda x: 0.0)
    model = from_functions(flat, raises_above_one, 1, vectorised=vectorised)
    points = np.array([[0.0], [2.0], [-1.0], [3.0]])
    with pytest.raises(BadInputError, match="log_likelihood raised ZeroDivisionError"):
        model.log_likelihood_many(points, {})
    np.testing.assert_array_equal(log_densities(Target(model, {}, 2), points), [0, NONE, -1, NONE])


class Refuses:
    """A batched model with gradients that refuses x = 2, with an error."""

    dim = 1

    def log_prior(self, x):
        return 0.0

    def log_prior_and_gradient(self, x):
        return 0.0, np.zeros(1)

    def log_likelihood(self, x, shard):
        return self.log_likelihood_and_gradient(x, shard)[0]

    def log_likelihood_and_gradient(self, x, shard):
        value, gradient = self.log_likelihood_and_gradient_many(x[None], shard)
        return value[0], gradient[0]

    def log_prior_and_gradient_many(self, points):
        return np.zeros(len(points)), np.zeros_like(points)

    def log_likelihood_and_gradient_many(self, points, shard):
        if (points == 2).any():
            raise BadInputError("x is 2.")
        return -(points[:, 0] ** 2), -2 * points


def test_gradients_of_a_model_that_refuses_a_point():
    target = Target(Refuses(), {}, 2)
    values, gradients = log_densities_and_gradients(target, np.array([[1.0], [2.0], [3.0]]))
    np.testing.assert_array_equal(values, [-1, NONE, -9])
    np.testing.assert_array_equal(gradients, [[-2], [0], [-6]])


def test_gradients_that_do_not_exist_at_some_points():
    def with_a_hole(x, shard):
        return jnp.where(x[0] > 0, jnp.sqrt(jnp.abs(x[0])), 0.0)

    model = from_functions(lambda x: 0.0, with_a_hole, 1, backend="jax")
    target, points = Target(model, {}, 2), np.array([[4.0], [0.0], [1.0]])
    values, gradients = log_densities_and_gradients(target, points)
    np.testing.assert_allclose(values, [2, NONE, 1])
    np.testing.assert_allclose(gradients, [[0.25], [0], [0.5]])
    np.testing.assert_allclose(log_densities(target, points), [2, 0, 1])


@pytest.mark.parametrize(
    ("wrong", "shape"),
    [
        (lambda x, shard: (x**2).sum(), r"\(\)"),
        (lambda x, shard: x, r"\({n}, 2\)"),
        (lambda x, shard: np.zeros(7), r"\(7,\)"),
        (lambda x, shard: None, r"\(\)"),
    ],
)
def test_vectorised_functions_of_the_wrong_shape(wrong, shape):
    model = from_functions(lambda x: np.zeros(len(x)), wrong, 2, vectorised=True)
    message = "log_likelihood returned an array of shape {} for {} points.*one number for each"
    for n in (1, 5):
        expected = message.format(shape.replace("{n}", str(n)), n)
        with pytest.raises(WrongShapeError, match=expected):
            log_densities(Target(model, {}, 1), np.zeros((n, 2)))
    with pytest.raises(WrongShapeError, match="for 1 points"):
        model.log_likelihood(np.zeros(2), {})


def test_a_batched_model_of_the_wrong_shape():
    class Wrong(Refuses):
        def log_prior_many(self, points):
            return np.zeros(len(points))

        def log_likelihood_many(self, points, shard):
            return 0.0

        def log_likelihood_and_gradient_many(self, points, shard):
            return np.zeros((len(points), 1)), points

    target = Target(Wrong(), {}, 1)
    with pytest.raises(WrongShapeError, match=r"log_likelihood_many returned .* shape \(\)"):
        log_densities(target, np.zeros((3, 1)))
    with pytest.raises(
        WrongShapeError, match=r"log_likelihood_and_gradient_many .* shape \(3, 1\)"
    ):
        log_densities_and_gradients(target, np.zeros((3, 1)))


def test_vectorised_is_not_for_jax():
    with pytest.raises(BadInputError, match="vectorised is for numpy functions"):
        from_functions(jnp.sum, jnp.dot, 2, backend="jax", vectorised=True)


def test_gradients_of_a_model_that_has_none():
    model = from_functions(lambda x: 0.0, lambda x, shard: 0.0, 1)
    with pytest.raises(BadInputError, match="FunctionModel has no gradients"):
        log_densities_and_gradients(Target(model, {}, 1), np.zeros((2, 1)))


# ---------------------------------------------------------------- Gaussian subposteriors


@pytest.mark.parametrize("rows", [[2], [0, 3], [0, 1, 2, 3]])
def test_gaussian_subposteriors(rows, rng):
    model = paper_subposteriors(4)
    target = Target(model, {"subposterior": np.array(rows)}, 4)
    points = rng.standard_normal((12, 5))
    points[3], points[4, 1] = np.nan, np.inf
    assert_same(target, points, terms=100)
    assert_same(target, points[:0])
