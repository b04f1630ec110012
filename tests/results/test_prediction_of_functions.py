"""Rows of known groups are predicted by functions with local parameters."""

import numpy as np
import pytest

import quorate
from quorate.errors import BadInputError
from quorate.models import Positive, Real, from_functions

SIGMA = 0.1


def model(**more):
    """y ~ N(mean of its shop + b x, 0.1²)."""
    return from_functions(
        lambda p: -0.5 * p["b"] ** 2 - p["tau"],
        lambda p, local, s: -0.5 * ((s["y"] - local["z"] - p["b"] * s["x"]) / SIGMA) ** 2,
        {"b": Real(), "tau": Positive()},
        local={"z": Real()},
        groups="shop",
        log_local=lambda p, local: -0.5 * (local["z"] / p["tau"]) ** 2 - np.log(p["tau"]),
        **more,
    )


def simulate(p, local, rows, rng):
    return local["z"] + p["b"] * rows["x"] + SIGMA * rng.standard_normal(len(rows["x"]))


@pytest.fixture
def rows(rng):
    shop = np.repeat(np.array(["a", "b", "c", "d"]), 25)
    x = rng.normal(size=100)
    means = np.repeat([-2.0, -1.0, 1.0, 2.0], 25)
    return {"shop": shop, "x": x, "y": means + 0.5 * x + SIGMA * rng.normal(size=100)}


def run(given, rows, seed):
    return quorate.sample(given, rows, workers=1, draws=100, seed=seed, progress=False, check=False)


@pytest.mark.filterwarnings("ignore::quorate.errors.QuorateWarning")
def test_rows_of_known_groups_are_predicted(rows, seed):
    result = run(model(simulate=simulate), rows, seed)
    new = {"shop": np.array(["d", "a", "d"]), "x": np.array([0.0, 1.0, 2.0])}
    found = result.predict(new, n=100)
    assert found.responses.shape == (100, 3)
    assert not found.is_new.any()
    # Means of 25 rows are within 0.02 of the truth, and those of 100 draws within 0.01: 7 sds
    assert np.abs(found.responses.mean(axis=0) - [2.0, -1.5, 3.0]).max() < 0.2
    table = found.summary()
    ends = [table["response_lower"], table["response_upper"]]
    assert np.allclose(ends, np.quantile(found.responses, [0.03, 0.97], axis=0))
    with pytest.raises(BadInputError, match=r"does not know \(e\)"):
        result.predict({"shop": ["e"], "x": [0.0]})
    with pytest.raises(BadInputError, match="No column named `shop`"):
        result.predict({"x": [0.0]})


@pytest.mark.filterwarnings("ignore::quorate.errors.QuorateWarning")
def test_without_simulate_it_is_refused(rows, seed):
    with pytest.raises(BadInputError, match="Give `simulate` to from_functions"):
        run(model(), rows, seed).predict({"shop": ["a"], "x": [0.0]})
