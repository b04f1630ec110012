"""Functions with local parameters predict rows of known groups and of new ones."""

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
    with pytest.raises(BadInputError, match=r"does not know \(e\)\. Give `draw_local`"):
        result.predict({"shop": ["e"], "x": [0.0]})
    with pytest.raises(BadInputError, match="No column named `shop`"):
        result.predict({"x": [0.0]})


def draw_local(p, n, rng):
    """Means of shops, shifted so that none is like those of the rows."""
    return {"z": 100 + p["tau"] * rng.standard_normal(n)}


@pytest.mark.filterwarnings("ignore::quorate.errors.QuorateWarning")
def test_parameters_of_new_groups_are_drawn(rows, seed):
    result = run(model(simulate=simulate, draw_local=draw_local), rows, seed)
    new = {"shop": np.array(["e", "a", "f", "e"]), "x": np.zeros(4)}
    found = result.predict(new, n=100)
    assert found.is_new.tolist() == [True, False, True, True]
    of_e, of_a, of_f, again = found.responses.T
    assert np.abs(of_a.mean() + 2) < 0.2
    assert np.abs(of_e - again).max() < 20 * SIGMA  # the same shop; sds of the gap are 0.14
    tau = np.exp(result.unconstrained[:, 1]).mean()
    assert np.corrcoef(of_e, of_f)[0, 1] < 0.8  # others are drawn apart: eight standard errors
    # tau is 2 or so; 100 draws of a mean that has sd tau
    assert np.abs(of_e.mean() - 100) < 0.7 * tau


@pytest.mark.filterwarnings("ignore::quorate.errors.QuorateWarning")
def test_what_the_prior_says_of_rows(rows, seed):
    def draw_prior(rng):
        return {"b": rng.normal(), "tau": rng.exponential()}

    given = {"simulate": simulate, "draw_local": draw_local}
    with pytest.raises(BadInputError, match="Give `draw_prior` and `draw_local`"):
        run(model(**given), rows, seed).prior_predictive(20)
    still = rows | {"x": np.zeros(100)}
    result = run(model(**given, draw_prior=draw_prior), still, seed)
    found = result.prior_predictive(200)["prior_predictive"]["y"].values.reshape(200, 100)
    of_shops = found.reshape(200, 4, 25) - 100
    # The mean of 200 draws of four shops, whose means have an sd of sqrt 2: ten standard errors
    assert np.abs(of_shops.mean()) < 0.7
    assert of_shops.std(axis=2).mean() == pytest.approx(SIGMA, rel=0.1)  # of 20,000 rows
    assert of_shops.mean(axis=2).std() > 5 * SIGMA  # shops differ, and their rows share that


def test_what_functions_draw_is_checked():
    with pytest.raises(BadInputError, match="draw_local must be a function, not 3"):
        model(draw_local=3)
    with pytest.raises(BadInputError, match="draw_prior must be a function, not 3"):
        model(draw_prior=3)
    shop = model(simulate=simulate, draw_local=lambda p, n, rng: {"z": rng.normal(size=n + 1)})
    points, seeds = np.zeros((1, 2)), np.ones((1, 2), dtype=np.uint32)
    inputs = {"rows": {"x": np.zeros(3)}, "index": np.array([0, 0, 1])}
    with pytest.raises(BadInputError, match=r"draw_local gives z of shape \(3,\)\. For 2 groups"):
        shop.program.simulated(points, inputs, seeds)
    other = model(simulate=simulate, draw_local=lambda p, n, rng: {"u": rng.normal(size=n)})
    with pytest.raises(BadInputError, match="draw_local has no value for z"):
        other.program.simulated(points, inputs, seeds)


@pytest.mark.filterwarnings("ignore::quorate.errors.QuorateWarning")
def test_without_simulate_it_is_refused(rows, seed):
    with pytest.raises(BadInputError, match="Give `simulate` to from_functions"):
        run(model(), rows, seed).predict({"shop": ["a"], "x": [0.0]})
