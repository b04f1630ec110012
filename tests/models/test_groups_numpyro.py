"""NumPyro programs with a plate of groups: what is inferred, integrated out, and refused."""

import pickle

import cloudpickle
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

from helpers.grouped import (
    by_functions,
    frozen,
    gaussian_closed_form,
    logistic_by_quad,
    one_way,
)
from helpers.grouped_programs import SPLIT, centred, non_centred, of_fixed_size, rows_of
from quorate.errors import BadInputError
from quorate.models import from_numpyro
from quorate.models.groups.accuracy import finest
from quorate.models.groups.programs.anchors import with_effort


@pytest.fixture
def shard(rng):
    return one_way(rng)


@pytest.fixture
def points(rng):
    return np.array([1.0, -0.5, -0.2]) + 0.3 * rng.standard_normal((3, 3))


def built(program, shard, family="gaussian", **more):
    constants = {"family": family} if program is of_fixed_size else {"family": family, **more}
    if program in (centred, non_centred):
        constants["n_groups"] = 12
    data = {name: rows_of(shard, family)[name] for name in SPLIT} | constants
    return from_numpyro(program, split=SPLIT, data=data, local="group")


def finely(model, points, shard):
    given = with_effort(model._ready(shard).given, finest(model.program.local_dim))
    return np.array([model.backend.one(model.at.value, x, given) for x in points])


def of_some_groups(shard):
    return frozen({name: array[shard["g"] % 3 == 1] for name, array in shard.items()})


@pytest.mark.parametrize("program", [centred, non_centred, of_fixed_size])
def test_the_gaussian_program_has_its_closed_form(program, shard, points):
    model = built(program, shard)
    assert model.names == ("mu", "b", "log(tau)")
    assert model.group_columns == "g"
    assert model.program.shrinking == (None if program is of_fixed_size else ("n_groups",))
    some = of_some_groups(shard)
    expected = [gaussian_closed_form(x, some)[0] for x in points]
    rows = frozen(rows_of(some, "gaussian"))
    pairs = [model.log_likelihood_and_gradient(x, rows) for x in points]
    assert np.allclose([value for value, _ in pairs], expected, atol=1e-6)
    step = 1e-5 * np.eye(3)
    ups, downs = ([gaussian_closed_form(points[0] + s * e, some)[0] for e in step] for s in (1, -1))
    assert np.allclose(pairs[0][1], np.subtract(ups, downs) / 2e-5, atol=1e-5)
    assert set(model.constrain(points)) == {"mu", "b", "tau"}


def test_values_of_groups_include_deterministic_variables(shard, points):
    model = built(non_centred, shard)
    assert model.levels[0].names == ("raw", "z")
    some = of_some_groups(shard)
    moments = model.local_moments(points, frozen(rows_of(some, "gaussian")))["g"]
    assert np.array_equal(moments.groups, np.unique(some["group"]))
    expected = sum(gaussian_closed_form(x, some)[1] for x in points)
    found = len(points) * moments.centres[:, 1] + moments.sums[0][:, 1]
    assert np.allclose(found, expected, atol=1e-9)


def test_draws_of_values_of_groups(shard, points, rng):
    model, rows = built(non_centred, shard), frozen(rows_of(shard, "gaussian"))
    numbers = rng.uniform(size=(2_000, 1, 200))
    repeated = np.repeat(points[:1], 2_000, axis=0)
    group = np.array([int(rows["group"][4])])
    _, draws = model.local_draws(repeated, rows, group, lambda *a: numbers[..., : a[2]])["g"]
    _, means, sds = gaussian_closed_form(points[0], shard)
    place = np.searchsorted(np.unique(shard["group"]), group[0])
    white = (draws[:, 0, 1] - means[place]) / sds[place]
    # A false alarm in 1e6. The control is shifted by a fifth of a standard deviation.
    assert stats.kstest(white, "norm").pvalue > 1e-6
    assert stats.kstest(white + 0.2, "norm").pvalue < 1e-6


def test_the_logistic_program_agrees_with_functions(shard, points):
    rows = frozen(rows_of(shard, "logistic"))
    functions = by_functions("jax", "logistic")
    expected = finely(functions, points, shard)
    assert np.allclose(expected, [logistic_by_quad(x, shard) for x in points], atol=1e-4)
    for program in (centred, non_centred):
        model = pickle.loads(cloudpickle.dumps(built(program, shard, "logistic")))
        constant = model.log_prior(points[0]) - functions.log_prior(points[0])
        assert np.allclose(finely(model, points, rows), expected, atol=1e-4)
        for x in points:
            assert np.isclose(model.log_prior(x) - functions.log_prior(x), constant)


# ---------------------------------------------------------------- richer programs


def with_predictor(g, y, u):
    """Group-level predictors, whose length is the size of the plate; two sites for each group."""
    a = numpyro.sample("a", dist.Normal(0, 2).expand([2]).to_event(1))
    tau = numpyro.sample("tau", dist.HalfNormal(1).expand([2]).to_event(1))
    with numpyro.plate("shop", len(u)):
        level = numpyro.sample("level", dist.Normal(a[0] + a[1] * u, tau[0]))
        noise = numpyro.sample("noise", dist.LogNormal(0.0, tau[1]))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("obs", dist.Normal(level[g], noise[g]), obs=y)


def test_group_level_predictors_and_two_local_sites(rng):
    g = np.repeat(np.arange(7), 6)
    u, y = rng.standard_normal(7), rng.standard_normal(42)
    data = {"g": g, "y": y, "u": u}
    model = from_numpyro(with_predictor, split={"g": 0, "y": 0}, data=data, local="shop")
    assert model.program.shrinking == ("u",)
    assert model.levels[0].names == ("level", "noise")
    assert model.names == ("a[0]", "a[1]", "log(tau[0])", "log(tau[1])")
    shard = frozen({"g": g[g >= 5], "y": y[g >= 5], "group": g[g >= 5]})
    x = np.array([0.2, 0.3, -0.3, -0.5])
    grid = np.linspace(-9, 9, 401)
    level, log_noise = np.meshgrid(x[0] + np.exp(x[2]) * grid, np.exp(x[3]) * grid, indexing="ij")
    total = 0.0
    for k in (5, 6):  # the integral on a fine grid: the trapezium rule
        here = level + x[1] * u[k]
        rows = sum(stats.norm.logpdf(v, here, np.exp(log_noise)) for v in y[g == k])
        own = stats.norm.logpdf(grid)[:, None] + stats.norm.logpdf(grid)[None, :]
        total += np.log(np.exp(rows + own).sum() * (grid[1] - grid[0]) ** 2)
    assert np.isclose(finely(model, [x], shard)[0], total, atol=0.01)  # a run tolerates 0.1


def of_inner_groups(inner, outer, y, v, n_outer):
    """Groups within groups, whose outer level is global. Rows index variables and constants."""
    a = numpyro.sample("a", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("states", n_outer):
        state = numpyro.sample("state", dist.Normal(0, 1))
    with numpyro.plate("counties", len(v)):
        county = numpyro.sample("county", dist.Normal(0, tau))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("obs", dist.Normal(a * v[inner] + state[outer] + county[inner], 1), obs=y)


def test_rows_may_index_constants_and_global_variables(rng):
    inner = np.repeat(np.arange(9), 4)
    outer, y, v = inner // 3, rng.standard_normal(36), rng.standard_normal(9)
    data = {"inner": inner, "outer": outer, "y": y, "v": v, "n_outer": 3}
    split = dict.fromkeys(("inner", "outer", "y"), 0)
    model = from_numpyro(of_inner_groups, split=split, data=data, local="counties")
    assert model.group_columns == "inner"
    assert model.names == ("a", "log(tau)", "state[0]", "state[1]", "state[2]")
    x = np.array([0.7, -0.3, 0.4, -0.6, 0.1])
    expected = 0.0
    for k in range(9):  # rows of a county: a common normal part, and noise
        mean, cov = x[0] * v[k] + x[2 + k // 3], np.exp(2 * x[1]) * np.ones((4, 4)) + np.eye(4)
        expected += stats.multivariate_normal.logpdf(y[inner == k], np.full(4, mean), cov)
    shard = frozen({"inner": inner, "outer": outer, "y": y, "group": inner})
    assert np.isclose(model.log_likelihood(x, shard), expected, atol=1e-6)


def schools(y, error, school):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("obs", dist.Normal(theta, error), obs=y)


def test_rows_may_be_observed_in_the_plate_of_groups():
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    error = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    data = {"y": y, "error": error, "school": np.arange(8)}
    split = dict.fromkeys(data, 0)
    model = from_numpyro(schools, split=split, data=data, local="schools")
    assert model.group_columns == "school"
    some = np.array([6, 1, 3])
    shard = frozen({name: array[some] for name, array in data.items()})
    for x in ([4.0, 1.5], [0.0, -6.0]):
        sd = np.hypot(np.exp(x[1]), error[some])
        expected = stats.norm.logpdf(y[some], x[0], sd).sum()
        assert np.isclose(model.log_likelihood(np.array(x), shard), expected, atol=1e-6)


# ---------------------------------------------------------------- what is refused


def crossed(g, x, y, n_groups, family):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("group", n_groups):
        z = numpyro.sample("z", dist.Normal(mu, 1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("obs", dist.Normal(z[g] + z[(g + 1) % n_groups], 1), obs=y)


def walk(g, x, y, n_groups, family):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("group", n_groups):
        z = numpyro.sample("z", dist.Normal(mu, 1))
        numpyro.factor("smooth", -0.5 * (z - jnp.roll(z, 1)) ** 2)
    with numpyro.plate("rows", len(y)):
        numpyro.sample("obs", dist.Normal(z[g], 1), obs=y)


def of_many(g, x, y, n_groups, family):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("group", n_groups):
        z = numpyro.sample("z", dist.Normal(mu, 1).expand([4]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("obs", dist.Normal(z[g].sum(-1), 1), obs=y)


def latent_rows(g, x, y, n_groups, family):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("group", n_groups):
        z = numpyro.sample("z", dist.Normal(mu, 1))
    with numpyro.plate("rows", len(y)):
        e = numpyro.sample("e", dist.Normal(0, 1))
        numpyro.sample("obs", dist.Normal(z[g] + e, 1), obs=y)


def summed_rows(g, x, y, n_groups, family):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("group", n_groups):
        z = numpyro.sample("z", dist.Normal(mu, 1))
    numpyro.sample("obs", dist.Normal(z[g], 1).to_event(1), obs=y)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (crossed, "more than one group"),
        (of_many, "4 local parameters"),
        (latent_rows, "one per row"),
        (summed_rows, "one for each row"),
    ],
)
def test_what_does_not_factor_is_refused(program, reason, shard):
    with pytest.raises(BadInputError, match=reason):
        built(program, shard, n_groups=12)


def test_groups_that_depend_on_each_other_are_refused(shard):
    data = {name: shard[name] for name in SPLIT} | {"n_groups": 12, "family": ""}
    roles = {"smooth": "prior"}
    with pytest.raises(BadInputError, match="parameters depends on the local parameters of more"):
        from_numpyro(walk, split=SPLIT, data=data, local="group", factors=roles)


def test_names_that_are_not_there_are_refused(shard):
    data = {name: shard[name] for name in SPLIT} | {"n_groups": 12, "family": "gaussian"}
    with pytest.raises(BadInputError, match=r"no plate named 'county'\. It has group, rows"):
        from_numpyro(centred, split=SPLIT, data=data, local="county")
    with pytest.raises(BadInputError, match=r"must name the plate .*\['a', 'b'\].*outer/inner"):
        from_numpyro(centred, split=SPLIT, data=data, local=["a", "b"])
    with pytest.raises(BadInputError, match="holds no latent variable"):
        from_numpyro(centred, split=SPLIT, data=data, local="rows")
    with pytest.raises(BadInputError, match="No array in `split` holds the group"):
        from_numpyro(centred, split={"x": 0, "y": 0}, data=data, local="group")
