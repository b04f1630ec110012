"""Programs with two levels of groups that nest: the same model as by a formula."""

import pickle
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from helpers.assertions import assert_mean
from helpers.nested_languages import (
    LOCAL,
    N_STATES,
    SPLIT,
    by_formula,
    by_functions,
    by_numpyro,
    by_pymc,
    centred,
    non_centred,
    shard_of,
    table,
)
from quorate.errors import BadInputError
from quorate.models import Real, from_numpyro
from quorate.models.groups.accuracy import Effort
from quorate.models.groups.programs.anchors import with_effort

LANGUAGES = pytest.mark.parametrize(
    "language", ["functions", "centred", "non_centred", "pymc_centred", "pymc"]
)
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
MOST = 0.2  # log units by which integrals may differ: each may be off by 0.1
N_POINTS = 10
STATES = [1, 3, 4, 7, 9]


@pytest.fixture(scope="module")
def data(seed):
    """Rows, and the state of each county."""
    return table(np.random.default_rng([seed, 6]))


class Models(dict):
    """The model in each language, made when it is first asked for: programs are compiled once."""

    def __init__(self, rows, state_of):
        self.makers = {
            "formula": lambda: by_formula(rows),
            "functions": by_functions,
            "centred": lambda: by_numpyro(centred, rows, state_of),
            "non_centred": lambda: by_numpyro(non_centred, rows, state_of),
            "pymc_centred": lambda: by_pymc(rows, state_of),
            "pymc": lambda: by_pymc(rows, state_of, centred=False),
        }

    def __missing__(self, language):
        self[language] = self.makers[language]()
        return self[language]


@pytest.fixture(scope="module")
def models(data):
    pytest.importorskip("jax")
    pytest.importorskip("numpyro")
    pytest.importorskip("pymc")
    return Models(*data)


@pytest.fixture(scope="module")
def shard(data):
    """The rows of some states: programs shrink, and counties get other numbers."""
    return shard_of(data[0], STATES)


@pytest.fixture
def points(models, shard, rng):
    """About two sds from the mode. All languages have the same order of parameters."""
    fit = models["formula"].rough_fit(shard, 1)
    return fit.mode + 1.2 * rng.standard_normal((N_POINTS, 4)) @ np.linalg.cholesky(fit.cov).T


def log_posteriors(model, points, shard):
    """Less their mean: constants do not matter."""
    values = model.log_prior_many(points) + model.log_likelihood_many(points, shard)
    return values - np.mean(values)


def log_joint(points, u, v, shard, is_centred, is_raw):
    """log p(x, u, v, rows) at points, by hand; centred counties have their state within v."""
    a, b, log_tau, log_kappa = points[..., None].transpose(1, 0, 2)
    tau, kappa = np.exp(log_tau), np.exp(log_kappa)
    _, of_state = np.unique(shard["group"], return_inverse=True)
    pairs, of_county = np.unique(
        np.stack([shard["group"], shard["inner"]]), axis=1, return_inverse=True
    )
    within = np.searchsorted(np.unique(shard["group"]), pairs[0])
    states = tau * u if is_raw else u
    means = states[:, within] if is_centred else 0.0
    eta = a + b * shard["x"] + v[:, of_county] + (0.0 if is_centred else states[:, of_state])
    prior = stats.norm.logpdf(points[:, :2], scale=1.5).sum(axis=1)
    prior += (stats.halfnorm.logpdf(np.exp(points[:, 2:])) + points[:, 2:]).sum(axis=1)
    own = stats.norm.logpdf(u, scale=1.0 if is_raw else tau).sum(axis=1)
    own += stats.norm.logpdf(v, means, kappa).sum(axis=1)
    return prior + own + stats.bernoulli.logpmf(shard["y"], expit(eta)).sum(axis=1)


@LANGUAGES
def test_the_joint_density_is_that_of_the_model(language, models, points, shard, rng):
    """Integrals of the same density are the same, so one language of each kind is integrated."""
    model = models[language]
    two, backend = model.program.two, model.backend
    inputs, nesting = two.prepared(shard)
    u = rng.normal(size=(N_POINTS, nesting.n_outer))
    v = rng.normal(size=(N_POINTS, nesting.n_inner))
    found = []
    for x, outer, inner in zip(points, u[..., None], v[..., None], strict=True):
        own, given = two.densities(x, outer, inner, inputs, backend)
        found.append(float(two.log_prior(x, backend) + own.sum() + given.sum()))
    in_counties = language in ("functions", "centred", "pymc_centred")
    expected = log_joint(points, u, v, shard, in_counties, not in_counties)
    gaps = np.array(found) - expected
    assert np.ptp(gaps) < 1e-9 * np.abs(expected).max()  # functions leave out constants
    other = log_joint(points, u, v, shard, not in_counties, not in_counties)
    assert np.ptp(np.array(found) - other) > 1  # the control: counties centred otherwise
    assert model.group_columns == "state/county"
    assert [level.name for level in model.levels] == ["state", "state:county"]


@pytest.mark.parametrize("language", ["functions", "non_centred"])
def test_log_posteriors_are_those_of_the_formula(language, models, points, shard):
    expected = log_posteriors(models["formula"], points, shard)
    assert np.abs(log_posteriors(models[language], points, shard) - expected).max() < MOST
    assert np.ptp(expected) > 1  # or anything would agree


def test_another_prior_has_another_density(data, models, points, shard):
    """The control: half-normal(0.5) in place of half-normal(1)."""
    other = log_posteriors(by_formula(data[0], 0.5), points, shard)
    assert np.abs(other - log_posteriors(models["formula"], points, shard)).max() > 2 * MOST


def test_gradients_are_those_of_the_integral(models, points, shard):
    model, x = models["functions"], models["formula"].rough_fit(shard, 1).mode
    given = with_effort(model._ready(shard).given, Effort(19, 6))
    moves = 1e-5 * np.eye(4)
    ups, downs = (
        np.array([model.backend.one(model.at.value, x + sign * e, given) for e in moves])
        for sign in (1, -1)
    )
    _, gradient = model.backend.one(model.at.value_and_gradient, x, given)
    # Derivatives are taken under the integral, and nodes move with the point: the two differ by
    # the error of the quadrature
    assert np.allclose(gradient, (ups - downs) / 2e-5, atol=1e-3)
    values, gradients = model.log_likelihood_and_gradient_many(points[:4], shard)
    value, one = model.log_likelihood_and_gradient(points[1], shard)
    assert np.isclose(value, values[1])
    assert np.allclose(one, gradients[1])


def test_another_worker_finds_the_same_value(models, points, shard):
    model = models["functions"]
    other = pickle.loads(cloudpickle.dumps(model))
    expected = model.log_likelihood(points[0], shard)
    assert np.isclose(other.log_likelihood(points[0], shard), expected, rtol=1e-13)


def of_formula(models, points, shard):
    """Means and sds of both levels at one point; counties are centred at their states."""
    found = models["formula"].local_moments(points[:1], shard)
    return {
        name: (of.groups, of.centres + of.sums[0], np.sqrt(of.sums[1] - of.sums[0] ** 2))
        for name, of in found.items()
    }


def test_moments_are_those_of_the_formula(models, points, shard):
    """But for the errors of both quadratures, which may be .1 log units each."""
    expected = of_formula(models, points, shard)
    for language, places in (("functions", (0, None)), ("non_centred", (1, 0))):
        found = models[language].local_moments(points[:1], shard)
        for (level, of), place in zip(found.items(), places, strict=True):
            groups, means, sds = expected[level]
            assert np.array_equal(of.groups, groups)
            if place is None:
                continue
            own = of.centres + of.sums[0]
            spread = np.sqrt(of.sums[1] - of.sums[0] ** 2)
            assert np.abs((own[:, place] - means[:, 0]) / sds[:, 0]).max() < 0.08
            assert np.abs(spread[:, place] / sds[:, 0] - 1).max() < 0.08
    assert models["non_centred"].levels[0].names == ("raw", "u")
    assert models["pymc"].levels[0].names == ("raw", "u")
    assert models["pymc_centred"].levels[1].names == ("v",)


def test_draws_of_both_levels(models, points, shard, rng):
    """u and v are drawn together: v - u has the moments of the formula's counties."""
    n, model, asked = 1_000, models["functions"], np.array([7, 3])
    repeated = np.repeat(points[:1], n, axis=0)

    def uniforms(level, groups, numbers):
        return rng.uniform(size=(n, len(groups), numbers))

    found = model.local_draws(repeated, shard, asked, uniforms)
    (codes, u), (inner, v) = found["state"], found["state:county"]
    assert codes.tolist() == [3, 7]
    within = np.array([shard["group"][shard["inner"] == code][0] for code in inner])
    assert set(within) == {3, 7}
    moments = of_formula(models, points, shard)
    offsets = v[..., 0] - u[:, np.searchsorted(codes, within), 0]
    for level, some, draws in (("state", codes, u[..., 0]), ("state:county", inner, offsets)):
        groups, means, sds = (each[..., 0] if each.ndim > 1 else each for each in moments[level])
        places = np.searchsorted(groups, some)
        white = (draws - means[places]) / sds[places]
        assert_mean(white, np.zeros(len(some)))
        assert_mean(white**2, np.ones(len(some)))
        # The control: draws from distributions that are a fifth of an sd off
        with pytest.raises(AssertionError):
            assert_mean(white + 0.2, np.zeros(len(some)))


def test_rows_are_those_of_their_groups(models, points, shard, rng):
    """Rows at draws of both levels: densities come back in the order of their places."""
    model, n = models["functions"], 3
    numbers = {}

    def uniforms(level, groups, wanted):
        return numbers.setdefault(level, rng.uniform(size=(n, len(groups), wanted)))

    groups = np.array([3, 7])
    places, rows = model.rows_of_groups(points[:n], shard, groups, uniforms)
    inner, v = model.local_draws(points[:n], shard, groups, uniforms)["state:county"]
    at = [list(inner).index(code) for code in shard["inner"][places]]
    eta = points[:n, :1] + points[:n, 1:2] * shard["x"][places] + v[:, at, 0]
    expected = stats.bernoulli.logpmf(shard["y"][places], 1 / (1 + np.exp(-eta)))
    assert np.allclose(rows.log_likelihoods(), expected)
    assert sorted(places) == np.flatnonzero(np.isin(shard["group"], groups)).tolist()


def test_responses_of_pymc_are_those_of_both_groups(models, points, shard, rng):
    """Whitened sums over draws, row by row; a false alarm in 1e6."""
    n, numbers, groups = 1_000, {}, np.array([3, 7])
    model, repeated = models["pymc_centred"], np.repeat(points[:1], n, axis=0)

    def uniforms(level, some, wanted):
        return numbers.setdefault(level, rng.uniform(size=(n, len(some), wanted)))

    places, rows = model.rows_of_groups(repeated, shard, groups, uniforms)
    inner, v = model.local_draws(repeated, shard, groups, uniforms)["state:county"]
    seeds = rng.integers(1 << 32, size=(n, 2), dtype=np.uint32)
    drawn = rows.responses(SimpleNamespace(seeds=lambda: seeds))["obs"]
    assert np.array_equal(rows.observed()["obs"], shard["y"][places])

    def furthest(of_counties):
        at = [list(inner).index(code) for code in shard["inner"][places]]
        eta = points[0, 0] + points[0, 1] * shard["x"][places] + of_counties[:, at, 0]
        risk = expit(eta)
        return np.abs((drawn - risk).sum(axis=0) / np.sqrt((risk - risk**2).sum(axis=0))).max()

    limit = stats.norm.isf(1e-6 / (2 * len(places)))
    assert furthest(v) < limit
    assert furthest(v + 0.8) > limit  # the control
    assert pickle.loads(cloudpickle.dumps(model)).names == model.names


# ---------------------------------------------------------------- what is refused


def test_functions_that_are_refused():
    def refused(match, **changed):
        with pytest.raises(BadInputError, match=match):
            by_functions(**changed)

    refused("parameters of both levels, as", local={"u": Real()})
    refused("a function for each level", log_local=lambda p, local: 0.0)
    refused('backend="jax"', backend="numpy")
    refused("4 local parameters", local={**LOCAL, "county": {"v": Real(3)}})
    refused("have the name u", local={**LOCAL, "county": {"u": Real()}})
    refused("one column, or two", groups="state/county/town")


def test_programs_that_are_refused(data):
    numpyro = pytest.importorskip("numpyro")
    dist = numpyro.distributions
    rows, state_of = data

    with pytest.raises(BadInputError, match=r"more than one group|Name the outer plate first"):
        by_numpyro(centred, rows, state_of, local="counties/states")
    crossed = rows | {"state": np.arange(len(rows["y"])) % N_STATES}
    with pytest.raises(BadInputError, match="lie in several groups"):
        by_numpyro(non_centred, crossed, state_of)
    with pytest.raises(BadInputError, match="no dimension named 'towns'"):
        by_pymc(rows, state_of, local="states/towns")
    with pytest.raises(BadInputError, match="no plate named 'towns'"):
        by_numpyro(non_centred, rows, state_of, local="states/towns")

    def grid(state, county, x, y, n_states, n_counties):
        a = numpyro.sample("a", dist.Normal(0, 1))
        with numpyro.plate("states", n_states, dim=-2):
            u = numpyro.sample("u", dist.Normal(0, 1))
            with numpyro.plate("counties", n_counties, dim=-1):
                v = numpyro.sample("v", dist.Normal(u, 1))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("obs", dist.Bernoulli(logits=a + v[state, county]), obs=y)

    with pytest.raises(BadInputError, match="lies in both plates"):
        by_numpyro(grid, rows, state_of)

    def of_fixed_size(state, county, x, y):
        return non_centred(state, county, x, y, 12, 40)

    with pytest.raises(BadInputError, match="Make the sizes of both plates"):
        from_numpyro(of_fixed_size, split=SPLIT, data=rows, local="states/counties")
