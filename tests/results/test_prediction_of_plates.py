"""Predictions of programs with a plate or dimension of groups, against their closed form."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import quorate
from helpers.grouped import SIGMA, gaussian_closed_form, one_way
from helpers.grouped_programs import SPLIT, non_centred, of_fixed_size, rows_of
from helpers.grouped_pymc import pm, pymc_one_way
from quorate.errors import BadInputError
from quorate.models import from_numpyro, from_pymc
from quorate.results.predicted import predicted

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
N, N_GROUPS = 500, 12


@pytest.fixture(scope="module")
def rows(seed):
    return one_way(np.random.default_rng(seed), N_GROUPS)


def data_of(rows):
    return {name: rows_of(rows, "gaussian")[name] for name in SPLIT} | {"family": "gaussian"}


@pytest.fixture(scope="module", params=["numpyro", "pymc"])
def fitted(request, rows, seed, tmp_path_factory):
    data = data_of(rows) | {"n_groups": N_GROUPS}
    if request.param == "numpyro":
        model = from_numpyro(non_centred, split=SPLIT, data=data, local="group")
    else:
        program = pymc_one_way(rows, "gaussian", centred=False, n_groups=N_GROUPS)
        model = from_pymc(program, SPLIT, local="shop")
    run = tmp_path_factory.mktemp("plate") / "run"
    options = {"workers": 1, "draws": N, "seed": seed, "check": False, "progress": False}
    return quorate.sample(model, {name: data[name] for name in SPLIT}, run_dir=run, **options)


def assert_normal(white):
    """A false alarm in 1e6. The control is shifted by 0.6 standard deviations."""
    assert stats.kstest(white, "norm").pvalue > 1e-6
    assert stats.kstest(white + 0.6, "norm").pvalue < 1e-6


@pytest.fixture(scope="module")
def prediction(fitted):
    new = {"g": np.array([40, 3, 40, 7]), "x": np.array([0.5, -1.0, 2.0, 0.0])}
    return fitted.predict(new, N, seed=5)


@pytest.fixture(scope="module")
def points(fitted):
    """The draws that predictions of known groups are made with."""
    return fitted.unconstrained[fitted.local.rows[:, fitted.local.steps(N)].ravel()]


def test_rows_of_known_groups_follow_the_posterior_of_their_group(points, prediction, rows):
    assert prediction.responses.shape == (len(points), 4)
    assert prediction.is_new.tolist() == [True, False, True, False]
    found = [gaussian_closed_form(point, rows)[1:] for point in points]
    for row, group, x in ((1, 3, -1.0), (3, 7, 0.0)):
        means, sds = (np.array([one[i][group] for one in found]) for i in (0, 1))
        gaps = prediction.responses[:, row] - means - points[:, 1] * x
        assert_normal(gaps / np.hypot(sds, SIGMA))


def test_rows_of_new_groups_follow_the_distribution_of_groups(points, prediction):
    mu, b, tau = points[:, 0], points[:, 1], np.exp(points[:, 2])
    gaps = prediction.responses[:, [0, 2]] - mu[:, None] - b[:, None] * [0.5, 2.0]
    assert_normal(gaps[:, 0] / np.hypot(tau, SIGMA))
    # Two rows of one group share what it has: their difference has no part of tau
    assert_normal((gaps[:, 0] - gaps[:, 1]) / (SIGMA * np.sqrt(2)))


def test_predictions_of_the_same_seed_are_the_same(fitted, prediction):
    new = {"g": np.array([41, 42]), "x": np.zeros(2), "y": np.zeros(2)}  # no group is known
    once, again = (fitted.predict(new, 50, seed=1) for _ in range(2))
    np.testing.assert_array_equal(once.responses, again.responses)
    assert once.is_new.all()
    assert "new_group" in prediction.summary()


def test_the_prior_predictive_is_that_of_the_program(fitted, rows):
    tree = fitted.prior_predictive(N, seed=3)
    prior = {name: np.asarray(tree["prior"][name])[0] for name in ("mu", "b", "tau")}
    assert_normal(prior["mu"] / 5)
    assert stats.kstest(prior["tau"], stats.halfnorm.cdf).pvalue > 1e-6
    drawn = np.asarray(tree["prior_predictive"]["obs"])[0]
    assert drawn.shape == (N, len(rows["y"]))
    first = [int(np.flatnonzero(rows["g"] == g)[0]) for g in (0, 11)]
    gaps = drawn[:, first] - prior["mu"][:, None] - prior["b"][:, None] * rows["x"][first]
    gaps /= np.hypot(prior["tau"], SIGMA)[:, None]
    for white in gaps.T:
        assert_normal(white)
    assert abs(np.corrcoef(gaps.T)[0, 1]) < 5 / np.sqrt(N)  # groups are independent


def test_new_groups_that_the_program_cannot_have_are_refused(rows, rng):
    fixed = from_numpyro(of_fixed_size, split=SPLIT, data=data_of(rows), local="group")
    with pytest.raises(BadInputError, match=r"does not know \(40\), and the plate .* same size"):
        _predict(fixed, {"g": np.array([40, 1]), "x": np.zeros(2)})

    def with_predictor(g, y, u):
        a = numpyro.sample("a", dist.Normal(0, 2))
        with numpyro.plate("shop", len(u)):
            level = numpyro.sample("level", dist.Normal(a * u, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("obs", dist.Normal(level[g], 1.0), obs=y)

    data = {"g": rows["g"], "y": rows["y"], "u": rng.normal(size=N_GROUPS)}
    model = from_numpyro(with_predictor, split={"g": 0, "y": 0}, data=data, local="shop")
    with pytest.raises(BadInputError, match=r"does not know \(12\), for which u has no entries"):
        _predict(model, {"g": np.array([12])})


def test_new_groups_that_a_pymc_model_cannot_have_are_refused(rows):
    with pm.Model(coords={"shop": range(N_GROUPS)}) as program:
        g, x, y = (pm.Data(name, rows[name]) for name in SPLIT)
        z = pm.Normal("z", pm.Normal("mu", 0, 5) * np.ones(N_GROUPS), 1.0, dims="shop")
        pm.Normal("obs", z[g] + x, SIGMA, observed=y)
    model = from_pymc(program, SPLIT, local="shop")
    with pytest.raises(BadInputError, match=r"does not know \(40\), and the .* same size"):
        _predict(model, {"g": np.array([40, 1]), "x": np.zeros(2)})
    found = _predict(model, {"g": np.array([3, 1, 3]), "x": np.zeros(3)})
    assert found.responses.shape == (2, 3)
    assert found.is_new.all()  # no rows of them are known, so z is drawn from its prior
    assert len(np.unique(found.responses)) == 6


def _predict(model, new):
    return predicted(model, np.zeros((2, model.dim)), new, _Nobody(), 2)


class _Nobody:
    """No group is known."""

    def labels(self):
        return np.empty(0, dtype=np.int64)
