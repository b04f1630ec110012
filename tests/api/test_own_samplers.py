"""Samplers that users bring, and draws that are exact: alone and in worker processes."""

import pickle
from dataclasses import dataclass

import cloudpickle
import numpy as np
import pytest

import quorate
from helpers.assertions import assert_chain_mean, assert_known, assert_mean
from helpers.targets import Density, gaussian, stream
from quorate.errors import BadInputError, WorkerFailedError
from quorate.models.gaussian import GaussianSubposteriors
from quorate.models.subposterior import Target
from quorate.samplers import make_sampler
from quorate.samplers.ellipse import EllipseSampler
from quorate.samplers.exact import ExactSampler
from quorate.samplers.laplace import laplace_fit

MEAN, COV = np.array([1.0, -2.0]), np.array([[1.0, 0.6], [0.6, 2.0]])


def metropolis(target, start, rng):
    """Five steps of a random walk for each draw."""
    x, value = start, target.log_density(start)
    while True:
        for _ in range(5):
            proposal = x + 1.5 * rng.standard_normal(len(x))
            found = target.log_density(proposal)
            if np.log(rng.random()) < found - value:
                x, value = proposal, found
        yield x


def known(target, start, rng):
    """Exact draws of `gaussian(MEAN, COV)`, in batches of four."""
    return rng.multivariate_normal(MEAN, COV, size=4)


@dataclass
class Counting:
    """Yields start + 1, start + 2, …: what a chain is made of can be read off."""

    n: int | None = None

    def __call__(self, target, start, rng):
        x = start
        while self.n is None or x[0] < start[0] + self.n:
            x = x + 1
            yield x


def blocks(sampler, target, seed, sizes):
    state = sampler.warm_up(target, stream(seed))
    made = []
    for size in sizes:
        draws, state = sampler.draw(target, state, stream(seed), size)
        made.append(draws)
    return np.concatenate(made), state


@pytest.mark.parametrize("function", [metropolis, known])
def test_moments_of_own_draws(function, seed):
    draws, _ = blocks(make_sampler(function), gaussian(MEAN, COV), seed, [1, 0, 999, 1000])
    assert_chain_mean(draws, MEAN)
    with pytest.raises(AssertionError, match=r"\|z\|"):
        assert_chain_mean(draws, MEAN + 0.5)


def test_a_generator_goes_on_from_block_to_block(seed):
    target = gaussian(np.zeros(2), COV)
    draws, _ = blocks(make_sampler(Counting()), target, seed, [3, 4, 1])
    expected = laplace_fit(target).mode + np.arange(1, 9)[:, None]
    np.testing.assert_array_equal(draws, expected)
    thinned, _ = blocks(make_sampler(Counting(), thin=3), target, seed, [1, 2])
    np.testing.assert_array_equal(thinned, laplace_fit(target).mode + np.array([[3], [6], [9]]))


def test_a_function_is_called_again_when_its_draws_are_used_up(seed):
    target = gaussian(np.zeros(2), COV)
    endless, _ = blocks(make_sampler(Counting(), thin=2), target, seed, [10])
    in_twos, _ = blocks(make_sampler(Counting(2), thin=2), target, seed, [3, 7])
    in_threes, _ = blocks(make_sampler(Counting(3), thin=2), target, seed, [3, 7])
    np.testing.assert_array_equal(in_twos, endless)
    np.testing.assert_array_equal(in_threes, endless)
    batches, _ = blocks(make_sampler(known, thin=3), target, seed, [40])
    assert len(np.unique(batches)) == batches.size  # each call has numbers of its own


def test_a_chain_taken_over_starts_from_its_last_draw(seed):
    target, sampler = gaussian(np.zeros(2), COV), make_sampler(Counting())
    draws, state = blocks(sampler, target, seed, [5])
    elsewhere = pickle.loads(pickle.dumps(sampler))
    more, _ = elsewhere.draw(target, state, stream(seed), 2)
    np.testing.assert_array_equal(more, draws[-1] + [[1], [2]])
    again, _ = sampler.draw(target, state, stream(seed), 2)  # a retried block
    np.testing.assert_array_equal(again, more)
    assert sampler.determinism == "none"


def test_own_samplers_travel_while_they_run(seed):
    sampler = make_sampler(metropolis, thin=2)
    blocks(sampler, gaussian(MEAN, COV), seed, [3])
    again = cloudpickle.loads(cloudpickle.dumps(sampler))
    assert (again.name, again.thin) == ("metropolis", 2)


def test_without_a_mode_the_start_is_that_of_the_model(seed):
    edge = Density(1, lambda x: float(-x[0]) if x[0] > 0 else -np.inf, at=2.0)
    draws, _ = blocks(make_sampler(Counting()), Target(edge, {}, 1), seed, [1])
    assert draws == [[3.0]]


def test_objects_that_are_samplers_pass():
    sampler = EllipseSampler(thin=2)
    assert make_sampler(sampler) is sampler
    with pytest.raises(BadInputError, match=r"thin=3 to the sampler itself"):
        make_sampler(sampler, thin=3)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda target, start, rng: iter(()),
            "'<lambda>' yielded no draws. It must yield at least one",
        ),
        (lambda target, start, rng: 7, "of type int. It must yield or return draws"),
        (lambda target, start, rng: [[1.0]], r"shape \(1,\).*Yield one array of shape \(2,\)"),
        (lambda target, start, rng: [[np.nan, 0.0]], r"\[nan  0\.\]. Draws must be finite"),
        (7, "7 is no sampler. Give a name, a function"),
    ],
)
def test_what_is_no_sampler_is_refused(function, message, seed):
    with pytest.raises(BadInputError, match=message):
        blocks(make_sampler(function), gaussian(MEAN, COV), seed, [1])


# ---------------------------------------------------------------- Gaussian subposteriors


@pytest.fixture
def gaussians(rng):
    rows = rng.normal(MEAN, size=(301, 2))
    return quorate.gaussian_mean_model(rows, 4, COV, 10 * np.eye(2))


def test_gaussian_subposteriors_are_a_model(gaussians, rng):
    fit = laplace_fit(Target(gaussians, gaussians.rows(), 1))
    mean, cov = gaussians.posterior()
    np.testing.assert_allclose(fit.mode, mean, atol=1e-8)
    np.testing.assert_allclose(fit.cov, cov, rtol=1e-6)
    shard = {"subposterior": np.array([2])}
    x, step = rng.standard_normal(2), 1e-5 * np.eye(2)
    rises = [
        gaussians.log_likelihood(x + e, shard) - gaussians.log_likelihood(x - e, shard)
        for e in step
    ]
    gradient = gaussians.log_likelihood_and_gradient(x, shard)[1]
    np.testing.assert_allclose(gradient, np.array(rises) / 2e-5, rtol=1e-5)


@pytest.mark.parametrize("scheme", ["cmc", "grouped"])
def test_exact_draws_on_processes(scheme, gaussians, seed, tmp_path):
    options = {"workers": 4, "scheme": scheme, "draws": 2000, "seed": seed, "sampler": "exact"}
    result = quorate.sample(gaussians, gaussians.rows(), run_dir=tmp_path / "run", **options)
    mean, cov = gaussians.posterior()
    assert list(result.variables) == ["theta"]
    # 2,000 draws and weights from as many: 0.022 and 0.018 (RMS over 6 seeds of both schemes)
    scale = np.linalg.inv(np.linalg.cholesky(cov))
    scaled = (result.unconstrained - mean) @ scale.T
    for column in scaled.T:
        assert_known(column.mean(), 0.0, 0.03)
        assert_known(column.std(), 1.0, 0.025)
    with pytest.raises(AssertionError):  # of one shard
        assert_known(((result.shard_draws[0] - mean) @ scale.T).std(), 1.0, 0.025)
    means = sorted(draws[:2000].mean(axis=0)[0] for draws in result.shard_draws)
    sds = np.sqrt(gaussians.covs[:, 0, 0] / 2000)
    for found, known_mean in zip(means, np.sort(gaussians.means[:, 0]), strict=True):
        assert_known(found, known_mean, sds.max())


def test_exact_refuses_what_is_not_gaussian(gaussians):
    with pytest.raises(BadInputError, match=r"not from Density\. Use 'auto'"):
        ExactSampler().warm_up(gaussian(MEAN, COV), stream(0))
    with pytest.raises(BadInputError, match=r"has 4 of the 4 .*Use 4 workers"):
        ExactSampler().warm_up(Target(gaussians, gaussians.rows(), 1), stream(0))


def test_own_samplers_on_processes(seed, tmp_path):
    gaussians = GaussianSubposteriors(np.array([MEAN, MEAN]), np.array([2 * COV, 2 * COV]))

    def draw_for_ever(target, start, rng):
        own = target.model.covs[0]
        while True:
            yield from rng.multivariate_normal(MEAN, own, size=10)

    run = {"workers": 2, "draws": 1000, "seed": seed}
    result = quorate.sample(
        gaussians, gaussians.rows(), sampler=draw_for_ever, run_dir=tmp_path / "run", **run
    )
    assert result.stopped == "done"
    assert_mean(result.shard_draws[0], MEAN)
    with pytest.raises(
        WorkerFailedError, match=r"on shard \d with BadInputError: The sampler 'twos'"
    ):
        quorate.sample(gaussians, gaussians.rows(), sampler=twos, run_dir=tmp_path / "2", **run)


def twos(target, start, rng):
    """Yields draws of the wrong shape."""
    yield np.full(5, 2.0)
