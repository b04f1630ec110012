"""Means of shards: of draws, shrunk towards what warm-up found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma, polygamma

from helpers.cases import REFERENCE, subposterior_moments, targets
from helpers.targets import log_gamma, stream
from quorate.merging.centres import shift_of
from quorate.merging.consensus import consensus_weights
from quorate.merging.fit import Fit, as_arrays
from quorate.merging.weights import WORTH, shrunk_covariances
from quorate.numerics.moments import Moments
from quorate.numerics.streams import ChainStream, Streams
from quorate.protocol.ledger import Ledger, Merging
from quorate.samplers import EllipseSampler, fit_of
from quorate.samplers.base import Base
from quorate.samplers.laplace import laplace_fit
from quorate.samplers.refinement import refined


def moments_at(mean, count=500):
    return Moments(count, np.asarray(mean, dtype=float), count * np.eye(len(mean)))


def test_each_counts_for_what_it_is_worth():
    """500 draws of a chain count as 500 · 0.2 independent ones, against 300."""
    fit = Fit(np.array([0.1, -0.1]), np.eye(2), worth=300.0)
    found = shift_of(moments_at([0.0, 0.0]), fit)
    np.testing.assert_allclose(found, 300 / (300 + 500 * WORTH) * fit.mean, rtol=1e-12)


def test_heavy_tails_make_draws_worth_less():
    mean = np.array([0.1, -0.1])
    heavy = Fit(mean, np.eye(2), noise=100.0, worth=300.0)
    found = shift_of(moments_at([0.0, 0.0]), heavy)
    np.testing.assert_allclose(found, 300 / (300 + 5 * WORTH) * mean, rtol=1e-12)


@pytest.mark.parametrize("fit", [None, Fit(np.ones(2), np.eye(2))])
def test_a_mode_is_no_mean(fit):
    np.testing.assert_array_equal(shift_of(moments_at([0.0, 0.0]), fit), [0.0, 0.0])


def test_without_draws_nothing_is_shifted():
    fit = Fit(np.ones(2), np.eye(2), worth=300.0)
    np.testing.assert_array_equal(shift_of(Moments.none(2), fit), [0.0, 0.0])


@given(
    gap=st.floats(1e-3, 1e6),
    count=st.integers(1, 10**7),
    worth=st.floats(1, 1e6),
    dim=st.sampled_from([1, 3, 16]),
)
def test_draws_that_disagree_are_believed(gap, count, worth, dim):
    """A shift is never longer than what noise of draws and fit explains, and never overshoots.

    How wide the draws are is known twice, from themselves and from the fit.
    """
    fit = Fit(np.full(dim, gap), np.eye(dim), worth=worth)
    found = shift_of(moments_at(np.zeros(dim), count), fit)
    assert (found > 0).all()
    assert (found < gap).all()
    noise = np.sqrt(2 / (WORTH * count) + 1 / worth)
    assert np.linalg.norm(found) <= (np.sqrt(dim) + 2) * noise * (1 + 1e-9)


def test_a_chain_that_was_far_out_for_a_while_is_not_believed():
    """For 60 of 500 draws. One that is as far out as a whole is: warm-up has missed a place."""
    fit = Fit(np.zeros(2), np.eye(2), noise=20.0, worth=1000.0)
    out = np.linspace(0, 1, 500)[:, None] < 0.12
    gap = np.array([30.0, 0.0])
    visit = Moments(500, out.mean() * gap, 500 * (np.eye(2) + out.var() * np.outer(gap, gap)))
    np.testing.assert_allclose(shift_of(visit, fit), -visit.mean, rtol=0.01)
    stay = moments_at(gap)
    assert np.linalg.norm(shift_of(stay, fit)) < 0.2 * np.linalg.norm(gap)


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 10**5), st.floats(0.01, 100))
def test_coordinates_do_not_matter(number, count, length):
    rng = np.random.default_rng(number)
    turn, place = rng.normal(size=(3, 3)) + 2 * np.eye(3), rng.normal(size=3)
    fit = Fit(length * rng.normal(size=3), np.diag([1.0, 2.0, 0.1]), worth=200.0)
    moments = moments_at(rng.normal(size=3), count)
    turned = Fit(turn @ fit.mean + place, turn @ fit.covariance @ turn.T, worth=200.0)
    of_turned = Moments(count, turn @ moments.mean + place, turn @ moments.scatter @ turn.T)
    np.testing.assert_allclose(
        shift_of(of_turned, turned), turn @ shift_of(moments, fit), rtol=1e-6, atol=1e-9
    )


def three_shards(rng, worth):
    draws = [rng.normal(size=(30 + 10 * s, 1, 2)) + s for s in range(3)]
    fits = [Fit(np.full(2, s + 0.1), np.eye(2), worth=worth) for s in range(3)]
    return draws, fits


def ledger_of(draws, fits, weights, pairing="all"):
    ledger = Ledger([(s,) for s in range(len(draws))], Merging(pairing=pairing, weights=weights))
    for s, (of, fit) in enumerate(zip(draws, fits, strict=True)):
        ledger.add(s, of, extras=as_arrays([fit]))
    return ledger


@pytest.mark.parametrize("pairing", ["all", "paper"])
def test_merged_draws_are_shifted_as_shards_are(pairing, rng):
    draws, fits = three_shards(rng, worth=50.0)
    ledger = ledger_of(draws, fits, "shrunk", pairing)
    used = [of[:, 0] if pairing == "all" else of[:30, 0] for of in draws]
    shifts = [shift_of(Moments.of(of), fit) for of, fit in zip(used, fits, strict=True)]
    shift = np.einsum("sij,sj->i", ledger.weights(), shifts)
    without = ledger_of(draws, three_shards(rng, worth=0.0)[1], "shrunk", pairing)
    assert np.abs(shift).min() > 1e-3
    np.testing.assert_allclose(ledger.global_draws(), without.global_draws() + shift, atol=1e-12)


def test_draws_of_a_single_shard_are_left_as_they_are(rng):
    draws, fits = three_shards(rng, worth=50.0)
    found = ledger_of(draws[:1], fits[:1], "shrunk", "paper").global_draws()
    np.testing.assert_allclose(found, draws[0][:, 0], atol=1e-12)


def test_the_papers_weights_leave_draws_where_they_are(rng):
    draws, fits = three_shards(rng, worth=50.0)
    found = ledger_of(draws, fits, "draws").global_draws()
    np.testing.assert_array_equal(
        found, ledger_of(draws, three_shards(rng, worth=0.0)[1], "draws").global_draws()
    )


@pytest.mark.parametrize("shape", [3.0, 30.0])
def test_means_of_warm_up_are_worth_what_they_say(shape, seed):
    """Over 40 shards, whose errors are independent of each other.

    Logarithms of gamma variates have mean ψ(a) and variance ψ'(a). If means were worth just what
    they say, the average of 200 squares would exceed 1.35 once in a thousand runs. They are worth
    about three times that, or more.
    """
    dim, n_shards = 5, 40
    target = log_gamma(np.full(dim, shape))
    base = Base.around(laplace_fit(target))
    found = [refined(target, base, stream(seed, shard=s)) for s in range(n_shards)]
    sd = np.sqrt(polygamma(1, shape))

    worths = np.array([fit["fit_worth"] for fit in found])

    def errors(means):
        return (np.asarray(means) - digamma(shape)) / sd * np.sqrt(worths)[:, None]

    of_fits = errors([fit["fit_mean"] for fit in found])
    assert np.mean(of_fits**2) < 0.6
    assert np.abs(of_fits.mean(axis=0)).max() < 4.5 / np.sqrt(n_shards)
    assert np.mean(errors([base.mean] * n_shards) ** 2) > 5  # modes


CASES = ["kidscore_interaction", "wells_dae_inter", "gauss_mix", "capture_Mt"]


@pytest.mark.parametrize("case", CASES)
def test_merged_means_of_real_posteriors_are_right_from_500_draws(case, seed, tmp_path):
    """Their errors are at most a third of those with covariances of draws.

    Against Σ W_s μ_s with weights and means known exactly. In 32 seeds of 20 blocks they were 7 to
    28 times smaller, 3.9 to 43 times for the last in 48. Exact weights without shifts, and shifts
    without weights, do worse.
    """
    blocks, fits = [], []
    for s, target in enumerate(targets(case, 4, tmp_path / "shards")):
        sampler, chain = EllipseSampler(warns=False), ChainStream(Streams(seed), s, 0)
        state = sampler.warm_up(target, chain)
        blocks.append(sampler.draw(target, state, chain, 4000)[0].reshape(8, 500, -1))
        fits.append(fit_of(state))
    moments = [[Moments.of(block) for block in shard] for shard in zip(*blocks, strict=True)]
    means = np.stack(blocks, axis=1).mean(axis=2)
    centres = means + [
        [shift_of(*of) for of in zip(shards, fits, strict=True)] for shards in moments
    ]
    true_means, true_covs = subposterior_moments(case)

    def merged(covs, centres):
        return np.einsum("bsij,bsj->bi", consensus_weights(np.stack(covs)), centres)

    expected = merged([true_covs], true_means[None])

    def error(covs, centres):
        gaps = merged(covs, centres) - expected
        return np.sqrt(np.mean((gaps / REFERENCE[case]["sd"]) ** 2))

    of_draws = [[of.covariance() for of in shards] for shards in moments]
    default = error([shrunk_covariances(shards, fits) for shards in moments], centres)
    assert default < error(of_draws, means) / 3
    assert default < error([true_covs] * 8, means)
    assert default < error(of_draws, centres)
