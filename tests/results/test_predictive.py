"""Draws of responses: of the rows of a run, from the prior, and of new rows in every language."""

import numpy as np
import pytest
from scipy import stats

import quorate
from helpers.assertions import assert_mean
from helpers.processes import KillsAWorker, MeanModel
from quorate.errors import BadInputError
from quorate.models import Positive, Real, design, from_functions, from_numpyro, linear

N_ROWS = 120
FEW = {"workers": 2, "draws": 400, "check": False, "progress": False}


@pytest.fixture(scope="module")
def data(seed):
    rng = np.random.default_rng([seed, 8])
    x = rng.normal(size=N_ROWS)
    shop = np.array([f"s{i:02}" for i in rng.permutation(np.arange(N_ROWS) % 20)])
    return {"y": 0.5 - x + 0.6 * rng.normal(size=N_ROWS), "x": x, "shop": shop}


@pytest.fixture(scope="module")
def fitted(data, seed, tmp_path_factory):
    model = linear(design("y ~ x", data), "normal(0, 1)", scale_prior="exponential(1)")
    run = tmp_path_factory.mktemp("predictive") / "run"
    return quorate.sample(model, data, seed=seed, run_dir=run, **FEW)


@pytest.fixture(scope="module")
def grouped(data, seed, tmp_path_factory):
    formula = design("y ~ x + (1 | shop)", data)
    model = linear(formula, "normal(0, 1)", scale_prior="exponential(1)")
    run = tmp_path_factory.mktemp("predictive") / "run"
    return quorate.sample(model, data, seed=seed, run_dir=run, **FEW)


def left_of(tree, name, x):
    """Responses less their means, in standard deviations: (n, n_rows)."""
    variables = {key: tree[name][key].values[..., None] for key in tree[name].data_vars}
    draws = tree[f"{name}_predictive"]["y"].values
    left = (draws - variables["Intercept"] - variables["x"] * x) / variables["sigma"]
    return left.reshape(-1, left.shape[-1])


def test_responses_follow_the_model(fitted, data):
    tree = fitted.posterior_predictive(200)
    left = left_of(tree, "posterior", data["x"])
    assert_mean(left.reshape(-1, 1), np.zeros(1))
    assert_mean(left.reshape(-1, 1) ** 2, np.ones(1))
    np.testing.assert_array_equal(tree["observed_data"]["y"], data["y"])
    np.testing.assert_array_equal(tree["posterior_predictive"]["row"], np.arange(N_ROWS))
    # of one row, and of one draw: no number is used twice
    assert stats.kstest(left[:, 3], "norm").pvalue > 1e-6
    assert stats.kstest(left[3], "norm").pvalue > 1e-6
    assert len(np.unique(left)) == left.size


def test_a_seed_settles_them(fitted):
    first, again = (fitted.posterior_predictive(50, seed=4, workers=n) for n in (1, 3))
    draws = [tree["posterior_predictive"]["y"].values for tree in (first, again)]
    np.testing.assert_array_equal(*draws)
    other = fitted.posterior_predictive(50, seed=5)["posterior_predictive"]["y"].values
    assert not np.any(other == draws[0])


def test_a_worker_killed_on_the_way_changes_nothing(grouped):
    first = grouped.posterior_predictive(100)["posterior_predictive"]["y"].values
    attack = KillsAWorker()
    again = grouped.posterior_predictive(100, progress=attack)
    assert attack.done
    np.testing.assert_array_equal(first, again["posterior_predictive"]["y"].values)


def test_groups_have_the_coefficients_of_their_draws(grouped, data):
    tree = grouped.posterior_predictive(200)
    posterior = tree["posterior"]
    n = posterior.sizes["chain"] * posterior.sizes["draw"]
    drawn = grouped.local.draws(np.unique(data["shop"]), n)["r_shop"].sel(draw=posterior["draw"])
    which = np.searchsorted(drawn["group"].values, data["shop"])
    eta = posterior["Intercept"].values[..., None] + drawn.values[..., which, 0]
    eta = eta + posterior["x"].values[..., None] * data["x"]
    left = (tree["posterior_predictive"]["y"].values - eta) / posterior["sigma"].values[..., None]
    assert_mean(left.reshape(-1, 1), np.zeros(1))
    assert_mean(left.reshape(-1, 1) ** 2, np.ones(1))


def test_priors_are_drawn_from(fitted, grouped, data):
    tree = fitted.prior_predictive(200, seed=1)
    prior = np.column_stack([tree["prior"][name].values[0] for name in ("Intercept", "x")])
    assert_mean(prior, np.zeros(2))
    assert_mean(prior**2, np.ones(2))
    left = left_of(tree, "prior", data["x"])
    assert_mean(left.reshape(-1, 1) ** 2, np.ones(1))
    tree = grouped.prior_predictive(50, seed=1)
    assert tree["prior_predictive"]["y"].shape == (1, 50, N_ROWS)
    assert "sd_shop__Intercept" in tree["prior"]


# ---------------------------------------------------------------- other languages


def functions(**more):
    def log_prior(p):
        return -0.5 * (p["a"] ** 2 + p["b"] ** 2) - p["sigma"]

    def pointwise(p, rows):
        return stats.norm.logpdf(rows["y"], p["a"] + p["b"] * rows["x"], p["sigma"])

    def log_likelihood(p, rows):
        return pointwise(p, rows).sum()

    parameters = {"a": Real(), "b": Real(), "sigma": Positive()}
    return from_functions(log_prior, log_likelihood, parameters, **more)


def simulate(p, rows, rng):
    return rng.normal(p["a"] + p["b"] * rows["x"], p["sigma"])


def program(x, y):
    import numpyro
    import numpyro.distributions as dist

    a, b = (numpyro.sample(name, dist.Normal(0, 1)) for name in "ab")
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(a + b * x, sigma), obs=y)


@pytest.mark.parametrize("language", ["functions", "numpyro"])
def test_other_languages_predict_too(language, data, fitted):
    """Means of responses of new rows, at ten of them, with a false-alarm rate of 1e-6."""
    rows = {"x": data["x"], "y": data["y"]}
    if language == "functions":
        model = functions(simulate=simulate)
    else:
        model = from_numpyro(program, split={"x": 0, "y": 0}, data=rows)
    alone = {"engine": quorate.Processes(1)}  # programs are compiled once
    result = quorate.sample(model, rows, **FEW, **alone)
    new = {"x": np.linspace(-2, 2, 10)}
    found, same = (result.predict(new, 300, seed=3, **alone) for _ in range(2))
    np.testing.assert_array_equal(found.responses, same.responses)
    assert not np.any(found.responses == result.predict(new, 300, seed=4, **alone).responses)
    v = {name: draws[:, None] for name, draws in result.variables.items()}
    means = (v["a"] + v["b"] * new["x"]).mean(axis=0)
    assert_mean(found.responses, means)
    if language == "numpyro":
        np.testing.assert_allclose(found.expected.mean(axis=0), means, atol=0.05)
    else:
        assert found.expected is None
        assert list(found.summary().columns) == ["mean", "sd", "response_lower", "response_upper"]
    tree = result.posterior_predictive(100, **alone)
    np.testing.assert_array_equal(tree["observed_data"]["y"], data["y"])
    v = {name: tree["posterior"][name].values[..., None] for name in ("a", "b", "sigma")}
    left = (tree["posterior_predictive"]["y"].values - v["a"] - v["b"] * data["x"]) / v["sigma"]
    assert_mean(left.reshape(-1, 1) ** 2, np.ones(1))


def test_what_is_missing_is_named(data, fitted, rng):
    rows = {"x": data["x"], "y": data["y"]}
    plain = quorate.sample(functions(), rows, **FEW)
    for method in (plain.posterior_predictive, lambda: plain.predict(rows)):
        with pytest.raises(BadInputError, match="Give `simulate` to from_functions"):
            method()
    with pytest.raises(BadInputError, match="Give `draw_prior`"):
        plain.prior_predictive()
    with pytest.raises(BadInputError, match="Give `pointwise`"):
        plain.loo()
    mean = quorate.sample(MeanModel(), {"z": rng.normal(size=(40, 2))}, **FEW)
    with pytest.raises(BadInputError, match="MeanModel cannot draw responses"):
        mean.posterior_predictive()
    flat = quorate.sample(linear(design("y ~ x", data), "flat"), data, **FEW)
    with pytest.raises(BadInputError, match="prior of Intercept is flat"):
        flat.prior_predictive()
