"""Models that bambi built, against our own formulas and PyMC's own densities."""

import numpy as np
import pandas as pd
import pytest

from quorate.errors import BadInputError
from quorate.models import from_bambi, from_pymc, linear
from quorate.models.groups.programs.plates import PlateModel

bambi = pytest.importorskip("bambi")
pm = pytest.importorskip("pymc")

pytestmark = pytest.mark.filterwarnings("ignore")  # of bambi's and PyMC's own dependencies
N = 80


@pytest.fixture(scope="module")
def table(seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=N),
            "o": rng.choice(["u", "v", "w"], N),
            "g": rng.permutation(np.repeat(list("abcdefgh"), N // 8)),
            "n": rng.integers(1, 9, N),
            "w": rng.uniform(0.5, 2, N),
        }
    )
    frame["y"] = 1 + frame["x"] + rng.normal(size=N)
    frame["b"] = (rng.uniform(size=N) < 0.5).astype(int)
    frame["c"] = rng.poisson(2, N)
    frame["k"] = rng.binomial(frame["n"], 0.4)
    return frame


def density_of_pymc(model, x):
    """The log posterior of the model that bambi built, at one of our unconstrained points."""
    built = model.backend.model
    point, start = {}, 0
    for value in built.value_vars:
        shape = np.shape(built.initial_point()[value.name])
        size = int(np.prod(shape))
        point[value.name] = x[start : start + size].reshape(shape)
        start += size
    return float(built.compile_logp(mode="FAST_COMPILE")(point))


@pytest.mark.parametrize(
    ("formula", "family"),
    [
        ("y ~ x + o", "gaussian"),
        ("b ~ x", "bernoulli"),
        ("c ~ x + bs(x, df=4) + offset(w)", "poisson"),
        ("p(k, n) ~ x", "binomial"),
        ("y ~ x + (x | g)", "t"),
        ("o ~ x", "categorical"),
    ],
)
def test_the_density_is_that_of_pymc(formula, family, table, rng):
    """On all rows, and summed over two parts of them."""
    model = bambi.Model(formula, table, family=family)
    ours = from_bambi(model, local=None, mode="FAST_COMPILE")
    rows = ours.rows()
    parts = [{name: array[i::2] for name, array in rows.items()} for i in range(2)]
    for x in 0.3 * rng.normal(size=(2, ours.dim)):
        expected = density_of_pymc(model, x)
        prior = ours.log_prior(x)
        assert prior + ours.log_likelihood(x, rows) == pytest.approx(expected, rel=1e-9)
        split = sum(ours.log_likelihood(x, part) for part in parts)
        assert prior + split == pytest.approx(expected, rel=1e-9)


def test_the_intercept_is_that_of_columns_as_they_were(table, rng):
    model = bambi.Model("y ~ x + o", table)
    ours = from_bambi(model)
    draws = rng.normal(size=(5, ours.dim))
    named = ours.constrain(draws)
    means = table["x"].mean(), (table["o"] == "v").mean(), (table["o"] == "w").mean()
    coefficients = np.column_stack([named["x"], named["o"]])
    np.testing.assert_allclose(
        named["Intercept"], named["Intercept_centred"] - coefficients @ np.array(means)
    )


def test_group_specific_terms_become_local_parameters(table, rng):
    """The integral over groups is that of our own formula, whose priors are bambi's."""
    sd = bambi.Prior("Normal", mu=0, sigma=bambi.Prior("HalfNormal", sigma=1.0))
    normal = bambi.Prior("Normal", mu=0, sigma=2.0)
    model = bambi.Model(
        "y ~ 1 + x + (1 | g) + (0 + x | g)",
        table,
        priors={
            "Intercept": normal,
            "x": normal,
            "sigma": bambi.Prior("HalfNormal", sigma=1.5),
            "1|g": sd,
            "x|g": sd,
        },
        center_predictors=False,
    )
    theirs = from_bambi(model)
    assert isinstance(theirs, PlateModel)
    assert theirs.levels[0].name == "g"
    assert theirs.group_names[0].tolist() == sorted(set(table["g"]))
    assert set(theirs.levels[0].names) == {"1|g", "x|g"}
    ours = linear(
        ["Intercept", "x"],
        "normal(0, 2)",
        scale_prior="half_normal(1.5)",
        groups="g",
        varying=["Intercept", "x"],
        sd_prior="half_normal(1)",
        lkj=None,
    )
    columns = np.column_stack([np.ones(N), table["x"]])
    codes = pd.factorize(table["g"], sort=True)[0]
    own_rows = {"X": columns, "Z": columns, "y": table["y"].to_numpy(), "group": codes}
    own_names = ["Intercept", "x", "log(sigma)", "log(sd_g__Intercept)", "log(sd_g__x)"]
    assert list(ours.names) == own_names
    places = [
        theirs.names.index(name)
        for name in ("Intercept", "x", "log(sigma)", "log(1|g_sigma)", "log(x|g_sigma)")
    ]
    x = 0.3 * rng.normal(size=5)
    other = np.zeros(5)
    other[places] = x
    their_rows = dict(theirs.rows()) | {"group": codes}
    assert theirs.log_prior(other) == pytest.approx(ours.log_prior(x), rel=1e-9)
    assert theirs.log_likelihood(other, their_rows) == pytest.approx(
        ours.log_likelihood(x, own_rows), abs=0.02
    )


@pytest.mark.parametrize("terms", ["(1 | g)", "(o | g)"])
def test_rows_of_known_groups_have_the_effects_that_bambi_reports(terms, table, rng):
    """bambi's latent variables are standardised effects, which we do not report."""
    model = from_bambi(bambi.Model(f"b ~ x + {terms}", table, family="bernoulli"))
    plate, n = model.program.plate, 8
    assert not any(name.endswith("_offset") for name in plate.shown)
    rows, point = model.rows(), np.zeros(model.dim)
    _, constants, _ = plate.example
    seeds = rng.integers(1 << 32, size=2, dtype=np.uint32)
    far = np.where(np.arange(n) % 2, -60.0, 60.0)  # decides a response
    values = {name: np.zeros((n, *model.levels[0].entries(name)[1])) for name in plate.shown}
    values["1|g"] += far
    inputs, _ = model.program.prepared(dict(rows) | {"group": rows["g"]})
    drawn = plate.simulated(point, values, np.ones(n), inputs["rows"], constants, seeds)
    assert np.array_equal(drawn["b"], far[inputs["index"]] > 0)


def test_hidden_effects_that_rows_depend_on_are_refused(table):
    model = from_bambi(bambi.Model("b ~ x + (1 | g)", table, family="bernoulli"))
    forward = model.program.plate.graph.forward
    assert forward._hidden(("1|g",)) == ""
    assert forward._hidden(()) == "1|g_offset"


def test_the_factor_with_most_levels_is_local(table):
    crossed = bambi.Model("b ~ x + (1 | g) + (1 | o)", table, family="bernoulli")
    model = from_bambi(crossed)
    assert [level.name for level in model.levels] == ["g"]
    assert "1|o_offset[2]" in model.names
    with pytest.raises(BadInputError, match=r"'planet'.*The factors: g, o"):
        from_bambi(crossed, local="planet")


def test_what_bambi_hides_is_refused(table):
    with pytest.raises(BadInputError, match=r"weights.*`y \| weights\(w\) ~ x`"):
        from_bambi(bambi.Model("weighted(y, w) ~ x", table))
    with pytest.raises(BadInputError, match=r"must be a bambi.Model, not a dict"):
        from_bambi({})


def test_it_is_the_model_written_by_hand(table, rng):
    """A Poisson regression in PyMC, with bambi's priors for the same parameters."""
    prior = bambi.Prior("Normal", mu=0, sigma=1.0)
    theirs = from_bambi(bambi.Model("c ~ 0 + x", table, family="poisson", priors={"x": prior}))
    with pm.Model() as written:
        x = pm.Data("columns", table["x"].to_numpy())
        slope = pm.Normal("slope", 0, 1.0)
        pm.Poisson("c", pm.math.exp(slope * x), observed=table["c"].to_numpy())
    ours = from_pymc(written, split={"columns": 0, "c": 0})
    for point in rng.normal(size=(3, 1)):
        expected = ours.log_likelihood(point, ours.rows()) + ours.log_prior(point)
        found = theirs.log_likelihood(point, theirs.rows()) + theirs.log_prior(point)
        assert found == pytest.approx(expected, rel=1e-9)
