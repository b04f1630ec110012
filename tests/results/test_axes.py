"""Dims and coords: what PyMC, NumPyro and formulas name keeps its names in the tree.

Predictions from a result are those from the libraries' own samplers.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Predictive

import quorate
from quorate.models import design, from_numpyro, from_pymc, logistic
from quorate.models.axes import Axes, labels_of
from quorate.models.formulas.axes import axes_of_columns
from quorate.results.arviz import inference_data

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the imports of PyMC
    import pymc as pm

pytestmark = pytest.mark.filterwarnings(
    "ignore:PyTensor could not link to a BLAS",
    "ignore::FutureWarning:pymc",
    "ignore::FutureWarning:arviz",
)
COUNTIES = np.array(["Aitkin", "Anoka", "Becker", "Beltrami", "Benton"])
SPLIT = {"county": 0, "y": 0}
LEVELS = np.array([-4.0, -1.0, 0.0, 2.0, 5.0])  # far from the prior of a county, N(0, 10²)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(4)
    county = np.repeat(np.arange(5), 40)
    return {"county": county, "y": LEVELS[county] + 0.5 * rng.standard_normal(200)}


def pymc_model(rows):
    with pm.Model(coords={"place": COUNTIES}) as model:
        county, y = pm.Data("county", rows["county"]), pm.Data("y", rows["y"])
        centre = pm.Data("centre", np.zeros(5), dims="place")
        alpha = pm.Normal("alpha", centre, 10.0, dims="place")
        pm.Deterministic("gap", alpha - alpha.mean(), dims="place")
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.Normal("obs", alpha[county], sigma, observed=y, shape=county.shape)
    return model


def numpyro_program(county, y, n_places):
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("place", n_places):
        alpha = numpyro.sample("alpha", dist.Normal(0.0, 10.0))
    with numpyro.plate("rows", len(county)):
        numpyro.sample("obs", dist.Normal(alpha[county], sigma), obs=y)


def sampled(model, data, **options):
    settings = {"workers": 1, "draws": 400, "seed": 1, "progress": False, "check": False}
    return quorate.sample(model, data, **(settings | options))


def assert_same_predictions(ours, theirs):
    """Means and sds by county of predictive draws; four sds of what 400 draws can tell."""
    for statistic in (np.mean, np.std):
        by_county = [
            np.array([statistic(draws[:, county * 40 : county * 40 + 40]) for county in range(5)])
            for draws in (ours, theirs)
        ]
        np.testing.assert_allclose(*by_county, atol=0.1)


def test_pymc_predicts_from_a_result_as_from_its_own_sampler(rows):
    program = pymc_model(rows)
    model = from_pymc(program, SPLIT)
    result = sampled(model, model.rows())
    posterior = result.posterior["posterior"]
    assert posterior["alpha"].dims == posterior["gap"].dims == ("chain", "draw", "place")
    np.testing.assert_array_equal(posterior["place"], COUNTIES)
    np.testing.assert_array_equal(result.posterior["constant_data/centre"], np.zeros(5))
    with program:
        own = pm.sample(400, chains=2, cores=1, random_seed=1, progressbar=False)
        drawn = [
            pm.sample_posterior_predictive(trace, random_seed=2, progressbar=False)
            for trace in (result.to_inference_data(), own)
        ]
    ours, theirs = (d.posterior_predictive["obs"].to_numpy().reshape(-1, 200) for d in drawn)
    assert_same_predictions(ours, theirs)
    with pytest.raises(AssertionError):  # the control: counties from their prior, as without dims
        assert_same_predictions(ours + 10 * np.random.default_rng(1).normal(size=(400, 1)), theirs)


def test_numpyro_predicts_from_a_result_as_from_its_own_sampler(rows):
    data = rows | {"n_places": 5}
    model = from_numpyro(numpyro_program, split=SPLIT, data=data)
    result = sampled(model, rows)
    posterior = result.posterior["posterior"]
    assert posterior["alpha"].dims == ("chain", "draw", "place")
    np.testing.assert_array_equal(posterior["place"], np.arange(5))
    kernel = MCMC(NUTS(numpyro_program), num_warmup=300, num_samples=400, progress_bar=False)
    kernel.run(jax.random.PRNGKey(1), **data)
    in_chains = {str(name): posterior[name].to_numpy() for name in posterior.data_vars}
    arguments = {"county": rows["county"], "y": None, "n_places": 5}
    ours = Predictive(numpyro_program, in_chains, batch_ndims=2)
    theirs = Predictive(numpyro_program, kernel.get_samples())
    drawn = [np.array(p(jax.random.PRNGKey(2), **arguments)["obs"]) for p in (ours, theirs)]
    assert_same_predictions(*(d.reshape(-1, 200) for d in drawn))


def events_in_plates(y):
    with numpyro.plate("place", 2):
        numpyro.sample("pair", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
        numpyro.deterministic("flat", jnp.zeros(2))
    infer = {"event_dims": ["season"]}
    m = numpyro.sample("m", dist.Normal(jnp.zeros(4), 1.0).to_event(1), infer=infer)
    numpyro.deterministic("loose", m[:3])
    with numpyro.plate("rows", len(y)):
        numpyro.sample("obs", dist.Normal(m.sum(), 1.0), obs=y)


def test_plates_and_named_events_are_axes(rng):
    data = {"y": rng.standard_normal(20)}
    axes = from_numpyro(events_in_plates, split={"y": 0}, data=data).axes
    assert axes.dims == {"pair": ("place", "pair_dim_1"), "flat": ("place",), "m": ("season",)}
    np.testing.assert_array_equal(axes.coords["place"], [0, 1])


def test_levels_of_factors_are_labels(rng):
    table = {
        "x": rng.standard_normal(300),
        "origin": rng.choice(["EWR", "JFK", "LGA"], 300),
        "month": rng.integers(1, 4, 300),
        "y": rng.integers(0, 2, 300).astype(float),
    }
    learned = design("y ~ x + origin * C(month)", table)
    result = sampled(logistic(learned), table, by=learned.cut(), draws=100)
    posterior = result.posterior["posterior"]
    assert set(posterior.data_vars) == {"Intercept", "x", "origin", "C(month)", "origin:C(month)"}
    np.testing.assert_array_equal(posterior["origin_dim"], ["JFK", "LGA"])
    both = posterior["origin:C(month)"]
    one = both.sel({"origin:C(month)_dim_0": "LGA", "origin:C(month)_dim_1": "3"})
    np.testing.assert_array_equal(
        one, result.variables["origin[T.LGA]:C(month)[T.3]"][result.chain_rows]
    )


def test_coefficients_that_fill_no_table_stay_scalars():
    axes = axes_of_columns(["a[T.x]:b[T.1]", "a[T.y]:b[T.2]", "c[T.u]", "c", "d[p]", "d[q]"])
    assert axes.gathered == {"d": ("d[p]", "d[q]")}
    assert axes.dims == {"d": ("d_dim",)}


@pytest.mark.parametrize(
    "labels",
    [
        ["a", "b"],
        [3, 1],
        [0.5, np.nan],
        [True, False],
        np.array(["2024-01-01", "2024-06-01"], dtype="datetime64[D]"),
        [("a", 1), ("b", 2)],
        [],
    ],
)
def test_axes_survive_the_journal(labels):
    made = labels_of(labels)
    constants = {"k": np.arange(6.0).reshape(2, 3)}
    again = Axes.from_json(Axes({"v": ("d",)}, {"d": made}, {"g": ("s", "t")}, constants).as_json())
    assert again.dims == {"v": ("d",)}
    assert again.gathered == {"g": ("s", "t")}
    assert again.coords["d"].dtype.kind == made.dtype.kind
    np.testing.assert_array_equal(again.coords["d"].astype(made.dtype), made)
    np.testing.assert_array_equal(again.constants["k"], constants["k"])


# ---------------------------------------------------------------- local variables


def test_pymc_predicts_from_local_variables_as_from_its_own_sampler(rows):
    with pm.Model(coords={"place": COUNTIES}) as program:
        county, y = pm.Data("county", rows["county"]), pm.Data("y", rows["y"])
        mu, tau = pm.Normal("mu", 0.0, 5.0), pm.HalfNormal("tau", 5.0)
        alpha = pm.Normal("alpha", mu, tau, dims="place")
        pm.Normal("obs", alpha[county], 0.5, observed=y, shape=county.shape)
    model = from_pymc(program, SPLIT, local="place")
    result = sampled(model, model.rows(), by="group:county", draws=200)
    assert "alpha" not in result.posterior["posterior"]
    one = result.local.draws([COUNTIES[1]])
    tree = result.local.posterior()
    of_tree = tree["posterior/alpha"].sel(place=COUNTIES[1])
    np.testing.assert_allclose(np.ravel(one["r_county"]), np.ravel(of_tree), rtol=1e-12)
    assert tree["posterior/alpha"].dims == ("chain", "draw", "place")
    np.testing.assert_array_equal(tree["posterior/place"], COUNTIES)
    np.testing.assert_array_equal(tree["posterior/mu"], result.posterior["posterior/mu"])
    with program:
        own = pm.sample(200, chains=2, cores=1, random_seed=1, progressbar=False)
        drawn = [
            pm.sample_posterior_predictive(trace, random_seed=2, progressbar=False)
            for trace in (inference_data(tree), own)
        ]
    ours, theirs = (d.posterior_predictive["obs"].to_numpy().reshape(-1, 200) for d in drawn)
    assert_same_predictions(ours, theirs)
    new = result.predict({"county": np.array([4, 9, 1])}, 200)  # by number: names are of coords
    assert new.is_new.tolist() == [False, True, False]
    # Means of 40 rows and of 200 draws are within 0.1 of the truth: 6 sds
    np.testing.assert_allclose(new.responses.mean(axis=0)[[0, 2]], LEVELS[[4, 1]], atol=0.6)


def local_program(g, y, n_groups):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    with numpyro.plate("axis", 2, dim=-1), numpyro.plate("shop", n_groups, dim=-2):
        z = numpyro.sample("z", dist.Normal(mu, 1.0))
    with numpyro.plate("rows", len(g)):
        numpyro.sample("obs", dist.Normal(z[g].sum(axis=1), 1.0), obs=y)


def test_local_variables_of_numpyro_have_the_shape_and_plates_of_the_program(rng):
    data = {"g": np.repeat(np.arange(4), 3), "y": rng.standard_normal(12), "n_groups": 5}
    model = from_numpyro(local_program, split={"g": 0, "y": 0}, data=data, local="shop")
    axes = model.axes
    assert axes.dims["z"] == ("shop", "axis")
    assert [len(axes.coords[name]) for name in ("shop", "axis")] == [5, 2]
    values = rng.standard_normal((7, 4, 2))
    (z,) = model.local_variables(values, np.arange(4)).values()
    assert z.shape == (7, 5, 2)
    np.testing.assert_array_equal(z[:, :4], values)
    assert np.isnan(z[:, 4]).all()
