"""A formula with groups within groups, from a table to local parameters and predictions."""

import numpy as np
import pytest
from scipy.stats import norm

import quorate
from quorate.errors import BadInputError
from quorate.models import design, linear, logistic

N_STATES, N_COUNTIES, N_ROWS = 12, 4, 480
TRUTH = {"Intercept": 0.5, "x": -1.0, "sigma": 0.5, "sd_state__Intercept": 1.0}
TRUTH |= {"sd_state:county__Intercept": 0.6}


@pytest.fixture(scope="module")
def table(seed):
    rng = np.random.default_rng(seed)
    n_pairs = N_STATES * N_COUNTIES
    pair = np.concatenate([np.arange(n_pairs), rng.integers(0, n_pairs, N_ROWS - n_pairs)])
    state, county = np.divmod(pair, N_COUNTIES)
    x = rng.normal(size=N_ROWS)
    eta = 0.5 - x + rng.normal(0, 1.0, N_STATES)[state]
    eta += rng.normal(0, 0.6, (N_STATES, N_COUNTIES))[state, county]
    return {
        "y": eta + rng.normal(0, 0.5, N_ROWS),
        "high": (rng.random(N_ROWS) < 1 / (1 + np.exp(-eta))).astype(int),
        "x": x,
        "state": np.array([f"S{i:02d}" for i in state]),
        "county": np.array([f"c{i}" for i in county]),
    }


@pytest.fixture(scope="module")
def result(table, tmp_path_factory):
    model = linear(design("y ~ x + (1 | state/county)", table))
    return quorate.sample(
        model,
        table,
        workers=2,
        draws=400,
        progress=False,
        run_dir=tmp_path_factory.mktemp("nested") / "run",
    )


def pairs(table):
    both = zip(table["state"], table["county"], strict=True)
    return sorted({f"{state}:{county}" for state, county in both})


def test_the_posterior_holds_the_truth(result):
    """Each true value lies within 5 sds: false alarms about 5e-6 with normal tails, in all."""
    assert list(result.variables) == list(TRUTH)
    for name, value in TRUTH.items():
        draws = result.variables[name]
        if name.startswith("sd_"):  # closer to normal on the logarithmic scale
            draws, value = np.log(draws), np.log(value)
        assert abs(draws.mean() - value) < 5 * draws.std()


def test_both_levels_are_summarised(result, table):
    outer, inner = result.local.summary(), result.local.summary("state:county")
    assert len(outer) == N_STATES
    assert len(inner) == len(pairs(table))
    np.testing.assert_array_equal(result.local.dataset("state:county")["group"], pairs(table))
    # The rows of a county tell most of u + v: its mean is near the mean residual.
    rows = (table["state"] == "S03") & (table["county"] == "c1")
    means = {name: result.variables[name].mean() for name in ("Intercept", "x")}
    residual = (table["y"] - means["Intercept"] - means["x"] * table["x"])[rows].mean()
    u = result.local.dataset()["mean"].sel(group="S03").item()
    v = result.local.dataset("state:county")["mean"].sel(group="S03:c1").item()
    assert abs(u + v - residual) < 0.5 * abs(residual) + 5 * 0.5 / np.sqrt(rows.sum())


def test_rows_of_known_and_new_groups_are_predicted(result):
    """Known groups exactly; new ones by their spread, with false alarms below 1e-6."""
    rows = {
        "x": np.array([0.0, 1.0, 0.5, 0.0]),
        "state": np.array(["S03", "S03", "S05", "nowhere"]),
        "county": np.array(["c1", "new", "new", "c1"]),
    }
    found = result.predict(rows, n=400)
    np.testing.assert_array_equal(found.is_new, [False, True, True, True])
    joint = result.local.joint(["S03", "S05"], 400)
    (outer, u), (inner, v) = joint.levels
    points = result.unconstrained[joint.numbers]
    fixed = points[:, [0]] + points[:, [1]] * rows["x"]
    of_county = v[:, list(inner).index("S03:c1"), 0]
    np.testing.assert_allclose(found.expected[:, 0], fixed[:, 0] + u[:, 0, 0] + of_county)
    sds = np.exp(points[:, 3:5])
    known = fixed[:, 1:3] + u[:, :, 0]
    z = np.column_stack(
        [
            (found.expected[:, 1:3] - known) / sds[:, [1]],
            (found.expected[:, 3] - fixed[:, 3]) / np.hypot(*sds.T),
        ]
    )
    n, limit = len(z), norm.isf(1e-7)
    assert list(outer) == ["S03", "S05"]
    assert np.abs(z.mean(axis=0)).max() < limit / np.sqrt(n)
    assert np.abs((z**2).mean(axis=0) - 1).max() < 1.5 * limit * np.sqrt(2 / n)
    assert found.summary()["new_group"].tolist() == [False, True, True, True]
    with pytest.raises(BadInputError, match="No column named `county`"):
        result.predict({name: rows[name] for name in ("x", "state")})


def test_a_logistic_formula_runs_and_draws_both_levels(table, tmp_path):
    model = logistic(design("high ~ x + (1 | state) + (1 | state:county)", table))
    result = quorate.sample(
        model, table, workers=2, draws=60, progress=False, run_dir=tmp_path / "run"
    )
    draws = result.local.draws(["S03"], 20)
    within = [name for name in pairs(table) if name.startswith("S03:")]
    np.testing.assert_array_equal(draws["inner"], within)
    assert np.isfinite(draws["r_state:county"]).all()
    shifted = result.predict({"x": np.zeros(1), "state": ["S03"], "county": ["c1"]}, n=50)
    assert ((shifted.expected > 0) & (shifted.expected < 1)).all()


def fitted_pairs(states, counties, table):
    """A run whose labels of states and counties are these."""
    given = {
        "y": table["y"],
        "x": table["x"],
        "state": states[[int(name[1:]) for name in table["state"]]],
        "county": counties[[int(name[1:]) for name in table["county"]]],
    }
    model = linear(design("y ~ x + (1 | state/county)", given))
    return quorate.sample(model, given, workers=2, draws=60, check=False, progress=False)


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_groups_are_known_whatever_the_type_of_their_column(unit, table):
    days = np.datetime64("2024-03-01").astype(f"M8[{unit}]") + np.arange(N_STATES).astype("m8[D]")
    result = fitted_pairs(days, np.arange(N_COUNTIES), table)
    assert result.local.summary("state:county").index[0][0] == "2024-03-01:0"
    for state in (days[:2], days[:2].astype("M8[s]"), days[:2].astype("M8[D]").astype(str)):
        for county in (np.array([1, 99]), np.array([1.0, 99.0]), ["1", "99"]):
            found = result.predict({"x": np.zeros(2), "state": state, "county": county}, n=5)
            np.testing.assert_array_equal(found.is_new, [False, True])


def test_pairs_whose_names_join_to_the_same_text_are_different_groups(table):
    states = np.array([f"S{i}" for i in range(N_STATES - 2)] + ["a", "a:b"])
    result = fitted_pairs(states, np.array(["b:c", "c", "d", "e"]), table)
    labels = result.local.summary("state:county").index.get_level_values(0)
    assert labels.is_unique
    assert {"a:b:c", '"a:b":c', "a:c", '"a:b":b:c'} <= set(labels)
    rows = {"x": np.zeros(3), "state": ["a", "a:b", "a:b:b"], "county": ["b:c", "c", "c"]}
    found = result.predict(rows, n=60)
    np.testing.assert_array_equal(found.is_new, [False, False, True])
    (_, u), (inner, v) = (joint := result.local.joint(["a", "a:b"], 60)).levels
    at = [list(inner).index(name) for name in ("a:b:c", '"a:b":c')]
    intercepts = result.unconstrained[joint.numbers, 0][:, None]
    np.testing.assert_allclose(found.expected[:, :2], intercepts + u[:, :, 0] + v[:, at, 0])
