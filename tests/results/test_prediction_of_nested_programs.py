"""Predictions of programs with groups within groups: known ones, new ones, and those of the prior.

Effects of groups are so large that most responses follow from them.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from helpers.nested_languages import (
    N_COUNTIES,
    N_STATES,
    SPLIT,
    by_functions,
    by_numpyro,
    by_pymc,
    centred,
    non_centred,
    table,
)
from quorate.errors import BadInputError
from quorate.models import from_numpyro
from quorate.models.groups.programs.functions import functions_of
from quorate.models.rows import require_ability
from quorate.results.local import LocalDraws
from quorate.results.predicted import predicted

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
N = 200
FAR = 60.0  # a linear predictor of this size decides a response
TINY = 1e-3
RARE = 1e-6  # false alarms of each statistical test


@pytest.fixture(scope="module")
def data(seed):
    """Rows, and the state of each county."""
    return table(np.random.default_rng([seed, 11]))


@pytest.fixture(
    scope="module", params=["centred", "non_centred", "pymc_centred", "pymc", "functions"]
)
def model(request, data):
    pytest.importorskip("numpyro")
    pytest.importorskip("pymc")
    rows, state_of = data
    if request.param == "functions":
        return by_functions()
    if request.param.startswith("pymc"):
        return by_pymc(rows, state_of, centred=request.param == "pymc_centred")
    return by_numpyro({"centred": centred, "non_centred": non_centred}[request.param], *data)


@pytest.fixture(scope="module")
def known(model, data):
    """What the workers know: all states with an even number have a large effect, others a low one.

    Counties of these have an effect of the same size beside that, by their own number.
    """
    of_states = np.where(np.arange(N_STATES) % 2, -FAR, FAR)
    of_counties = 3 * np.where(np.arange(N_COUNTIES) % 2, -FAR, FAR)
    return Known(model, data[1], of_states, of_counties)


class Known:
    """Stands for the workers: gives all draws of a group the same effect."""

    def __init__(self, model, state_of, of_states, of_counties):
        self.model, self.state_of, self.effects = model, state_of, (of_states, of_counties)
        self.points = None

    def labels(self, level=0):
        if level == 0:
            return np.arange(N_STATES)
        pairs = sorted(zip(self.state_of.tolist(), range(N_COUNTIES), strict=True))
        return np.array([f"{state}:{county}" for state, county in pairs])

    def columns(self):
        return [self.labels(), np.arange(N_COUNTIES)]

    def joint(self, groups, n=None):
        groups = np.asarray(groups).astype(int)
        labels = [label for label in self.labels(1) if int(label.split(":")[0]) in set(groups)]
        numbers = [int(label.split(":")[1]) for label in labels]
        values = self.effects[0][groups], self.effects[1][numbers]
        levels = zip((groups, np.array(labels)), values, strict=True)
        reported = [(names, self._reported(level, of)) for level, (names, of) in enumerate(levels)]
        return LocalDraws(np.arange(len(self.points)), self.points, tuple(reported))

    def _reported(self, level, effects):
        """`raw` counts in units of tau."""
        names, tau = self.model.levels[level].names, np.exp(self.points[:, 2])
        scales = [1 / tau if name == "raw" else np.ones_like(tau) for name in names]
        return np.stack([scale[:, None] * effects for scale in scales], axis=-1)


def points_with(tau, kappa, a=0.0):
    """Global parameters a, b, log tau and log kappa; b is 0."""
    return np.tile([a, 0.0, np.log(tau), np.log(kappa)], (N, 1))


def predict(model, known, points, state, county):
    known.points = points
    new = {"state": np.array(state), "county": np.array(county), "x": np.zeros(len(state))}
    return predicted(model, points, new, known, N, seed=4)


def assert_share(responses, expected):
    """The share of ones among independent responses, and a control: it is not 1 - expected."""
    counts = int(responses.sum()), responses.size
    assert stats.binomtest(*counts, expected).pvalue > RARE
    assert stats.binomtest(*counts, 1 - expected).pvalue < RARE


def test_rows_of_known_groups_have_their_effects(model, known, data):
    state_of = data[1]
    county = np.random.default_rng(1).permutation(N_COUNTIES)
    found = predict(model, known, points_with(2.0, 0.5), state_of[county], county)
    assert not found.is_new.any()
    assert np.array_equal(found.responses, np.tile(county % 2 == 0, (N, 1)))


def test_a_new_county_of_a_known_state_has_the_effect_of_its_state(model, known, data):
    """Where kappa is tiny, nothing else matters; where it is large, it does not."""
    states = [3, 0, 5, 2]
    found = predict(model, known, points_with(2.0, TINY), states, [900, 901, 902, 903])
    assert found.is_new.all()
    assert np.array_equal(found.responses, np.tile([0, 1, 0, 1], (N, 1)))
    wide = predict(model, known, points_with(2.0, FAR), [0, 1], [900, 901])
    assert_share(wide.responses[:, 0], stats.norm.cdf(1))
    assert_share(wide.responses[:, 1], stats.norm.cdf(-1))


def test_counties_of_a_new_state_share_what_it_has(model, known, data):
    state, county = [70, 71, 70, 0, 71], [900, 901, 902, 903, 904]
    found = predict(model, known, points_with(1e4, TINY, a=1e4), state, county)
    assert found.is_new.all()
    first, second, third, of_known, fifth = found.responses.T
    # A draw leaves a response open, and two of them apart, in 1 of 10⁴; states differ in 27 of 100
    assert (first == third).mean() > 0.95
    assert (second == fifth).mean() > 0.95
    assert_share(first, stats.norm.cdf(1))
    assert_share(second, stats.norm.cdf(1))
    assert (of_known == 1).all()  # FAR is little beside a
    assert 0.1 < (first != second).mean() < 0.5  # states are drawn apart: 0.27, give or take .13


def test_predictions_of_the_same_seed_are_the_same(model, known):
    asked = model, known, points_with(2.0, 2.0), [0, 70], [900, 901]
    once, again = (predict(*asked).responses for _ in range(2))
    assert np.array_equal(once, again)


def test_a_county_of_another_state_is_refused(model, known, data):
    """Plates number their groups. Functions name them, so it is a new county of that state."""
    state_of = data[1]
    other = (state_of[7] + 1) % N_STATES
    asked = model, known, points_with(1.0, 1.0), [other], [7]
    if functions_of(model) is None:
        message = rf"county 7 lies in state {state_of[7]}; the rows say"
        with pytest.raises(BadInputError, match=message):
            predict(*asked)
    else:
        assert predict(*asked).is_new.all()
    with pytest.raises(BadInputError, match=r"The rows have no county|No column named `county`"):
        predicted(model, points_with(1.0, 1.0), {"state": [0], "x": [0.0]}, known, N)


def test_the_prior_is_that_of_the_program(model, data):
    require_ability(model, "prior_draws")
    drawn = model.constrain(model.prior_draws(4000, np.random.default_rng(8)))
    assert stats.kstest(drawn["a"] / 1.5, "norm").pvalue > RARE
    assert stats.kstest(drawn["kappa"], "halfnorm").pvalue > RARE
    assert stats.kstest(drawn["a"], "norm").pvalue < RARE  # the control is another prior


def test_states_of_the_prior_have_their_own_effects(model, data):
    rows, _ = data
    shard = {name: np.asarray(rows[name]) for name in SPLIT}
    shard |= {"group": shard["state"], "inner": shard["county"]}
    states = np.array([1, 4])
    points = points_with(1e4, TINY, a=1e4)
    places, at = model.rows_of_groups(points, shard, states, None, of_prior=True)
    seeds = np.random.default_rng(9).integers(1 << 32, size=(N, 2), dtype=np.uint32)
    (responses,) = at.responses(SimpleNamespace(seeds=lambda: seeds)).values()
    one, other = (responses[:, rows["state"][places] == state] for state in states)
    assert (one == one[:, :1]).mean() > 0.95  # all rows of a state share its effect
    assert_share(one[:, 0], stats.norm.cdf(1))
    assert 0.1 < (one[:, 0] != other[:, 0]).mean() < 0.5


def test_new_groups_without_entries_are_refused(data):
    numpyro = pytest.importorskip("numpyro")
    dist = numpyro.distributions
    rows, _ = data

    def with_predictor(state, county, y, n_states, uranium):
        a = numpyro.sample("a", dist.Normal(0, 1.5))
        with numpyro.plate("states", n_states):
            u = numpyro.sample("u", dist.Normal(0, 1))
        with numpyro.plate("counties", len(uranium)):
            v = numpyro.sample("v", dist.Normal(a * uranium, 1))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("obs", dist.Normal(u[state] + v[county], 1), obs=y)

    split = dict.fromkeys(("state", "county", "y"), 0)
    arrays = {name: rows[name] for name in split}
    arrays |= {"n_states": N_STATES, "uranium": np.linspace(0, 1, N_COUNTIES)}
    made = from_numpyro(with_predictor, split=split, data=arrays, local="states/counties")
    nobody = SimpleNamespace(labels=lambda level=0: np.empty(0, dtype=str if level else int))
    new = {"state": np.array([0]), "county": np.array([N_COUNTIES])}
    with pytest.raises(BadInputError, match=r"does not know \(40\), for which uranium has no"):
        predicted(made, np.zeros((2, 1)), new, nobody, 2)
    known = {"state": np.array([99]), "county": np.array([3])}
    assert predicted(made, np.zeros((2, 1)), known, nobody, 2).responses.shape == (2, 1)
