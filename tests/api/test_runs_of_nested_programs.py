"""A run of a program with groups within groups has the posterior of the formula's run."""

import numpy as np
import pytest
from scipy.stats import norm

import quorate
from helpers.nested_languages import NAMES, by_formula, by_functions, table

# A false alarm in a million, with 10 % for errors of the errors
LIMIT = 1.1 * norm.isf(1e-6 / (2 * len(NAMES["formula"])))
MOST = 0.4  # of an sd, between means of groups: some six standard errors of 200 draws each
ALONE = quorate.Processes(1)  # programs are compiled once


def drawn(model, rows, seed):
    """An exact run on two shards."""
    return quorate.sample(
        model,
        rows,
        workers=2,
        redundancy=1,
        engine=ALONE,
        draws=400,
        seed=seed,
        progress=False,
        check=False,
    )


@pytest.fixture(scope="module")
def rows(seed):
    return table(np.random.default_rng([seed, 7]))[0]


@pytest.fixture(scope="module")
def both_runs(rows, seed):
    pytest.importorskip("jax")
    models = {"programs": by_functions(), "formula": by_formula(rows)}
    return {name: drawn(model, rows, seed + i) for i, (name, model) in enumerate(models.items())}


def test_means_of_global_parameters_agree(both_runs):
    tables = [both_runs[name].summary().loc[list(NAMES[name])] for name in NAMES]
    means, errors = (np.array([table[of] for table in tables]) for of in ("mean", "mcse"))
    gaps = np.abs(means[0] - means[1]) / np.hypot(*errors)
    assert gaps.max() < LIMIT
    sds = tables[0]["sd"].to_numpy()
    assert np.abs((means[0] + sds - means[1]) / np.hypot(*errors)).max() > LIMIT  # the control


def test_groups_of_both_levels_agree(both_runs):
    """Counties of the program are centred at their states, those of the formula at 0."""
    states, counties = (
        {name: result.local.summary(level, engine=ALONE) for name, result in both_runs.items()}
        for level in ("state", "state:county")
    )
    outer = {name: table["mean"].to_numpy() for name, table in states.items()}
    gaps = np.abs(outer["programs"] - outer["formula"]) / states["formula"]["sd"].to_numpy()
    assert gaps.max() < MOST
    labels = [label for label, _ in counties["programs"].index]
    assert labels == [label for label, _ in counties["formula"].index]
    own, other = (counties[name]["mean"].to_numpy() for name in ("programs", "formula"))
    sds = counties["programs"]["sd"].to_numpy()
    names = states["formula"].index.get_level_values(0).astype(str).tolist()
    of_states = outer["formula"][[names.index(label.partition(":")[0]) for label in labels]]
    gaps = np.abs(own - other - of_states) / sds
    assert gaps.max() < MOST
    assert np.mean((own - other) ** 2 / sds**2) > np.mean(gaps**2)  # the control: without states


def test_draws_of_some_groups(both_runs):
    found = both_runs["programs"].local.draws(groups=[3, 5], n=20, engine=ALONE)
    assert found["group"].values.tolist() == [3, 5]
    assert {label.partition(":")[0] for label in found["inner"].values} == {"3", "5"}
    assert found["r_state"].shape[-2:] == (2, 1)
    assert np.isfinite(found["r_state:county"].values).all()


def test_predictions_agree(both_runs, rows):
    """Of a known county, a new one of a known state, and one of a new state."""
    states = np.array([rows["state"][0], rows["state"][0], 90])
    new = {"state": states, "county": np.array([rows["county"][0], 90, 91]), "x": np.zeros(3)}
    found = {name: result.predict(new, n=400, engine=ALONE) for name, result in both_runs.items()}
    assert all(one.is_new.tolist() == [False, True, True] for one in found.values())
    shares, expected = found["programs"].responses.mean(axis=0), found["formula"].expected
    errors = 1.5 * np.sqrt(shares * (1 - shares) / 400)  # draws of both runs are correlated
    gaps = np.abs(shares - expected.mean(axis=0)) / errors
    assert gaps.max() < LIMIT
    far = new | {"x": np.full(3, 8.0)}
    far = both_runs["programs"].predict(far, n=400, engine=ALONE).responses
    assert (np.abs(far.mean(axis=0) - expected.mean(axis=0)) / errors).max() > LIMIT  # the control
