"""The verdict on exact runs: good draws, modes that were missed, chains that stay, disputes."""

from dataclasses import dataclass

import numpy as np
import pytest

from quorate.errors import SingularCovarianceError
from quorate.numerics.streams import Streams
from quorate.trust.exact import ExactQuestion

N_CHAINS, N_STEPS, N_POINTS = 64, 16, 1000
APART = 12.0  # distance of two modes of sd 1


@dataclass
class Plane:
    """Names for two coordinates; the posterior itself is not asked of it."""

    dim: int = 2
    names: tuple = ("a", "b")

    def constrain(self, draws):
        return {"a": draws[..., 0], "b": draws[..., 1]}


def one_mode(points):
    return -0.5 * np.sum(points**2, axis=1)


def two_modes(points):
    return np.logaddexp(one_mode(points), one_mode(points - np.array([APART, 0.0])))


def verdict(draws, log_posterior, seed, *, other_modes=(), disputes=(), n_chains=N_CHAINS):
    modes = [np.atleast_2d(mode) for mode in other_modes] or [np.empty((0, 2))]
    question = ExactQuestion(Plane(), draws, n_chains, modes, [None] * 4, frozenset(disputes))
    points = question.proposal().points(Streams(seed), N_POINTS)
    return question.answer(points, log_posterior(points))


@pytest.fixture
def draws(rng):
    """Independent draws of the first mode, of chains in turn."""
    return rng.standard_normal((N_CHAINS * N_STEPS, 2))


# Independent draws are called good but where nested R-hat exceeds 1.05 or an error of a moment 0.25
# sds: both are more than 6 of their standard errors away. All else below is the control.


def test_good_draws_are_good(draws, seed):
    found = verdict(draws, one_mode, seed)
    assert found.verdict == "good", found
    assert found.n_points == N_POINTS
    assert found.raw.keys() == found.corrected.keys()


def test_good_draws_of_two_modes_are_good(draws, seed, rng):
    """Where chains go to and fro between them, and the search has found both."""
    both = draws + np.outer(rng.random(len(draws)) < 0.5, [APART, 0.0])
    found = verdict(both, two_modes, seed, other_modes=[[APART, 0.0]])
    assert "no chain has been" not in found.advice
    assert found.verdict != "do not trust", found


def test_a_mode_that_was_missed_is_found_where_the_search_has_been(draws, seed):
    found = verdict(draws, two_modes, seed, other_modes=[[APART, 0.0]])
    assert found.verdict == "do not trust", found
    assert "another mode" in found.advice
    # The control: another mode of a shard that is none of the posterior
    assert verdict(draws, one_mode, seed, other_modes=[[APART, 0.0]]).verdict == "good"


def test_chains_that_stay_where_they_began_are_not_good(rng, seed):
    stuck = np.tile(rng.standard_normal((N_CHAINS, 2)), (N_STEPS, 1))
    moving = stuck + 1e-3 * rng.standard_normal(stuck.shape)
    for draws in (stuck, moving):
        found = verdict(draws, one_mode, seed)
        assert found.verdict != "good", found
        assert "draw more" in found.advice
    assert verdict(moving, one_mode, seed).verdict == "do not trust"


def slow_draws(rng, n_steps, memory=0.95):
    """Draws of chains that forget a step by this factor: 39 are worth one."""
    x = rng.standard_normal((N_CHAINS, 2))
    steps = [x]
    for _ in range(n_steps - 1):
        x = memory * x + np.sqrt(1 - memory**2) * rng.standard_normal(x.shape)
        steps.append(x)
    return np.concatenate(steps)


def heavy_tails(points):
    """Weights of points around the draws are too uneven to tell anything."""
    return -1.5 * np.log(np.sum(points**2, axis=1) + 1e-3)


def test_slow_chains_are_usable_if_they_are_short_or_cannot_be_checked(rng, seed):
    short = verdict(slow_draws(rng, 40), one_mode, seed)
    assert short.verdict == "usable", short
    assert "so tails may be missing" in short.advice
    long = slow_draws(rng, 400)
    assert verdict(long, one_mode, seed).verdict == "good"
    unchecked = verdict(long, heavy_tails, seed)
    assert "so tails may be missing" in unchecked.advice
    assert unchecked.verdict != "good"
    quick = verdict(rng.standard_normal(long.shape), heavy_tails, seed)
    assert "so tails may be missing" not in quick.advice


def test_disputes_are_not_trusted(draws, seed):
    found = verdict(draws, one_mode, seed, disputes={(1, 3)})
    assert found.verdict == "do not trust"
    assert "workers 1 and 3" in found.advice
    found = verdict(draws, one_mode, seed, disputes={(0, 1, 3)})
    assert "coded answers of workers 0, 1 and 3" in found.advice


def test_draws_that_are_off_are_not_good(draws, seed):
    """By 1 sd, where an error above 0.25 is named."""
    found = verdict(draws + np.array([1.0, 0.0]), one_mode, seed)
    assert found.verdict != "good", found


def test_short_chains_are_usable_at_best(rng, seed):
    draws = rng.standard_normal((3 * N_CHAINS, 2))
    found = verdict(draws, one_mode, seed)
    assert found.verdict == "usable", found
    assert "too short" in found.advice


def test_too_few_draws_cannot_be_judged(rng):
    question = ExactQuestion(Plane(), rng.standard_normal((3, 2)), 2, [], [None] * 4)
    with pytest.raises(SingularCovarianceError):
        question.proposal()
    enough = ExactQuestion(Plane(), rng.standard_normal((4, 2)), 2, [], [None] * 4)
    assert enough.proposal().mixture.dim == 2
