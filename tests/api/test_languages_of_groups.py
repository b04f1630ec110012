"""The same model by formula, functions, NumPyro and PyMC has the same posterior."""

from functools import cache

import numpy as np
import pytest
from scipy.stats import norm

import quorate
from helpers.grouped import frozen
from helpers.languages import LANGUAGES, model, names, table

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
FAMILIES = pytest.mark.parametrize("family", ["logistic", "linear"])
OTHERS = pytest.mark.parametrize("language", LANGUAGES[1:])
# Log units, by which integrals may differ: Gaussian ones are in closed form. The nodes of others
# are chosen so that each is off by 0.1 at most at 4 sds.
MOST = {"linear": 0.05, "logistic": 0.2}
N_POINTS = 20


@pytest.fixture(scope="module")
def rows(seed):
    return {name: table(name, np.random.default_rng([seed, 4])) for name in ("logistic", "linear")}


@pytest.fixture(scope="module")
def built(rows):
    """The model in a language, made once: programs take seconds to be examined."""

    @cache
    def build(language, family):
        if language in ("numpyro", "pymc"):
            pytest.importorskip(language)
        return model(language, family, rows[family])

    return build


# ---------------------------------------------------------------- densities


def shard_of(rows):
    """All rows as a shard of any of the models."""
    ones = np.ones(len(rows["y"]))
    columns = {"X": np.column_stack([ones, rows["x"]]), "Z": ones[:, None].copy()}
    return frozen(
        {name: array.copy() for name, array in rows.items()} | columns | {"group": rows["g"].copy()}
    )


def places(model, language, family):
    """Where in its unconstrained vector a model has intercept, slope and log sds."""
    plain = [name.removeprefix("log(").removesuffix(")") for name in model.names]
    return [plain.index(name) for name in names(language, family)]


def points_around(formula, family, shard, rng):
    """Points about two sds from the mode, in the order of `names`."""
    fit = formula.rough_fit(shard, 1)
    normals = rng.standard_normal((N_POINTS, formula.dim))
    points = fit.mode + 1.2 * normals @ np.linalg.cholesky(fit.cov).T
    return points[:, places(formula, "formula", family)]


def log_posteriors(model, language, family, points, shard):
    """Log posteriors at points, less their mean: constants do not matter."""
    own = np.empty_like(points)
    own[:, places(model, language, family)] = points
    values = [model.log_prior(x) + model.log_likelihood(x, shard) for x in own]
    return np.array(values) - np.mean(values)


@FAMILIES
@OTHERS
def test_log_posteriors_are_the_same(language, family, rows, built, rng):
    shard = shard_of(rows[family])
    formula = built("formula", family)
    points = points_around(formula, family, shard, rng)
    expected = log_posteriors(formula, "formula", family, points, shard)
    found = log_posteriors(built(language, family), language, family, points, shard)
    assert np.abs(found - expected).max() < MOST[family]
    assert np.ptp(expected) > 1  # or anything would agree


@FAMILIES
def test_another_prior_has_another_density(family, rows, rng):
    """The control: half-normal(0.5) in place of half-normal(1)."""
    shard = shard_of(rows[family])
    formula, other = (model("formula", family, rows[family], scale) for scale in (1.0, 0.5))
    points = points_around(formula, family, shard, rng)
    one, two = (log_posteriors(m, "formula", family, points, shard) for m in (formula, other))
    assert np.abs(one - two).max() > 2 * MOST[family]


# ---------------------------------------------------------------- draws


def moments(model, language, rows, seed):
    """Means of the parameters by an exact run, and their Monte Carlo errors."""
    result = quorate.sample(
        model,
        rows,
        workers=2,
        redundancy=1,
        engine=quorate.Processes(1),  # programs are compiled once
        draws=400,
        seed=seed,
        progress=False,
        check=False,
    )
    assert result.method == "exact"
    summary = result.summary().loc[list(names(language, "logistic"))]
    return summary["mean"].to_numpy(), summary["mcse"].to_numpy()


def largest_gap(one, other):
    """Of means, in standard errors of their difference."""
    return np.abs((one[0] - other[0]) / np.hypot(one[1], other[1])).max()


# A false alarm in a million runs of all comparisons, with 10 % for errors of the errors.
LIMIT = 1.1 * norm.isf(1e-6 / (2 * 3 * (len(LANGUAGES) - 1)))


@pytest.fixture(scope="module")
def by_formula(rows, built, seed):
    return moments(built("formula", "logistic"), "formula", rows["logistic"], seed)


@OTHERS
def test_draws_have_the_same_means(language, rows, built, by_formula, seed):
    found = moments(built(language, "logistic"), language, rows["logistic"], seed + 1)
    assert largest_gap(found, by_formula) < LIMIT


def test_another_prior_is_found_out(rows, by_formula, seed):
    """The control: a prior that wants groups to be alike."""
    other = model("formula", "logistic", rows["logistic"], tau_scale=0.2)
    found = moments(other, "formula", rows["logistic"], seed + 1)
    assert largest_gap(found, by_formula) > LIMIT
