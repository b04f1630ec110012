"""Groups whose posterior is far from Gaussian: responses that are all equal, under wide priors."""

import numpy as np
import pytest
from scipy.special import logsumexp

from helpers.grouped import frozen
from quorate.models import Positive, Real, from_functions, logistic
from quorate.models.groups.accuracy import finest
from quorate.models.groups.programs.anchors import with_effort
from quorate.models.groups.quadrature import _gauss_hermite, rule_of

N_GROUPS, SIZE = 60, 10
SDS = (5.0, 10.0, 20.0, 40.0)


@pytest.fixture
def rows(rng):
    """Most groups have only ones or only zeros: their true standard deviation is 10."""
    group = np.repeat(np.arange(N_GROUPS), SIZE)
    x = rng.normal(size=len(group))
    risk = 1 / (1 + np.exp(-x - 10 * rng.normal(size=N_GROUPS)[group]))
    y = (rng.random(len(group)) < risk).astype(float)
    return {"X": np.column_stack([np.ones(len(x)), x]), "y": y, "group": group}


def on_a_grid(rows, slope, sd):
    """The log-likelihood, by a fine grid over the parameter of each group."""
    z = np.linspace(-10, 10, 8001) * sd
    eta = (slope * rows["X"][:, 1]).reshape(N_GROUPS, SIZE, 1) + z
    y = rows["y"].reshape(N_GROUPS, SIZE, 1)
    joint = (y * eta - np.logaddexp(0, eta)).sum(axis=1) - 0.5 * (z / sd) ** 2
    constant = np.log((z[1] - z[0]) / (sd * np.sqrt(2 * np.pi)))
    return float((logsumexp(joint, axis=1) + constant).sum())


def test_separated_groups_are_integrated_exactly(rows):
    """The limit is what a run tolerates, twice: at 4 standard deviations of the posterior."""
    model = logistic(["Intercept", "x"], groups="g")
    for sd in SDS:
        found = model.log_likelihood(np.array([0.0, 0.5, np.log(sd)]), rows)
        assert found == pytest.approx(on_a_grid(rows, 0.5, sd), abs=0.2)


def test_a_value_does_not_depend_on_the_points_beside_it(rows):
    """Up to rounding far below 2**-20, to multiples of which workers round values."""
    shard = frozen({**rows, "y": (rows["group"] < N_GROUPS // 2).astype(float)})
    model = logistic(["Intercept", "x"], groups="g", sd_prior="half_normal(5)")
    mode, cov = model.rough_fit(shard, 1)
    points = np.random.default_rng(1).multivariate_normal(mode, cov, 200)
    alone = np.concatenate([model.log_likelihood_many(point[None], shard) for point in points])
    np.testing.assert_allclose(model.log_likelihood_many(points, shard), alone, atol=2e-8, rtol=0)


N_SHARDS = 4


def likelihoods_of_shards(model, rows, sd):
    """Of shards with consecutive groups."""
    place = rows["group"] * N_SHARDS // N_GROUPS
    shards = [frozen({name: of[place == k] for name, of in rows.items()}) for k in range(N_SHARDS)]
    return sum(model.log_likelihood(np.array([0.0, 0.5, np.log(sd)]), shard) for shard in shards)


def test_a_shard_is_integrated_as_far_out_as_others_draw(rows):
    """All rows of the first shard are 1, and of the last 0: they know nothing of large sds."""
    rows["y"] = (rows["group"] < N_GROUPS // 2).astype(float)
    model = logistic(["Intercept", "x"], groups="g")
    for sd in (5.0, 40.0, 200.0):  # of the posterior, 5 % are above 200
        assert likelihoods_of_shards(model, rows, sd) == pytest.approx(
            on_a_grid(rows, 0.5, sd), abs=0.1 * N_SHARDS
        )


def by_functions(backend, *, is_centred):
    """The same model as functions. If groups are not centred, their modes move with sd."""
    xp = pytest.importorskip("jax.numpy") if backend == "jax" else np

    def log_prior(p):
        return -0.5 * (p["a"] / 5) ** 2 - 0.5 * (p["b"] / 5) ** 2 - 0.5 * (p["sd"] / 20) ** 2

    def log_local(p, local):
        sd = p["sd"] if is_centred else xp.asarray(1.0)
        return -0.5 * (local["z"] / sd) ** 2 - xp.log(sd) - 0.5 * np.log(2 * np.pi)

    def log_likelihood(p, local, shard):
        of_group = local["z"] if is_centred else p["sd"] * local["z"]
        eta = p["a"] + p["b"] * shard["X"][:, 1] + of_group
        return shard["y"] * eta - xp.logaddexp(0.0, eta)

    parameters = {"a": Real(), "b": Real(), "sd": Positive()}
    local = {"local": {"z": Real()}, "groups": "g", "log_local": log_local}
    return from_functions(log_prior, log_likelihood, parameters, backend=backend, **local)


@pytest.mark.parametrize("is_centred", [True, False])
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_separated_groups_of_programs_are_integrated_exactly(rows, backend, is_centred):
    """Also where the modes of groups are far from their anchors, so that Newton steps would jump.

    With the number of nodes that is chosen, the limit is what a run tolerates, twice.
    """
    model, shard = by_functions(backend, is_centred=is_centred), frozen(rows)
    chosen = model._ready(shard).given
    for sd in SDS:
        point, expected = np.array([0.0, 0.5, np.log(sd)]), on_a_grid(rows, 0.5, sd)
        finely = model.backend.one(model.at.value, point, with_effort(chosen, finest(1)))
        assert finely == pytest.approx(expected, abs=0.01)
        if sd <= 20:  # four standard deviations of the posterior
            found = model.backend.one(model.at.value, point, chosen)
            assert found == pytest.approx(expected, abs=0.2)


def step(rule, width):
    """∫ of a normal density with standard deviation `width`, on one side of a logistic step."""
    t = rule.nodes[:, 0] * width / 3  # as at its mode, where the curvature is about nine times that
    log_density = -0.5 * (t / width) ** 2 - np.logaddexp(0, -10 * t)
    return width / 3 * np.exp(rule.log_weights + log_density).sum() / (width * np.sqrt(2 * np.pi))


def test_nodes_reach_as_far_as_the_prior():
    fine = np.linspace(-400, 400, 800_001)
    expected = np.exp(-0.5 * (fine / 40) ** 2 - np.logaddexp(0, -10 * fine)).sum() * 1e-3
    expected /= 40 * np.sqrt(2 * np.pi)
    assert step(rule_of(141, 1), 40) == pytest.approx(expected, abs=0.005)
    assert abs(step(_gauss_hermite(141, 1), 40) - expected) > 0.01  # the control


@pytest.mark.parametrize(("n_nodes", "error"), [(31, 2e-3), (45, 2e-5), (141, 1e-9)])
def test_a_wide_rule_is_exact_for_a_gaussian(n_nodes, error):
    rule = rule_of(n_nodes, 1)
    t = rule.nodes[:, 0]
    for power, moment in ((0, 1.0), (1, 0.0), (2, 1.0), (4, 3.0)):
        total = (t**power * np.exp(rule.log_weights - 0.5 * t**2)).sum()
        assert total / np.sqrt(2 * np.pi) == pytest.approx(moment, abs=error)
