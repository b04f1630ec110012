"""Models from two functions: the product of subposteriors is the posterior; errors that help."""

import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import logsumexp

from quorate._extras import load
from quorate.errors import BadInputError, MissingExtraError
from quorate.models import (
    Correlation,
    Ordered,
    Positive,
    Real,
    Simplex,
    UnitInterval,
    from_functions,
)
from quorate.models.checks import require_one_each
from quorate.models.subposterior import Target

PARAMETERS = {"scale": Positive(3), "shares": Simplex(2), "corr": Correlation(3)}


def mixed_log_prior(p, xp=np):
    """Gamma scales, Dirichlet(2, 3) shares, LKJ(2) correlations."""
    log_det = xp.linalg.slogdet(p["corr"])[1]
    return (
        xp.sum(xp.log(p["scale"]) - p["scale"])
        + xp.log(12.0)
        + xp.log(p["shares"][0])
        + 2 * xp.log(p["shares"][1])
        + log_det
    )


def mixed_log_likelihood(p, shard, xp=np):
    """A mixture of N(0, Σ) and N(0, 4Σ)."""
    cov = p["corr"] * p["scale"][:, None] * p["scale"][None, :]
    half = xp.linalg.solve(xp.linalg.cholesky(cov), shard["y"].T)
    squares = xp.sum(half**2, axis=0)
    log_det = xp.linalg.slogdet(cov)[1]
    narrow = xp.log(p["shares"][0]) - 0.5 * squares
    wide = xp.log(p["shares"][1]) - 0.125 * squares - 3 * np.log(2)
    constant = 0.5 * (log_det + 3 * np.log(2 * np.pi))
    return xp.sum(xp.logaddexp(narrow, wide)) - len(shard["y"]) * constant


def jax_log_prior(p):
    return mixed_log_prior(p, jnp)


def jax_log_likelihood(p, shard):
    return mixed_log_likelihood(p, shard, jnp)


@pytest.fixture
def mixed():
    return from_functions(mixed_log_prior, mixed_log_likelihood, PARAMETERS)


@pytest.fixture
def mixed_in_jax():
    return from_functions(jax_log_prior, jax_log_likelihood, PARAMETERS, backend="jax")


def shards_of(rows, n_shards):
    return [{"y": part} for part in np.array_split(rows, n_shards)]


def numerical_gradient(function, x, step=1e-5):
    return np.array(
        [(function(x + step * e) - function(x - step * e)) / (2 * step) for e in np.eye(len(x))]
    )


# ---------------------------------------------------------------- the prior to the power 1/K


@pytest.mark.parametrize("n_shards", [1, 2, 3, 7])
@pytest.mark.parametrize("which", ["mixed", "mixed_in_jax"])
def test_product_of_subposteriors_is_the_posterior(which, n_shards, request, rng):
    model = request.getfixturevalue(which)
    rows = rng.standard_normal((20, 3))
    targets = [Target(model, shard, n_shards) for shard in shards_of(rows, n_shards)]
    for x in rng.standard_normal((10, model.dim)):
        values = model.functions.parameters.constrain(x)
        posterior = (
            mixed_log_prior(values)
            + sum(
                support.log_jacobian(part)
                for _, support, part in model.functions.parameters.parts(x)
            )
            + mixed_log_likelihood(values, {"y": rows})
        )
        total = sum(target.log_density(x) for target in targets)
        assert total == pytest.approx(posterior, rel=1e-12, abs=1e-9)


def grid_distance(log_product, log_posterior):
    """Total variation between two densities on a grid."""
    product, posterior = (np.exp(log - logsumexp(log)) for log in (log_product, log_posterior))
    return 0.5 * np.abs(product - posterior).sum()


@pytest.mark.parametrize("power", [1.0, 0.25, 0.0])
def test_the_jacobian_is_at_the_power_of_the_prior(power):
    """Gamma-Poisson with a known posterior; any other power of the Jacobian than 1/K is wrong."""
    counts, n_shards = np.array([0.0, 2, 1, 3]), 4
    model = from_functions(
        lambda p: np.log(p["rate"]) - p["rate"],  # Gamma(2, 1)
        lambda p, shard: (shard["y"] * np.log(p["rate"]) - p["rate"]).sum(),
        {"rate": "positive"},
    )
    grid = np.linspace(-6, 4, 501)[:, None]
    shards, rates = shards_of(counts, n_shards), np.exp(grid[:, 0])
    posterior = stats.gamma(2 + counts.sum(), scale=1 / 5).logpdf(rates) + grid[:, 0]
    ours = np.array(
        [sum(Target(model, shard, n_shards).log_density(x) for shard in shards) for x in grid]
    )
    assert grid_distance(ours, posterior) < 1e-12
    other = ours + (power - 1 / n_shards) * n_shards * grid[:, 0]
    distance = grid_distance(other, posterior)
    assert distance < 1e-12 if power == 1 / n_shards else distance > 0.1


def test_priors_integrate_to_one_in_unconstrained_space():
    """A normalised density of the natural parameter stays one: the Jacobian is the right one."""
    for support, log_density in [
        (Positive(), stats.gamma(3).logpdf),
        (UnitInterval(), stats.beta(2, 4).logpdf),
        (Simplex(2), lambda p: stats.dirichlet([2, 3]).logpdf(p / p.sum())),
        (Correlation(2), lambda c: stats.beta(2, 2, loc=-1, scale=2).logpdf(c[0, 1])),
    ]:
        model = from_functions(log_density, lambda p, shard: 0.0, support)
        total, _ = integrate.quad(
            lambda x, model=model: np.exp(model.log_prior(np.array([x]))), -18, 18
        )
        assert total == pytest.approx(1, abs=1e-6)


# ---------------------------------------------------------------- JAX


def test_jax_has_the_values_of_numpy_and_gradients(mixed, mixed_in_jax, rng):
    shard = {"y": rng.standard_normal((15, 3))}
    for x in 0.7 * rng.standard_normal((5, mixed.dim)):
        value, gradient = mixed_in_jax.log_prior_and_gradient(x)
        assert value == pytest.approx(mixed.log_prior(x), abs=1e-10)
        assert value == pytest.approx(mixed_in_jax.log_prior(x), abs=1e-12)
        np.testing.assert_allclose(gradient, numerical_gradient(mixed.log_prior, x), atol=1e-6)
        value, gradient = mixed_in_jax.log_likelihood_and_gradient(x, shard)
        assert value == pytest.approx(mixed.log_likelihood(x, shard), abs=1e-9)
        numerical = numerical_gradient(lambda at: mixed.log_likelihood(at, shard), x)
        np.testing.assert_allclose(gradient, numerical, rtol=1e-5, atol=1e-5)


def test_models_travel(mixed_in_jax, mixed, rng):
    x, shard = rng.standard_normal(mixed.dim), {"y": rng.standard_normal((4, 3))}
    for model in (mixed, mixed_in_jax):
        before = model.log_likelihood(x, shard)  # compiled before it is pickled
        again = pickle.loads(pickle.dumps(model))
        assert again.log_likelihood(x, shard) == before
        assert again.names == model.names


def test_rows_that_change_are_seen(mixed_in_jax, rng):
    """Only read-only rows are kept on the device."""
    x, rows = np.zeros(mixed_in_jax.dim), rng.standard_normal((5, 3))
    first = mixed_in_jax.log_likelihood(x, {"y": rows})
    rows *= 2
    second = mixed_in_jax.log_likelihood(x, {"y": rows})
    assert first != second
    frozen = rows.copy()
    frozen.flags.writeable = False
    assert mixed_in_jax.log_likelihood(x, {"y": frozen}) == second
    assert mixed_in_jax.log_likelihood(x, {"y": frozen}) == second
    view = rows[:]
    view.flags.writeable = False  # the array it looks at can still change
    assert mixed_in_jax.log_likelihood(x, {"y": view}) == second
    rows /= 2
    assert mixed_in_jax.log_likelihood(x, {"y": view}) == pytest.approx(first)


def test_compiled_in_float64():
    model = from_functions(lambda x: x.sum(), lambda x, s: s["y"] @ x, 2, backend="jax")
    value = model.log_likelihood(np.ones(2), {"y": np.array([1.0, 1e-12])})
    assert value - 1 == pytest.approx(1e-12, rel=1e-3)
    assert jax.config.jax_enable_x64


# ---------------------------------------------------------------- parameters


def test_functions_of_a_vector():
    model = from_functions(lambda v: -v @ v, lambda v, s: -((s["y"] - v[0]) ** 2).sum(), ["a", "b"])
    assert (model.dim, model.names) == (2, ("a", "b"))
    assert model.log_prior(np.array([1.0, 2.0])) == -5
    draws = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(model.constrain(draws)["b"], draws[:, 1])
    assert from_functions(np.sum, np.dot, 2).names == ("x[0]", "x[1]")
    assert from_functions(np.sum, np.dot, Positive(2)).log_prior(np.zeros(2)) == 2  # exp 0, twice


def test_functions_of_a_nested_dictionary(rng):
    model = from_functions(
        lambda p: p["a"]["b"] + p["c"].sum(),
        lambda p, s: 0.0,
        {"a": {"b": Positive()}, "c": Ordered(2)},
    )
    assert model.names == ("log(a.b)", "c[0]", "log(c[1] - c[0])")
    assert model.names is model.names  # built once, not at each evaluation
    draws = rng.standard_normal((4, 3))
    named = model.constrain(draws)
    assert {name: value.shape for name, value in named.items()} == {"a.b": (4,), "c": (4, 2)}
    np.testing.assert_allclose(named["a.b"], np.exp(draws[:, 0]))


def test_a_model_already_on_the_unconstrained_scale(rng):
    """Ordered means, scales and a weight, with the Jacobian in the user's own prior."""

    def log_prior(x):
        gap, weight = np.exp(x[1]), 1 / (1 + np.exp(-x[3]))
        jacobian = x[1] + x[2] + np.log(weight * (1 - weight))
        return -0.5 * (x[0] ** 2 + (x[0] + gap) ** 2) - np.exp(x[2]) + jacobian

    def log_prior_natural(p):
        return -0.5 * (p["mu"] ** 2).sum() - p["sigma"]

    declared = {"mu": Ordered(2), "sigma": Positive(), "w": UnitInterval()}
    no_rows = lambda p, shard: 0.0  # noqa: E731
    model = from_functions(log_prior, no_rows, declared, scale="unconstrained")
    natural = from_functions(log_prior_natural, no_rows, declared)
    for x in rng.standard_normal((5, 4)):
        assert model.log_prior(x) == pytest.approx(natural.log_prior(x), abs=1e-12)
    assert model.constrain(np.zeros((1, 4)))["mu"].tolist() == [[0, 1]]


def test_initial_is_on_the_scale_of_the_functions():
    declared = {"b": Real(2), "s": Positive()}
    start = {"b": [1, 2], "s": 3}
    model = from_functions(lambda p: 0.0, lambda p, s: 0.0, declared, initial=start)
    np.testing.assert_allclose(model.initial(), [1, 2, np.log(3)])
    for wrong, message in [
        ({"b": [1, 2]}, "value for s"),
        ({"b": [1, 2], "s": -1}, "inside its support"),
        ({"b": 1, "s": 1}, r"shape must be \(2,\)"),
    ]:
        with pytest.raises(BadInputError, match=message):
            from_functions(lambda p: 0.0, lambda p, s: 0.0, declared, initial=wrong)


@pytest.mark.parametrize("wrong", [0, "beta", [], {}, {"b": "psitive"}, {"b": Real}, ["a", "a"]])
def test_parameters_that_mean_nothing(wrong):
    with pytest.raises(BadInputError, match="parameters"):
        from_functions(np.sum, np.dot, wrong)


# ---------------------------------------------------------------- functions that misbehave


def one_parameter(log_likelihood, backend="numpy", log_prior=lambda p: 0.0):
    return from_functions(log_prior, log_likelihood, {"s": Positive()}, backend=backend)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize(
    ("log_likelihood", "message"),
    [
        (lambda p, shard: -p["s"] * shard["y"], r"shape \(3,\).*\.sum\(\)"),
        (lambda p, shard: p["sigma"], "KeyError.*sigma.*names of the parameters"),
        (lambda p, shard: shard["z"].sum(), r"KeyError.*z.*y \(3,\)"),
        (lambda p, shard: 1 / 0, "ZeroDivisionError"),
        (lambda p, shard: p["s"] * np.nan, r"log_likelihood is nan at log\(s\) = 0.5"),
        (lambda p, shard: p["s"] * np.inf, "log_likelihood is inf"),
        (lambda p, shard: None, "NoneType.*one number"),
        (lambda p, shard: p["s"] * (1 + 2j), "complex number.*real"),
        (lambda p, shard: (p["s"] * shard["y"] * 1j).sum(), "complex number.*real"),
    ],
)
def test_likelihoods_that_misbehave(backend, log_likelihood, message):
    model = one_parameter(log_likelihood, backend)
    with pytest.raises(BadInputError, match=f"(?s)log_likelihood.*{message}|{message}"):
        model.log_likelihood(np.array([0.5]), {"y": np.ones(3)})
    if backend == "jax":
        with pytest.raises(BadInputError, match=f"(?s)log_likelihood.*{message}|{message}"):
            model.log_likelihood_and_gradient(np.array([0.5]), {"y": np.ones(3)})


def test_complex_log_densities_of_many_points_are_refused():
    with pytest.raises(BadInputError, match=r"log_likelihood.*complex number.*real"):
        require_one_each("log_likelihood", np.ones(3) + 0j, 3)


def test_numpy_under_jax_is_told_what_to_do():
    model = one_parameter(lambda p, shard: float(p["s"]), "jax")
    with pytest.raises(BadInputError, match=r"Under JAX it must use jax\.numpy"):
        model.log_likelihood(np.zeros(1), {"y": np.ones(3)})


def test_gradients_that_do_not_exist():
    model = one_parameter(lambda p, shard: jnp.where(p["s"] > 0, 1.0, jnp.sqrt(p["s"] - 9)), "jax")
    assert model.log_likelihood(np.zeros(1), {}) == 1
    with pytest.raises(BadInputError, match=r"gradient of log_likelihood is nan in log\(s\)"):
        model.log_likelihood_and_gradient(np.zeros(1), {})


def test_density_zero_is_legal(mixed):
    model = one_parameter(lambda p, shard: -np.inf)
    assert model.log_likelihood(np.zeros(1), {"y": np.ones(3)}) == -np.inf


def test_words_that_are_not_known():
    with pytest.raises(BadInputError, match="backend"):
        from_functions(np.sum, np.dot, 2, backend="torch")
    with pytest.raises(BadInputError, match="scale"):
        from_functions(np.sum, np.dot, 2, scale="log")
    with pytest.raises(BadInputError, match="must be a function"):
        from_functions(1.0, np.dot, 2)


def test_models_import_nothing_heavy():
    heavy = {"jax", "numpyro", "pymc", "pytensor", "formulaic", "pandas", "polars", "pyarrow"}
    loaded = (
        "import quorate.models, quorate.models.formulas.design, sys; "
        f"print({heavy} & set(sys.modules))"
    )
    command = [sys.executable, "-c", loaded]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_an_extra_that_is_not_there():
    with pytest.raises(MissingExtraError, match=r"pip install 'quorate\[jax\]"):
        load("no_such_library.part", "jax")
