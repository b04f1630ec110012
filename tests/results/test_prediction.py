"""Prediction of rows: of groups that a run knows, of new ones, and of models without groups."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import quorate
from helpers.assertions import assert_covariance, assert_mean
from helpers.processes import MeanModel
from quorate.errors import BadInputError
from quorate.models import design, linear, logistic, poisson
from quorate.models.regressions.families import Linear, Logistic, NegativeBinomial, Poisson
from quorate.models.regressions.robust import Student
from quorate.results.some_draws import scattered

N_GROUPS, SIZE, TAU, SIGMA = 100, 5, 0.8, 0.6
DRAWS = 400
FEW = {"workers": 2, "draws": DRAWS, "progress": False, "check": False, "redundancy": 1}


def shop(number):
    return f"shop {number:03}"


def responses(x, u, rng):
    return 0.5 - 0.7 * x + u + SIGMA * rng.normal(size=len(x))


@pytest.fixture(scope="module")
def truth(seed):
    """Intercepts of all groups that the run knows."""
    return TAU * np.random.default_rng([seed, 1]).normal(size=N_GROUPS)


@pytest.fixture(scope="module")
def fitted(truth, seed):
    """A linear regression of rows of text groups, by a formula."""
    rng = np.random.default_rng([seed, 2])
    g = np.repeat(np.arange(N_GROUPS), SIZE)
    x = rng.normal(size=len(g))
    table = {"y": responses(x, truth[g], rng), "x": x, "shop": np.array([shop(i) for i in g])}
    model = linear(design("y ~ x + (1 | shop)", table))
    return quorate.sample(model, table, seed=seed, **FEW)


def parts(result, numbers):
    """Intercept, slope, sd of rows and sd of groups of some draws, each (n, 1)."""
    variables = result.variables
    names = ("Intercept", "x", "sigma", "sd_shop__Intercept")
    return [np.asarray(variables[name])[numbers].reshape(-1, 1) for name in names]


# ---------------------------------------------------------------- known groups and new ones


def test_known_groups_are_predicted_with_their_own_coefficients(fitted):
    rows = {"x": np.array([0.0, 1.0, -2.0]), "shop": np.array([shop(70), shop(4), shop(70)])}
    found = fitted.predict(rows, 100)
    joint = fitted.local.joint([shop(4), shop(70)], 100)
    intercept, slope, _, _ = parts(fitted, joint.numbers)
    labels, draws = joint.levels[0]
    assert labels.tolist() == [shop(4), shop(70)]
    u = draws[:, [1, 0, 1], 0]
    np.testing.assert_allclose(found.expected, intercept + slope * rows["x"] + u, rtol=1e-12)
    assert not found.is_new.any()
    summary = found.summary(0.5)
    np.testing.assert_allclose(summary["mean"], found.expected.mean(axis=0))
    np.testing.assert_allclose(summary["lower"], np.quantile(found.expected, 0.25, axis=0))
    np.testing.assert_allclose(
        summary["response_upper"], np.quantile(found.responses, 0.75, axis=0)
    )


def test_new_groups_are_drawn_from_the_distribution_of_groups(fitted):
    """With the global parameters taken off, what is left is standard normal, group by group."""
    rows = {"x": np.ones(20), "shop": np.array([f"new {number:02}" for number in range(20)])}
    found = fitted.predict(rows, 200)
    assert found.is_new.all()
    intercept, slope, sigma, tau = parts(fitted, scattered(DRAWS, 200))
    left = (found.expected - intercept - slope) / tau
    assert_mean(left, np.zeros(20))
    assert_mean(left.reshape(-1, 1) ** 2, np.ones(1))
    noise = (found.responses - found.expected) / sigma
    assert_mean(noise, np.zeros(20))
    assert_mean(noise.reshape(-1, 1) ** 2, np.ones(1))
    assert_covariance(np.column_stack([left.ravel(), noise.ravel()]), np.eye(2))


def test_rows_of_a_new_group_share_its_coefficients(fitted):
    rows = pd.DataFrame({"x": [0.0, 1.0, 0.0], "shop": ["new", "new", "newer"]})
    found = fitted.predict(rows, 50)
    _, slope, _, _ = parts(fitted, scattered(DRAWS, 50))
    np.testing.assert_allclose(found.expected[:, [1]] - found.expected[:, [0]], slope, rtol=1e-9)
    assert not np.allclose(found.expected[:, 2], found.expected[:, 0])


def test_new_groups_are_less_certain_than_known_ones(fitted):
    names = [shop(number) for number in range(30)] + [f"new {number}" for number in range(30)]
    summary = fitted.predict({"x": np.zeros(60), "shop": np.array(names)}).summary()
    known, new = summary[~summary["new_group"]], summary[summary["new_group"]]
    assert len(known) == len(new) == 30
    assert known["sd"].max() < 0.75 * new["sd"].min()  # about 0.25 and 0.8


def test_the_response_is_not_read(fitted):
    rows = {"x": np.array([0.3]), "shop": np.array([shop(7)])}
    without, with_one = fitted.predict(rows, 60), fitted.predict(rows | {"y": np.array([9.0])}, 60)
    np.testing.assert_array_equal(without.responses, with_one.responses)


def test_intervals_cover_responses_as_often_as_they_say(fitted, truth, seed):
    """80 % of them, of known groups and of new ones; intervals of expected responses do not.

    Widths depend on estimates of σ and τ, which are off by 5 %, and with them 2 % of the
    responses. Five standard deviations, so a false alarm in a million runs.
    """
    rng = np.random.default_rng([seed, 3])
    n_new = 900
    u = np.concatenate([truth, TAU * rng.normal(size=n_new)])
    x = rng.normal(size=len(u))
    names = [shop(i) for i in range(N_GROUPS)] + [f"new {i}" for i in range(n_new)]
    summary = fitted.predict({"x": x, "shop": np.array(names)}).summary(0.8)
    y = responses(x, u, rng)
    covered = (summary["response_lower"] < y) & (y < summary["response_upper"])
    for is_new in (False, True):
        share = covered[summary["new_group"] == is_new]
        assert abs(share.mean() - 0.8) < 5 * np.hypot(0.4 / np.sqrt(len(share)), 0.02)
    known = ~summary["new_group"]
    narrow = ((summary["lower"] < y) & (y < summary["upper"]))[known].mean()
    assert narrow < 0.8 - 5 * 0.4 / np.sqrt(N_GROUPS)


# ---------------------------------------------------------------- other models


@pytest.fixture(scope="module")
def of_arrays(seed):
    """A logistic regression of arrays, with intercepts and slopes for groups 10, 20, …."""
    rng = np.random.default_rng([seed, 4])
    g = 10 * rng.integers(1, 13, 400)
    columns = np.column_stack([np.ones(400), rng.normal(size=400)])
    y = (rng.random(400) < 1 / (1 + np.exp(-columns[:, 1]))).astype(float)
    model = logistic(["Intercept", "x"], groups="g", varying=["Intercept", "x"])
    data = {"X": columns, "Z": columns, "y": y, "g": g}
    return quorate.sample(model, data, seed=seed, **FEW)


def test_models_of_no_formula_take_arrays(of_arrays):
    columns = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]])
    found = of_arrays.predict({"X": columns, "Z": columns, "group": np.array([120, 20, 999])}, 80)
    np.testing.assert_array_equal(found.is_new, [False, False, True])
    joint = of_arrays.local.joint([20, 120], 80)
    betas = of_arrays.unconstrained[joint.numbers, :2]
    coefficients = betas[:, None] + joint.levels[0][1]  # of groups 20 and 120
    eta = np.einsum("ngj,gj->ng", coefficients, columns[[1, 0]])
    np.testing.assert_allclose(found.expected[:, [1, 0]], 1 / (1 + np.exp(-eta)), rtol=1e-9)
    assert set(np.unique(found.responses)) <= {0.0, 1.0}
    n = found.responses[:, :2].size
    gap = (found.responses - found.expected)[:, :2].mean()
    assert abs(gap) < 5 * 0.5 / np.sqrt(n)  # a false alarm in a million runs


def test_models_without_groups(seed):
    rng = np.random.default_rng([seed, 5])
    x = rng.normal(size=300)
    table = {"n": rng.poisson(np.exp(0.5 + 0.3 * x)).astype(float), "x": x}
    result = quorate.sample(poisson(design("n ~ x", table)), table, seed=seed, **FEW)
    found = result.predict({"x": np.array([0.0, 2.0])}, 50)
    betas = result.unconstrained[scattered(DRAWS, 50)]
    expected = np.exp(betas[:, [0]] + betas[:, [1]] * [0.0, 2.0])
    np.testing.assert_allclose(found.expected, expected, rtol=1e-9)
    assert not found.is_new.any()
    np.testing.assert_array_equal(found.responses, np.round(found.responses))


def test_responses_follow_their_families(rng):
    """Each is a quantile of its law, as SciPy has it."""
    eta, u = rng.normal(size=2000), rng.uniform(size=2000)
    log_scales = 0.5 * rng.normal(size=2000)
    mean, scale = np.exp(eta), np.exp(log_scales)
    scales = log_scales[:, None]
    found = [
        family.responses(eta, scales, u) for family in (Linear(), Poisson(), NegativeBinomial())
    ]
    np.testing.assert_allclose(found[0], stats.norm.ppf(u, eta, scale), atol=1e-9)
    np.testing.assert_array_equal(found[1], stats.poisson.ppf(u, mean))
    np.testing.assert_array_equal(found[2], stats.nbinom.ppf(u, scale, scale / (scale + mean)))
    ones = Logistic().responses(eta, scales, u)
    np.testing.assert_array_equal(ones, u < stats.logistic.cdf(eta))
    trials = rng.integers(0, 30, 2000).astype(float)
    counts = Logistic().responses(eta, scales, u, trials)
    np.testing.assert_array_equal(counts, stats.binom.ppf(u, trials, stats.logistic.cdf(eta)))
    robust = Student().responses(eta, np.column_stack([log_scales, np.full(2000, 1.0)]), u)
    np.testing.assert_allclose(robust, stats.t.ppf(u, np.e, eta, scale), rtol=1e-7)


# ---------------------------------------------------------------- what is refused


def test_errors_say_what_is_missing(fitted, of_arrays, seed):
    with pytest.raises(BadInputError, match=r"No column named `shop`.* groups"):
        fitted.predict({"x": np.zeros(2)})
    with pytest.raises(BadInputError, match="`x`"):
        fitted.predict({"shop": np.array([shop(1)])})
    with pytest.raises(BadInputError, match="no `group`"):
        of_arrays.predict({"X": np.ones((2, 2)), "Z": np.ones((2, 2))})
    with pytest.raises(BadInputError, match=r"no `X` and no `group`.*dictionary"):
        of_arrays.predict([1.0, 2.0])
    with pytest.raises(BadInputError, match="Z has shape"):
        of_arrays.predict({"X": np.ones((2, 2)), "Z": np.ones((2, 1)), "group": np.array([1, 2])})
    with pytest.raises(BadInputError, match="not 0"):
        fitted.predict({"x": np.zeros(1), "shop": np.array(["new"])}, 0)
    rows = {"x": np.zeros(1), "shop": np.array(["new"])}
    with pytest.raises(BadInputError, match="interval must be between 0 and 1, not 94"):
        fitted.predict(rows, 10).summary(94)
    with pytest.raises(BadInputError, match=r"interval must be between 0 and 1, not '0\.9'"):
        fitted.predict(rows, 10).summary("0.9")


def test_columns_of_unequal_length_are_refused(fitted, of_arrays):
    """One row more in a column would otherwise be repeated for all rows."""
    rows = {"x": np.zeros(2), "shop": [shop(1)]}
    for given in (rows, {"x": np.zeros(1), "shop": [shop(1), shop(2)]}):
        with pytest.raises(BadInputError, match=r"differ in length: .*'x': \d, 'shop': \d"):
            fitted.predict(given)
    with pytest.raises(BadInputError, match="'X': 2, 'Z': 2, 'group': 1"):
        of_arrays.predict({"X": np.ones((2, 2)), "Z": np.ones((2, 2)), "group": ["10"]})
    assert fitted.predict(rows | {"x": [0.0], "note": "not read"}, 5).expected.shape == (5, 1)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (pd.Series({"x": 0.0, "shop": "a"}), r"cannot be a Series.*iloc\[\[0\]\]"),
        ([[0.0, "a"]], "cannot be a list.*dictionary"),
        (None, "cannot be a NoneType"),
        ("rows.csv", "cannot be a str. Read the file"),
        ({"x": 0.0, "shop": "a"}, r"`x` is one value, 0.0.*\[0.0\]"),
        ({"x": [0.0], "shop": "a"}, "`shop` is one value, 'a'"),
        ({"x": ["1.5"], "shop": ["a"]}, "`x` holds text, such as '1.5'.*numbers"),
        ({"x": ["a", "b"], "shop": ["a", "b"]}, "`x` holds text, such as 'a'"),
        ({"x": [0.0], "shop": [1]}, "None of the rows has a group that the run knows"),
    ],
)
def test_rows_that_are_no_columns_of_values_are_refused(rows, said, fitted):
    with pytest.raises(BadInputError, match=said):
        fitted.predict(rows)


def test_groups_by_times_with_time_zones_are_read(seed):
    """They are stored in UTC, and numpy would warn of them."""
    rng = np.random.default_rng([seed, 6])
    days = pd.date_range("2024-01-01", periods=6, tz="Europe/Berlin")
    table = pd.DataFrame({"y": rng.normal(size=60), "day": days[np.arange(60) % 6]})
    table["x"] = rng.normal(size=60)
    result = quorate.sample(linear(design("y ~ x + (1 | day)", table)), table, seed=seed, **FEW)
    assert not result.predict(table.head(7), 5).is_new.any()
    assert result.local.draws(days[[1]], 5)["group"].size == 1


def test_models_that_are_no_regressions_are_refused(rng):
    result = quorate.sample(MeanModel(), {"z": rng.normal(size=(40, 2))}, **FEW)
    with pytest.raises(BadInputError, match="MeanModel cannot draw responses"):
        result.predict({"z": np.zeros((1, 2))})
