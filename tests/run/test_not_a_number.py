"""Log densities that are NaN or infinite: an error with the shard and the point, never "done"."""

import numpy as np
import pytest

import quorate
from quorate.errors import (
    BadInputError,
    ImproperError,
    NotANumberError,
    NotANumberWarning,
    WorkerFailedError,
)
from quorate.models import Positive, Real, from_functions
from quorate.models.subposterior import Target
from quorate.numerics.streams import ChainStream, Streams
from quorate.samplers import make_sampler
from quorate.samplers.laplace import laplace_fit

ROWS = {"y": np.random.default_rng(0).normal(1.0, 1.0, 400)}


def log_prior(p):
    return -(p["mu"] ** 2) / 200


def log_likelihood(p, shard):
    return -0.5 * np.sum((shard["y"] - p["mu"]) ** 2)


def defined_near(width, elsewhere, of_shard=lambda shard: True):
    """A mean whose log-likelihood is a number only near the start, in some shards."""

    def limited(p, shard):
        near = abs(p["mu"]) < width or not of_shard(shard)
        return log_likelihood(p, shard) if near else elsewhere

    return from_functions(log_prior, limited, {"mu": Real()})


def failing_after(n_calls, value):
    """A mean whose log-likelihood is `value` from some call in a process on."""
    calls = [0]

    def limited(p, shard):
        calls[0] += 1
        return log_likelihood(p, shard) if calls[0] < n_calls else value

    return from_functions(log_prior, limited, {"mu": Real()})


def sampled(model, **settings):
    return quorate.sample(model, ROWS, workers=2, draws=400, progress=False, **settings)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("method", ["exact", "merge"])
def test_a_density_that_is_a_number_only_at_the_start(method, value):
    with pytest.raises(WorkerFailedError, match=r"shard \d.*log_likelihood is (nan|inf) at mu = "):
        sampled(defined_near(1e-9, value), method=method)


def test_a_density_that_is_zero_but_for_the_start():
    with pytest.raises(BadInputError, match=r"no density at most points around \(0\)"):
        sampled(defined_near(1e-9, -np.inf), method="exact")


@pytest.mark.filterwarnings("ignore::quorate.errors.NotANumberWarning")
@pytest.mark.parametrize("sampler", ["ellipse", "random_walk"])
def test_a_chain_that_refuses_all_proposals(sampler):
    """On the commit before, the run was done, with an sd of 0."""
    with pytest.raises(WorkerFailedError, match=r"shard \d.*proposals were refused"):
        sampled(failing_after(900, np.nan), scheme="cmc", method="merge", sampler=sampler)


def test_an_exact_run_that_leaves_out_many_points_says_so():
    def cut(p, shard):
        return log_likelihood(p, shard) if p["mu"] < 1.0 else np.nan

    model = from_functions(log_prior, cut, {"mu": Real()})
    with pytest.warns(NotANumberWarning, match=r"shard \d.*count as if the density were 0"):
        assert sampled(model, method="exact").stopped == "done"


@pytest.mark.parametrize("name", ["ellipse", "random_walk"])
def test_a_few_refusals_are_no_error(name, seed):
    """The control: half of all proposals are refused, and the chain goes on."""

    def half(p, _shard):
        return -0.5 * p["mu"] ** 2 if p["mu"] < 1.5 else np.nan

    target = Target(from_functions(lambda _: 0.0, half, {"mu": Real()}), {"y": np.zeros(1)}, 1)
    stream, sampler = ChainStream(Streams(seed), 0, 0), make_sampler(name)
    with pytest.warns(NotANumberWarning):
        draws, _ = sampler.draw(target, sampler.warm_up(target, stream), stream, 500)
    assert draws.max() < 1.5
    assert draws.std() > 0.5


# ------------------------------------------------------------ the search for a mode


def test_the_search_refuses_steps_to_where_there_is_no_number():
    """From 10, Newton's first step on log x - x leads to x = -80."""

    def log_gamma(p, _shard):
        with np.errstate(invalid="ignore"):
            return np.log(p["x"]) - p["x"]

    model = from_functions(lambda _: 0.0, log_gamma, {"x": Real()}, initial={"x": 10.0})
    with pytest.raises(NotANumberError):
        Target(model, {"y": np.zeros(1)}, 1).log_density(np.array([-80.0]))
    assert laplace_fit(Target(model, {"y": np.zeros(1)}, 1)).mode == pytest.approx(1.0, abs=0.01)


def test_a_hierarchical_model_without_a_mode():
    """Its density rises as tau falls, until tau is 0 and the log prior is 0/0."""
    import jax.numpy as jnp

    n, rng = 15, np.random.default_rng(0)
    shard = {"y": rng.normal(1.0, 0.5, n) + rng.normal(size=n)}

    def prior(p):
        z = (p["theta"] - p["mu"]) / p["tau"]
        return -0.5 * jnp.sum(z**2) - n * jnp.log(p["tau"]) - p["tau"] - p["mu"] ** 2

    def likelihood(p, shard):
        return -0.5 * jnp.sum((shard["y"] - p["theta"]) ** 2)

    parameters = {"mu": Real(), "tau": Positive(), "theta": Real(n)}
    model = from_functions(prior, likelihood, parameters, backend="jax")
    with pytest.raises(ImproperError, match="A hierarchical model may be proper without a mode"):
        laplace_fit(Target(model, shard, 4))


# ------------------------------------------------------------ few rows under a wide prior


def counts(seed):
    rng = np.random.default_rng(seed)
    columns = np.column_stack([np.ones(40), rng.normal(size=(40, 2))])
    return {"X": columns, "y": rng.poisson(np.exp(columns @ rng.normal(0.0, 1.0, 3))).astype(float)}


def poisson_model(prior_sd):
    def wide(p):
        return -0.5 * np.sum((p["b"] / prior_sd) ** 2)

    def likelihood(p, shard):
        eta = shard["X"] @ p["b"]
        return np.sum(shard["y"] * eta - np.exp(eta))

    return from_functions(wide, likelihood, {"b": Real(3)})


@pytest.mark.parametrize(("data_seed", "prior_sd"), [(1, 2.5), (0, 30.0), (5, 30.0)])
def test_the_mode_of_a_few_counts_is_found_without_gradients(data_seed, prior_sd):
    """Five rows for three coefficients. Only the prior bounds the mode."""
    rows, model = counts(data_seed), poisson_model(prior_sd)
    for number in range(8):
        shard = {name: array[number::8] for name, array in rows.items()}
        x = laplace_fit(Target(model, shard, 8)).mode
        eta = shard["X"] @ x
        slope = shard["X"].T @ (shard["y"] - np.exp(eta)) - x / (8 * prior_sd**2)
        bends = (shard["X"].T * np.exp(eta)) @ shard["X"] + np.eye(3) / (8 * prior_sd**2)
        assert slope @ np.linalg.solve(bends, slope) < 0.05  # in standard deviations, squared
