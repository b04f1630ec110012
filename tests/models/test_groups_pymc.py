"""PyMC models with a dimension of groups: what is inferred, integrated out, and refused."""

import pickle

import cloudpickle
import numpy as np
import pytest
from scipy import stats

from helpers import nested_languages as nested
from helpers.grouped import by_functions, frozen, gaussian_closed_form, one_way
from helpers.grouped_programs import SPLIT, rows_of
from helpers.grouped_pymc import pm, pymc_one_way
from quorate.errors import BadInputError
from quorate.models import from_pymc
from quorate.models.groups.accuracy import finest
from quorate.models.groups.programs.anchors import with_effort

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")


@pytest.fixture
def shard(rng):
    return one_way(rng)


@pytest.fixture
def points(rng):
    return np.array([1.0, -0.5, -0.2]) + 0.3 * rng.standard_normal((3, 3))


def finely(model, points, shard):
    given = with_effort(model._ready(shard).given, finest(1))
    return np.array([model.backend.one(model.at.value, x, given) for x in points])


def of_some_groups(shard):
    return frozen({name: array[shard["g"] % 3 == 1] for name, array in shard.items()})


@pytest.mark.parametrize("centred", [True, False])
def test_the_gaussian_model_has_its_closed_form(centred, shard, points):
    model = from_pymc(pymc_one_way(shard, "gaussian", centred=centred), SPLIT, local="shop")
    assert model.names == ("mu", "b", "log(tau)")
    assert model.group_columns == "g"
    assert model.levels[0].names == (("z",) if centred else ("raw", "z"))
    assert model.program.shrinking == ()
    some = of_some_groups(shard)
    rows = frozen(rows_of(some, "gaussian"))
    pairs = [model.log_likelihood_and_gradient(x, rows) for x in points]
    expected = [gaussian_closed_form(x, some)[0] for x in points]
    assert np.allclose([value for value, _ in pairs], expected, atol=1e-6)
    step = 1e-5 * np.eye(3)
    ups, downs = ([gaussian_closed_form(points[0] + s * e, some)[0] for e in step] for s in (1, -1))
    assert np.allclose(pairs[0][1], np.subtract(ups, downs) / 2e-5, atol=1e-5)
    moments = model.local_moments(points[:1], rows)["g"]
    means = gaussian_closed_form(points[0], some)[1]
    assert np.allclose(moments.centres[:, -1] + moments.sums[0][:, -1], means, atol=1e-9)
    natural = model.constrain(points)
    assert np.allclose(natural["tau"], np.exp(points[:, 2]))
    assert set(natural) == {"mu", "b", "tau"}
    assert np.array_equal(model.rows()["g"], shard["g"])


def test_the_logistic_model_agrees_with_functions(shard, points):
    ours = by_functions("jax", "logistic")
    rows = frozen(rows_of(shard, "logistic"))
    made = from_pymc(pymc_one_way(shard, "logistic"), SPLIT, local="shop")
    theirs = pickle.loads(cloudpickle.dumps(made))
    assert np.allclose(finely(theirs, points, rows), finely(ours, points, shard), atol=1e-4)
    differences = [theirs.log_prior(x) - ours.log_prior(x) for x in points]
    assert np.allclose(differences, differences[0])


def test_group_level_predictors_and_positive_local_variables(rng):
    # Rates of groups are exponential, and their counts are summed: geometric, in closed form.
    g, n = np.repeat(np.arange(9), 4), rng.poisson(2.0, 36)
    u = rng.standard_normal(9)
    with pm.Model(coords={"shop": range(9)}) as program:
        index, counts = pm.Data("g", g), pm.Data("n", n)
        weight = pm.Data("u", u, dims="shop")
        scale = pm.HalfNormal("scale", 2)
        rate = pm.Exponential("rate", scale * pm.math.exp(weight), dims="shop")
        pm.Poisson("obs", rate[index], observed=counts)
    model = from_pymc(program, {"g": 0, "n": 0}, local="shop")
    assert model.program.shrinking == ("u",)
    shard = frozen({"g": g[g > 4], "n": n[g > 4], "group": g[g > 4]})
    x = np.array([0.3])
    total = 0.0
    for k in range(5, 9):
        inverse = np.exp(x[0] + u[k])
        share = inverse / (inverse + 4)
        counts = n[g == k]
        together = stats.nbinom.logpmf(counts.sum(), 1, share)
        total += together + stats.multinomial.logpmf(counts, counts.sum(), [0.25] * 4)
    assert np.isclose(finely(model, [x], shard)[0], total, atol=1e-3)


def test_a_model_that_needs_all_groups_runs_on_all_of_them(shard, points):
    with pm.Model(coords={"shop": range(12)}) as program:
        g, x, y = (pm.Data(name, shard[name]) for name in SPLIT)
        mu, b = pm.Normal("mu", 0, 5), pm.Normal("b", 0, 5)
        tau = pm.HalfNormal("tau", 1)
        z = pm.Normal("z", mu * np.ones(12), tau, dims="shop")
        pm.Normal("obs", z[g] + b * x, 0.7, observed=y)
    model = from_pymc(program, SPLIT, local="shop")
    assert model.program.shrinking is None
    some = of_some_groups(shard)
    rows = frozen(rows_of(some, "gaussian"))
    value = model.log_likelihood(points[0], rows)
    assert np.isclose(value, gaussian_closed_form(points[0], some)[0], atol=1e-6)


# ---------------------------------------------------------------- what is refused


def variant(shard, change):
    with pm.Model(coords={"shop": range(12), "other": range(4)}) as program:
        g, _, y = (pm.Data(name, shard[name]) for name in SPLIT)
        mu = pm.Normal("mu", 0, 5)
        change(mu, g, y)
    return program


def crossed(mu, g, y):
    z = pm.Normal("z", mu, 1, dims="shop")
    pm.Normal("obs", z[g] + z[(g + 1) % 12], 1, observed=y)


def of_many(mu, g, y):
    z = pm.Normal("z", mu, 1, dims=("shop", "other"))
    pm.Normal("obs", z[g].sum(axis=1), 1, observed=y)


def global_after_local(mu, g, y):
    z = pm.Normal("z", mu, 1, dims="shop")
    pm.Normal("nu", z.sum(), 1)
    pm.Normal("obs", z[g], 1, observed=y)


def without_groups(mu, g, y):
    pm.Normal("obs", mu, 1, observed=y)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (crossed, "more than one group"),
        (of_many, "4 local parameters"),
        (global_after_local, "prior of nu depends on the local variables z"),
        (without_groups, "No latent variable has the dimension 'shop'"),
    ],
)
def test_what_does_not_factor_is_refused(change, reason, shard):
    with pytest.raises(BadInputError, match=reason):
        from_pymc(variant(shard, change), SPLIT, local="shop")


def test_dimensions_and_modes_that_are_not_there_are_refused(shard):
    program = pymc_one_way(shard, "gaussian")
    for local in ("county", "county/shop"):
        with pytest.raises(BadInputError, match="no dimension named 'county'"):
            from_pymc(program, SPLIT, local=local)
    with pytest.raises(BadInputError, match=r"must name the dimension .*\['a', 'b'\].*name both"):
        from_pymc(program, SPLIT, local=["a", "b"])
    with pytest.raises(BadInputError, match="mode 'JAX'"):
        from_pymc(program, SPLIT, local="shop", mode="NUMBA")


def test_groups_have_the_names_of_the_coords(rng):
    """In any order; repeated names tell no groups apart, so groups then keep their numbers."""
    data = {"g": np.repeat(np.arange(3), 4), "y": rng.standard_normal(12)}

    def named(*names):
        with pm.Model(coords={"shop": names}) as program:
            g, y = (pm.Data(name, values) for name, values in data.items())
            z = pm.Normal("z", pm.Normal("mu", 0, 5), 1.0, dims="shop")
            pm.Normal("obs", z[g], 1.0, observed=y)
        return from_pymc(program, {"g": 0, "y": 0}, local="shop")

    model, values = named("c", "a", "b"), rng.standard_normal((7, 2, 1))
    assert model.group_names[0].tolist() == ["c", "a", "b"]
    z = model.local_variables(values, np.array(["a", "c"]))["z"]
    np.testing.assert_array_equal(z[:, [1, 0]], values[:, :, 0])
    assert np.isnan(z[:, 2]).all()
    assert named("a", "a", "b").group_names == (None,)


def test_nested_groups_have_the_names_of_the_coords(rng):
    """Unless a name tells no groups apart."""
    rows, state_of = nested.table(rng)
    states = [f"state {i}" for i in range(nested.N_STATES)][::-1]
    counties = [f"county {i}" for i in range(nested.N_COUNTIES)]

    def named(counties):
        names = {"states": states, "counties": counties}
        return nested.by_pymc(rows, state_of, names=names)

    model = named(counties)
    outer, inner = model.group_names
    assert outer.tolist() == states
    assert inner.tolist() == counties
    labels = np.array([f"{states[state_of[c]]}:{counties[c]}" for c in (3, 0)])
    pairs = [[state_of[3], 3], [state_of[0], 0]]
    np.testing.assert_array_equal(model.pairs_of_numbers(labels), pairs)
    model = named(["twice", "twice", *counties[2:]])
    assert model.group_names[1] is None
    labels = np.array([f"{states[state_of[c]]}:{c}" for c in (3, 0)])
    np.testing.assert_array_equal(model.pairs_of_numbers(labels), pairs)
    labels = np.array([f"{states[state_of[c]]}:{name}" for c, name in ((3, "c"), (0, "a:b"))])
    model = named(["a:b", *counties[1:3], "c", *counties[4:]])
    np.testing.assert_array_equal(model.pairs_of_numbers(labels), pairs)
