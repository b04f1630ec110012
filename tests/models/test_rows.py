"""Single rows and groups of models: they add up, and responses follow the model."""

import warnings

import numpy as np
import pytest
from scipy import stats

from helpers import languages
from helpers.assertions import assert_mean
from helpers.grouped_rows import case, log_density
from helpers.nested_rows import nested_case
from quorate.engines.packing import packed, unpacked
from quorate.errors import BadInputError, WrongShapeError
from quorate.models import (
    Positive,
    Real,
    from_functions,
    from_numpyro,
    from_pymc,
    linear,
    logistic,
    negative_binomial,
    poisson,
)
from quorate.models.rows import require_ability
from quorate.results.prediction import RowNumbers

N_ROWS = 60
FAMILIES = {
    "linear": lambda: linear(2, "normal(0, 2)", scale_prior="exponential(1)"),
    "logistic": lambda: logistic(2, "normal(0, 2)"),
    "poisson": lambda: poisson(2, "normal(0, 1)"),
    "negative_binomial": lambda: negative_binomial(2, "normal(0, 1)", scale_prior="gamma(2, 1)"),
}


def numbers(rng, n):
    return RowNumbers(rng, n)


def log_prior(p):
    return -0.5 * (p["beta"] ** 2).sum(-1) - p["sigma"]


def pointwise(p, rows, xp=np):
    misfits = (rows["y"] - (p["beta"] * rows["X"]).sum(-1)) / p["sigma"]
    return -0.5 * misfits**2 - xp.log(p["sigma"]) - 0.5 * np.log(2 * np.pi)


def log_likelihood(p, rows, xp=np):
    return pointwise(p, rows, xp).sum()


def simulate(p, rows, rng):
    return rng.normal(rows["X"] @ p["beta"], p["sigma"])


def draw_prior(rng):
    return {"beta": rng.normal(size=2), "sigma": rng.exponential()}


def of_many(function):
    """A function of one point as one of many."""

    def each(p, *rows):
        one_by_one = [{name: v[i] for name, v in p.items()} for i in range(len(p["sigma"]))]
        return np.array([function(one, *rows) for one in one_by_one])

    return each


def functions(kind):
    parameters = {"beta": Real(2), "sigma": Positive()}
    more = {"simulate": simulate, "draw_prior": draw_prior}
    if kind == "many":
        both = of_many(log_prior), of_many(log_likelihood)
        return from_functions(
            *both, parameters, vectorised=True, pointwise=of_many(pointwise), **more
        )
    if kind == "jax":
        import jax.numpy as jnp

        def of_rows(p, rows):
            return pointwise(p, rows, jnp)

        def total(p, rows):
            return of_rows(p, rows).sum()

        return from_functions(
            log_prior, total, parameters, backend="jax", pointwise=of_rows, **more
        )
    return from_functions(log_prior, log_likelihood, parameters, pointwise=pointwise, **more)


def program(data):
    import numpyro
    import numpyro.distributions as dist

    def model(X, y):  # noqa: N803
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
        sigma = numpyro.sample("sigma", dist.Exponential(1.0))
        with numpyro.plate("rows", len(X)):
            numpyro.sample("y", dist.Normal(X @ beta, sigma), obs=y)

    return from_numpyro(model, split={"X": 0, "y": 0}, data=data)


def pymc_model(data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the imports of PyMC
        import pymc as pm

    with pm.Model() as model:
        columns = pm.Data("X", data["X"])
        beta = pm.Normal("beta", 0, 1, shape=2)
        sigma = pm.Exponential("sigma", 1.0)
        pm.Normal("y", columns @ beta, sigma, observed=data["y"])
    return from_pymc(model, split={"X": 0, "y": 0})


LANGUAGES = {
    "formula": lambda data: FAMILIES["linear"](),
    "one": lambda data: functions("one"),
    "many": lambda data: functions("many"),
    "jax": lambda data: functions("jax"),
    "numpyro": program,
    "pymc": pymc_model,
}


def gaussian_rows(rng, n=N_ROWS):
    columns = rng.normal(size=(n, 2))
    return {"X": columns, "y": columns @ [0.5, -1.0] + 0.7 * rng.normal(size=n)}


def points_of(rng, n=7, dim=3):
    return rng.normal(size=(n, dim)) * 0.3


# ---------------------------------------------------------------- models without groups


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_language_tells_the_same_of_rows(name, rng):
    rows, points = gaussian_rows(rng), points_of(rng)
    model = unpacked(packed({"model": LANGUAGES[name](rows)}))["model"]  # as a worker gets it
    for ability in ("log_likelihood", "responses", "prior_draws"):
        require_ability(model, ability)
    found = model.rows_at(points, rows)
    expected = stats.norm.logpdf(rows["y"], points[:, :2] @ rows["X"].T, np.exp(points[:, 2:]))
    np.testing.assert_allclose(found.log_likelihoods(), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(found.observed()["y"], rows["y"])


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_language_draws_responses_and_priors(name, rng, seed):
    """Standardised responses have mean 0 and variance 1, each with a false-alarm rate of 1e-6."""
    rows = gaussian_rows(rng, 40)
    model = LANGUAGES[name](rows)
    points = points_of(rng, 300)
    draws = model.rows_at(points, rows).responses(numbers(np.random.default_rng(seed), 300))["y"]
    assert draws.shape == (300, 40)
    again = model.rows_at(points, rows).responses(numbers(np.random.default_rng(seed), 300))["y"]
    np.testing.assert_array_equal(draws, again)
    left = (draws - points[:, :2] @ rows["X"].T) / np.exp(points[:, 2:])
    assert_mean(left, np.zeros(40))
    assert_mean(left.reshape(-1, 1) ** 2, np.ones(1))
    prior = model.prior_draws(500, np.random.default_rng(seed))
    sd = 2.0 if name == "formula" else 1.0
    assert_mean(prior[:, :2], np.zeros(2))
    assert_mean((prior[:, :2] / sd) ** 2, np.ones(2))
    assert_mean(np.exp(prior[:, 2:]), np.ones(1))


@pytest.mark.parametrize("name", ["numpyro", "pymc"])
def test_programs_predict_rows_without_responses(name, rng):
    rows = gaussian_rows(rng, 12)
    model = LANGUAGES[name](rows)
    new = {"X": rng.normal(size=(5, 2))}
    arrays = model.new_rows(new)
    assert {key: np.shape(value)[0] for key, value in arrays.items()} == {"X": 5, "y": 5}
    draws = model.rows_at(points_of(rng, 4), arrays).responses(numbers(rng, 4))["y"]
    assert draws.shape == (4, 5)
    with pytest.raises(BadInputError, match=r"no X.*y may be missing"):
        model.new_rows({"y": np.zeros(5)})


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_regressions_add_up(family, rng):
    model = FAMILIES[family]()
    columns = rng.normal(size=(N_ROWS, 2))
    y = {
        "linear": rng.normal(size=N_ROWS),
        "logistic": (rng.random(N_ROWS) < 0.4).astype(float),
    }.get(family, rng.poisson(3.0, N_ROWS).astype(float))
    rows, points = {"X": columns, "y": y}, points_of(rng, dim=model.dim)
    found = model.rows_at(points, rows).log_likelihoods()
    np.testing.assert_allclose(
        found.sum(axis=1), model.log_likelihood_many(points, rows), rtol=1e-10
    )


def test_several_responses_have_names(rng):
    def both(p, rows, rng):
        return {"y": rng.normal(size=len(rows["y"])), "z": np.ones((len(rows["y"]), 2))}

    model = from_functions(lambda x: 0.0, lambda x, rows: 0.0, 2, simulate=both)
    rows = {"y": np.zeros(3)}
    found = model.rows_at(np.zeros((4, 2)), rows).responses(numbers(rng, 4))
    assert {name: draws.shape for name, draws in found.items()} == {"y": (4, 3), "z": (4, 3, 2)}


# ---------------------------------------------------------------- groups


def all_groups(shard):
    return np.unique(shard["group"])


def uniforms_of(seed, n_points):
    """Uniforms by level and group, as workers get them: the same whatever groups are asked for."""

    def uniforms(level, groups, n):
        found = [
            np.random.default_rng([seed, len(level), int(group)]).uniform(size=(n_points, n))
            for group in groups
        ]
        return np.stack(found, axis=1)

    return uniforms


def some_case(kind, family, rng):
    found = case(family, 1, rng) if kind == "one level" else nested_case(family, 1, 1, rng)
    points = found.truth + 0.1 * rng.normal(size=(4, len(found.truth)))
    return found.model, found.shard, points


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["one level", "two levels"])
def test_groups_add_up_to_the_likelihood(kind, family, rng):
    model, shard, points = some_case(kind, family, rng)
    whole = model.group_log_likelihoods(points, shard, all_groups(shard))
    expected = model.log_likelihood_many(points, shard)
    np.testing.assert_allclose(whole.sum(axis=1), expected, rtol=1e-8)
    part = model.group_log_likelihoods(points, shard, all_groups(shard)[1::3])
    np.testing.assert_allclose(part, whole[:, 1::3], atol=0.01)  # nodes are placed a bit elsewhere


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["one level", "two levels"])
def test_rows_of_groups_are_conditional_on_their_coefficients(kind, family, rng, seed):
    model, shard, points = some_case(kind, family, rng)
    groups, uniforms = all_groups(shard)[::2], uniforms_of(seed, len(points))
    places, rows = model.rows_of_groups(points, shard, groups, uniforms)
    np.testing.assert_array_equal(places, np.flatnonzero(np.isin(shard["group"], groups)))
    eta = points[:, :2] @ shard["X"][places].T
    names = [("Z", "group"), ("Z_inner", "inner")]
    for level, (codes, draws) in model.local_draws(points, shard, groups, uniforms).items():
        columns, name = names[":" in level]
        which = np.argsort(codes)[np.searchsorted(np.sort(codes), shard[name][places])]
        eta += (shard[columns][places] * draws[:, which]).sum(axis=2)
    scales = model.fixed.log_scales(points)
    y = shard["y"][places]
    expected = [log_density(family, y, *at) for at in zip(eta, scales, strict=True)]
    np.testing.assert_allclose(rows.log_likelihoods(), expected, rtol=1e-7, atol=1e-9)


def test_groups_of_the_prior_do_not_know_their_rows(rng, seed):
    """With means taken off, responses have the variance of groups and rows: rate 1e-6."""
    model, shard, _ = some_case("one level", "linear", rng)
    points = np.tile([0.2, 0.5, np.log(0.7), np.log(0.8)], (400, 1))
    groups, uniforms = all_groups(shard), uniforms_of(seed, 400)
    places, rows = model.rows_of_groups(points, shard, groups, uniforms, of_prior=True)
    left = rows.responses(numbers(rng, 400))["y"] - shard["X"][places] @ [0.2, 0.5]
    one_each = [np.flatnonzero(shard["group"][places] == g)[0] for g in groups]
    assert_mean(left[:, one_each].reshape(-1, 1) ** 2, np.array([0.7**2 + 0.8**2]))
    prior = model.prior_draws(300, rng)
    assert prior.shape == (300, 4)
    assert np.isfinite(model.log_prior_many(prior)).all()


@pytest.mark.parametrize("language", ["functions", "numpyro"])
def test_programs_with_groups(language, rng, seed):
    data = languages.table("linear", rng)
    model = languages.model(language, "linear", data)
    shard = {**data, "group": data["g"]}
    for array in shard.values():
        array.flags.writeable = False
    points = 0.2 * rng.normal(size=(3, 4))
    groups = all_groups(shard)
    whole = model.group_log_likelihoods(points, shard, groups)
    expected = model.log_likelihood_many(points, shard)
    np.testing.assert_allclose(whole.sum(axis=1), expected, rtol=1e-9)
    places, rows = model.rows_of_groups(points, shard, groups, uniforms_of(seed, 3))
    np.testing.assert_array_equal(np.sort(places), np.arange(len(data["y"])))
    assert np.all(np.diff(data["g"][places]) >= 0)
    drawn = model.local_draws(points, shard, groups, uniforms_of(seed, 3))["g"][1][..., 0]
    named = model.constrain(points)
    eta = named["a"][:, None] + named["b"][:, None] * data["x"] + drawn[:, data["g"]]
    constant = 0.5 * np.log(2 * np.pi) if language == "functions" else 0.0
    densities = stats.norm.logpdf(data["y"], eta, named["sigma"][:, None]) + constant
    np.testing.assert_allclose(rows.log_likelihoods(), densities[:, places], rtol=1e-7, atol=1e-8)
    if language == "numpyro":
        draws = rows.responses(numbers(rng, 3))["obs"]
        np.testing.assert_array_equal(rows.observed()["obs"], data["y"][places])
        left = (draws - eta[:, places]) / named["sigma"][:, None]
        assert_mean(left.reshape(-1, 1), np.zeros(1))
        assert_mean(left.reshape(-1, 1) ** 2, np.ones(1))
    else:
        with pytest.raises(BadInputError, match="responses"):
            require_ability(model, "responses")


# ---------------------------------------------------------------- gradients and refusals


def gradient_of_prior(p):
    return {"beta": -p["beta"], "sigma": -np.ones_like(p["sigma"])}


def gradient_of_likelihood(p, rows):
    misfits = (rows["y"] - rows["X"] @ p["beta"]) / p["sigma"]
    by_sigma = (misfits**2 - 1).sum() / p["sigma"]
    return {"beta": misfits @ rows["X"] / p["sigma"], "sigma": by_sigma}


def gradients_of_many(function):
    def each(p, *rows):
        ones = [{name: v[i] for name, v in p.items()} for i in range(len(p["sigma"]))]
        found = [function(one, *rows) for one in ones]
        return {name: np.array([one[name] for one in found]) for name in ("beta", "sigma")}

    return each


@pytest.mark.parametrize("vectorised", [False, True])
def test_gradients_that_users_give_are_those_of_jax(vectorised, rng):
    parameters = {"beta": Real(2), "sigma": Positive()}
    both, gradient = (log_prior, log_likelihood), (gradient_of_prior, gradient_of_likelihood)
    if vectorised:
        both = tuple(map(of_many, both))
        gradient = tuple(map(gradients_of_many, gradient))
    model = from_functions(*both, parameters, vectorised=vectorised, gradient=gradient)
    same, rows, points = functions("jax"), gaussian_rows(rng), points_of(rng)
    np.testing.assert_allclose(
        model.log_prior_and_gradient_many(points)[1],
        same.log_prior_and_gradient_many(points)[1],
        rtol=1e-8,
    )
    np.testing.assert_allclose(
        model.log_likelihood_and_gradient(points[0], rows)[1],
        same.log_likelihood_and_gradient(points[0], rows)[1],
        rtol=1e-8,
    )
    np.testing.assert_allclose(
        model.log_likelihood_and_gradient_many(points, rows)[1],
        same.log_likelihood_and_gradient_many(points, rows)[1],
        rtol=1e-8,
    )


def test_gradients_pass_through_every_support(rng):
    from quorate.models import Correlation, Ordered, Simplex, UnitInterval

    supports = {
        "r": Real(2),
        "s": Positive(2),
        "u": UnitInterval(),
        "p": Simplex(3),
        "o": Ordered(3),
        "c": Correlation(3),
    }
    weights = {name: rng.normal(size=support.shape) for name, support in supports.items()}

    def value(p, rows=None):
        return sum((weights[name] * p[name] ** 2).sum() for name in supports)

    def gradient(p, rows=None):
        return {name: 2 * weights[name] * p[name] for name in supports}

    model = from_functions(value, value, supports, gradient=(gradient, gradient))
    x = rng.normal(size=model.dim)
    steps = 1e-5 * np.eye(model.dim)
    differences = [(model.log_prior(x + h) - model.log_prior(x - h)) / 2e-5 for h in steps]
    gradient = model.log_prior_and_gradient(x)[1]
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-6)


def test_what_is_missing_is_named(rng):
    plain = from_functions(log_prior, log_likelihood, {"beta": Real(2), "sigma": Positive()})
    for ability, needed in (
        ("log_likelihood", "pointwise"),
        ("responses", "simulate"),
        ("prior_draws", "draw_prior"),
    ):
        with pytest.raises(BadInputError, match=f"Give `{needed}` to from_functions"):
            require_ability(plain, ability)
    with pytest.raises(BadInputError, match=r"prior of beta\[0\] is flat"):
        logistic(2, "flat").prior_draws(3, rng)
    with pytest.raises(BadInputError, match="gradient must be a pair"):
        from_functions(log_prior, log_likelihood, 2, gradient=log_prior)
    with pytest.raises(BadInputError, match="JAX makes the gradient itself"):
        from_functions(log_prior, log_likelihood, 2, backend="jax", gradient=(log_prior,) * 2)
    with pytest.raises(BadInputError, match="simulate must be a function, not 3"):
        from_functions(log_prior, log_likelihood, 2, simulate=3)
    wrong = from_functions(log_prior, log_likelihood, 2, pointwise=lambda x, rows: np.zeros(2))
    with pytest.raises(WrongShapeError, match=r"shape \(2,\) for 3 rows"):
        wrong.rows_at(np.zeros((1, 2)), {"y": np.zeros(3)}).log_likelihoods()
