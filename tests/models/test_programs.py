"""NumPyro and PyMC: the same subposteriors, and models that cannot be split are refused."""

import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import potential_energy

from quorate.errors import BadInputError
from quorate.models import from_numpyro, from_pymc, linear
from quorate.models.subposterior import Target

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the imports of PyMC
    import pymc as pm
    import pytensor.tensor as pt

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")


def numerical_gradient(function, x, step=1e-5):
    return np.array(
        [(function(x + step * e) - function(x - step * e)) / (2 * step) for e in np.eye(len(x))]
    )


@pytest.fixture
def data(rng):
    columns = rng.standard_normal((30, 3))
    return {"X": columns, "y": columns @ [1.0, -1.0, 0.5] + rng.standard_normal(30)}


SPLIT = {"X": 0, "y": 0}


def regression(X, y):  # noqa: N803
    beta = numpyro.sample("beta", dist.Normal(0, 2.5).expand([X.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    numpyro.deterministic("total", beta.sum())
    mean = numpyro.deterministic("mean", X @ beta)
    with numpyro.plate("rows", len(y)):
        numpyro.sample("obs", dist.Normal(mean, sigma), obs=y)


def pymc_regression(data, *, observed_data=True):
    with pm.Model() as model:
        columns = pm.Data("X", data["X"], dims=("row", "column"))
        response = pm.Data("y", data["y"], dims="row") if observed_data else data["y"]
        beta = pm.Normal("beta", 0, 2.5, shape=3)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Deterministic("total", beta.sum())
        mean = pm.Deterministic("mean", columns @ beta)
        pm.Normal("obs", mean, sigma, observed=response)
    return model


def shards_of(rows, n_shards):
    cuts = np.array_split(np.arange(len(rows["y"])), n_shards)
    return [{name: array[cut] for name, array in rows.items()} for cut in cuts]


# ---------------------------------------------------------------- the same regression


@pytest.mark.parametrize("mode", [None, "JAX"])
def test_numpyro_pymc_and_the_ready_made_model_agree(mode, data, rng):
    models = [
        from_numpyro(regression, split=SPLIT, data=data),
        from_pymc(pymc_regression(data), SPLIT, mode=mode),
        linear(3, scale_prior="half_normal(1)"),
    ]
    points = rng.standard_normal((5, 4))
    for shard in shards_of(data, 3):
        ours, theirs, ready = (
            np.array([Target(model, shard, 3).log_density(x) for x in points]) for model in models
        )
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
        np.testing.assert_allclose(ours, ready, rtol=0, atol=1e-9)
        for x in points:
            prior = [model.log_prior_and_gradient(x) for model in models]
            rows = [model.log_likelihood_and_gradient(x, shard) for model in models]
            for answers in (prior, rows):
                for value, gradient in answers[1:]:
                    assert value == pytest.approx(answers[0][0], abs=1e-9)
                    np.testing.assert_allclose(gradient, answers[0][1], atol=1e-8)


@pytest.mark.parametrize("make", ["numpyro", "pymc"])
def test_natural_scale_and_names(make, data, rng):
    if make == "numpyro":
        model = from_numpyro(regression, split=SPLIT, data=data)
    else:
        model = from_pymc(pymc_regression(data), SPLIT)
    assert model.names == ("beta[0]", "beta[1]", "beta[2]", "log(sigma)")
    draws = rng.standard_normal((6, 4))
    named = model.constrain(draws)
    assert set(named) == {"beta", "sigma", "total"}  # not `mean`, which is one per row
    np.testing.assert_allclose(named["beta"], draws[:, :3])
    np.testing.assert_allclose(named["sigma"], np.exp(draws[:, 3]))
    np.testing.assert_allclose(named["total"], draws[:, :3].sum(axis=1))
    assert model.initial().shape == (4,)


def constrained_model(y, n_shares):
    scale = numpyro.sample("scale", dist.HalfNormal(1).expand([2]).to_event(1))
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.full(n_shares, 2.0)))
    lower = numpyro.sample("lower", dist.LKJCholesky(2, 2.0))
    edge = numpyro.sample("edge", dist.Uniform(0, scale[0]))  # a support that moves
    with numpyro.plate("rows", len(y)):
        location = jnp.stack([shares[0] * edge, shares[1]])
        factor = scale[:, None] * lower
        numpyro.sample("obs", dist.MultivariateNormal(location, scale_tril=factor), obs=y)


def test_constrained_numpyro_model(rng):
    """The product of the subposteriors is NumPyro's own density in unconstrained space."""
    data = {"y": rng.standard_normal((20, 2)), "n_shares": 3}
    model = from_numpyro(constrained_model, split={"y": 0}, data=data)
    shards = shards_of(model.rows(data), 3)
    energy = jax.jit(lambda free: potential_energy(constrained_model, (), data, free))
    for x in 0.5 * rng.standard_normal((3, model.dim)):
        free, start = {}, 0
        for site in model.program.sites:
            size = int(np.prod(site.shape))
            free[site.name] = jnp.asarray(x[start : start + size].reshape(site.shape))
            start += size
        posterior = -energy(free)
        total = sum(Target(model, shard, 3).log_density(x) for shard in shards)
        assert total == pytest.approx(float(posterior), abs=1e-9)
        _, gradient = model.log_prior_and_gradient(x)
        np.testing.assert_allclose(gradient, numerical_gradient(model.log_prior, x), atol=1e-6)


def test_constrained_pymc_model(rng):
    """The product of the subposteriors is PyMC's own density in unconstrained space."""
    rows = rng.standard_normal((20, 2))
    with pm.Model() as program:
        response = pm.Data("y", rows)
        scale = pm.HalfNormal("scale", 1, shape=2)
        shares = pm.Dirichlet("shares", np.full(3, 2.0))
        lower, _, _ = pm.LKJCholeskyCov("lower", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        pm.MvNormal("obs", shares[:2] * scale, chol=lower, observed=response)
    model = from_pymc(program, {"y": 0}, mode="FAST_COMPILE")
    whole = program.compile_logp(mode="FAST_COMPILE")
    shards = shards_of(model.rows(), 3)
    for x in 0.3 * rng.standard_normal((3, model.dim)):
        point, start = {}, 0
        for value, shape in zip(program.value_vars, model.graph.shapes, strict=True):
            size = int(np.prod(shape))
            point[value.name] = x[start : start + size].reshape(shape)
            start += size
        total = sum(Target(model, shard, 3).log_density(x) for shard in shards)
        assert total == pytest.approx(float(whole(point)), abs=1e-9)


def test_data_cut_along_another_axis(data, rng):
    def across(columns, y):
        return regression(columns.T, y)

    turned = {"columns": data["X"].T, "y": data["y"]}
    model = from_numpyro(across, split={"columns": 1, "y": 0}, data=turned)
    plain = from_numpyro(regression, split=SPLIT, data=data)
    rows, x = model.rows(turned), rng.standard_normal(4)
    assert rows["columns"].shape == (30, 3)
    for shard, other in zip(shards_of(rows, 3), shards_of(data, 3), strict=True):
        assert model.log_likelihood(x, shard) == pytest.approx(plain.log_likelihood(x, other))


def test_pymc_data_are_replaced_in_the_graph(data, rng):
    """Observed values that are constants of the graph too."""
    model = from_pymc(
        pymc_regression(data, observed_data=False), {"X": 0, "obs": 0}, mode="FAST_COMPILE"
    )
    x = rng.standard_normal(4)
    first, second = ({"X": shard["X"], "obs": shard["y"]} for shard in shards_of(data, 2))
    expected = from_numpyro(regression, split=SPLIT, data=data)
    for shard in (first, second):
        value = expected.log_likelihood(x, {"X": shard["X"], "y": shard["obs"]})
        assert model.log_likelihood(x, shard) == pytest.approx(value, abs=1e-9)
    with pytest.raises(BadInputError, match="A shard of this model holds X, obs"):
        model.log_likelihood(x, {"X": first["X"]})


def test_numpyro_models_travel(data, rng):
    model, x = from_numpyro(regression, split=SPLIT, data=data), rng.standard_normal(4)
    named = model.constrain(x[None])  # compiled before it is pickled
    again = pickle.loads(pickle.dumps(model))
    assert again.log_likelihood(x, data) == model.log_likelihood(x, data)
    np.testing.assert_array_equal(again.constrain(x[None])["beta"], named["beta"])


def test_impossible_pymc_parameters_have_density_zero(rng):
    """Far out a covariance that is not one gives -inf, not an error."""
    with pm.Model() as program:
        response = pm.Data("y", rng.standard_normal((6, 2)))
        c = pm.Normal("c")
        pm.MvNormal("obs", np.zeros(2), cov=np.eye(2) + c * (1 - np.eye(2)), observed=response)
    model = from_pymc(program, {"y": 0}, mode="FAST_COMPILE")
    assert model.log_likelihood(np.array([3.0]), model.rows()) == -np.inf


# ---------------------------------------------------------------- NumPyro models that are refused


def discrete(y):
    z = numpyro.sample("z", dist.Bernoulli(0.5))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("obs", dist.Normal(z, 1), obs=y)


def per_row(y):
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Normal(0, 1))
        numpyro.sample("obs", dist.Normal(z, 1), obs=y)


def random_walk(y):
    s = numpyro.sample("s", dist.HalfNormal(1))
    numpyro.sample("obs", dist.GaussianRandomWalk(s, num_steps=len(y)), obs=y)


def normalised(y):
    m = numpyro.sample("m", dist.Normal(0, 1))
    numpyro.sample("obs", dist.Normal(m * y.std(), 1).expand([len(y)]), obs=y)


def observed_elsewhere(y):
    m = numpyro.sample("m", dist.Normal(0, 1))
    numpyro.sample("earlier", dist.Normal(m, 1), obs=0.3)
    numpyro.sample("obs", dist.Normal(m, 1).expand([len(y)]), obs=y)


def prior_from_rows(y):
    m = numpyro.sample("m", dist.Normal(0, y.std()))
    numpyro.sample("obs", dist.Normal(m, 1).expand([len(y)]), obs=y)


def unpriored(y):
    m = numpyro.param("m", 0.0)
    numpyro.sample("obs", dist.Normal(m, 1).expand([len(y)]), obs=y)


def subsampled(y):
    m = numpyro.sample("m", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y), subsample_size=2) as chosen:
        numpyro.sample("obs", dist.Normal(m, 1), obs=y[chosen])


def fixed_plate(y):
    m = numpyro.sample("m", dist.Normal(0, 1))
    with numpyro.plate("rows", 30):
        numpyro.sample("obs", dist.Normal(m, 1), obs=y)


def with_factor(y):
    m = numpyro.sample("m", dist.Normal(0, 1))
    numpyro.factor("tilt", -(m**4))
    numpyro.sample("obs", dist.Normal(m, 1).expand([len(y)]), obs=y)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (discrete, "Latent variable z is discrete"),
        (per_row, "Latent variable z is one per row.*Integrate it out"),
        (random_walk, "does not factor over rows"),
        (normalised, "does not factor over rows"),
        (observed_elsewhere, "something observed is not named in `split`"),
        (prior_from_rows, "prior of m depends on the rows"),
        (unpriored, "Param m has no prior"),
        (subsampled, "Plate rows is subsampled"),
        (fixed_plate, "model raised ValueError.*any number of rows"),
        (with_factor, r"factor tilt is None.*factors=\{\"tilt\": \"prior\"\}"),
    ],
)
def test_numpyro_models_that_cannot_be_split(program, message, data):
    with pytest.raises(BadInputError, match=message):
        from_numpyro(program, split={"y": 0}, data={"y": data["y"]})


def test_factors_have_a_role(data):
    rows = {"y": data["y"]}
    model = from_numpyro(with_factor, split={"y": 0}, data=rows, factors={"tilt": "prior"})
    x = np.array([0.7])
    assert model.log_prior(x) == pytest.approx(-0.245 - 0.5 * np.log(2 * np.pi) - 0.7**4)
    with pytest.raises(BadInputError, match="does not factor"):  # it is not a sum over rows
        from_numpyro(with_factor, split={"y": 0}, data=rows, factors={"tilt": "likelihood"})


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({}, "which arrays are cut"),
        ({"z": 0}, "'z', which is not in the data. These are X, y"),
        ({"X": 2, "y": 0}, "X has 2 axes, counted from 0"),
        ({"X": 1, "y": 0}, "equal lengths"),
    ],
)
def test_splits_that_mean_nothing(split, message, data):
    with pytest.raises(BadInputError, match=message):
        from_numpyro(regression, split=split, data=data)


# ---------------------------------------------------------------- PyMC models that are refused


def pymc_program(build, rows):
    with pm.Model() as program:
        response = pm.Data("y", rows, dims="row")
        build(response, len(rows))
    return program


def pymc_discrete(y, n):
    pm.Normal("obs", pm.Bernoulli("z", 0.5), 1, observed=y)


def pymc_per_row(y, n):
    pm.Normal("obs", pm.Normal("z", dims="row"), 1, observed=y)


def pymc_per_row_by_shape(y, n):
    pm.Normal("obs", pm.Normal("z", shape=y.shape[0]), 1, observed=y)


def pymc_per_row_by_number(y, n):
    pm.Normal("obs", pm.Normal("z", shape=n), 1, observed=y)


def pymc_normalised(y, n):
    pm.Normal("obs", pm.Normal("m") * y.std(), 1, observed=y)


def pymc_random_walk(y, n):
    pm.MvNormal("obs", pt.zeros_like(y), pm.HalfNormal("s") * (pt.eye(y.shape[0]) + 1), observed=y)


def pymc_observed_elsewhere(y, n):
    m = pm.Normal("m")
    pm.Normal("earlier", m, 1, observed=np.array([0.3]))
    pm.Normal("obs", m, 1, observed=y)


def pymc_prior_from_rows(y, n):
    pm.Normal("obs", pm.Normal("m", 0, y.std()), 1, observed=y)


def pymc_with_potential(y, n):
    m = pm.Normal("m")
    pm.Potential("tilt", -(m**4))
    pm.Normal("obs", m, 1, observed=y)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (pymc_discrete, "Latent variable z is discrete"),
        (pymc_per_row, "Latent variable z is one per row"),
        (pymc_per_row_by_shape, "prior of latent variable z depends on y, which is cut"),
        (pymc_per_row_by_number, "Latent variable z is one per row"),
        (pymc_normalised, "does not factor over rows"),
        (pymc_random_walk, "does not factor over rows"),
        (pymc_observed_elsewhere, "something observed is not named in `split`"),
        (pymc_prior_from_rows, "prior of latent variable m depends on y"),
        (pymc_with_potential, r"potential tilt is None.*potentials=\{\"tilt\""),
    ],
)
def test_pymc_models_that_cannot_be_split(build, message, data):
    with pytest.raises(BadInputError, match=message):
        from_pymc(pymc_program(build, data["y"]), {"y": 0}, mode="FAST_COMPILE")


def test_potentials_have_a_role(data):
    program = pymc_program(pymc_with_potential, data["y"])
    model = from_pymc(program, {"y": 0}, potentials={"tilt": "prior"}, mode="FAST_COMPILE")
    value = model.log_prior(np.array([0.7]))
    assert value == pytest.approx(-0.245 - 0.5 * np.log(2 * np.pi) - 0.7**4)


def test_what_is_no_pymc_model():
    with pytest.raises(BadInputError, match=r"must be a pm\.Model, not a function"):
        from_pymc(regression, {"y": 0})
