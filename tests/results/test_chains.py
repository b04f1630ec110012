"""Chains of the tree: ArviZ tells of them what `Result.summary` tells."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import lfilter

import quorate
from quorate.merging.consensus import consensus_weights
from quorate.merging.ess import merged_ess
from quorate.merging.in_step import merged_in_step
from quorate.merging.pairing import every_draw
from quorate.models import Real, from_functions, linear
from quorate.numerics.ess import bulk_ess, in_chains, joined_chains
from quorate.numerics.streams import Streams
from quorate.protocol.timeline import Timeline
from quorate.results.result import Result

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its import announces the next version
    az = pytest.importorskip("arviz", exc_type=ImportError)

N_CHAINS = 4


def slow_shards(rng, correlation, counts, dim):
    """Autoregressions with variance 1, whose draws resemble those before them."""
    noise = [rng.standard_normal((200 + n, dim)) * np.sqrt(1 - correlation**2) for n in counts]
    return [lfilter([1.0], [1.0, -correlation], e, axis=0)[200:] for e in noise]


def merged(shards, n_draws, seed):
    weights = consensus_weights(np.array([np.cov(x.T).reshape(x.shape[1], -1) for x in shards]))
    which = every_draw(np.array([len(x) for x in shards]), Streams(seed))[:, :n_draws]
    parts = [x[i] @ w.T for x, i, w in zip(shards, which, weights, strict=True)]
    return weights, np.sum(parts, axis=0)


@pytest.mark.parametrize(
    ("correlation", "counts", "dim"),
    [
        (0.9, (2000,) * 4, 1),
        (0.8, (2000,) * 4, 5),
        (0.5, (2000,) * 8, 12),
        (0.8, (2500, 2000, 3100), 3),
        (0.8, (2000,), 3),
        (0.9, (1000,) * 4, 30),
        (0.9, (1200, 1000, 300), 30),
        (0.95, (1000,) * 4, 60),
    ],
)
def test_merged_draws_of_slow_shards_are_laid_out_with_their_ess(correlation, counts, dim, seed):
    """The mean over 6 runs of the log of the ratio of both ESS: its error is at most 0.1.

    The limit is at five of its standard errors, a false alarm in a million. The control are the
    re-paired draws.
    """
    n_draws = min(2000, counts[0])
    before, after = [], []
    for i in range(6):
        shards = slow_shards(np.random.default_rng([seed, i]), correlation, counts, dim)
        weights, draws = merged(shards, n_draws, seed + i)
        wanted = merged_ess(weights, shards)
        laid_out = merged_in_step(draws, weights, shards)
        np.testing.assert_allclose(laid_out.mean(axis=0), draws.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(laid_out.std(axis=0), draws.std(axis=0))
        chains = laid_out.reshape(N_CHAINS, -1, dim)
        after.append(np.log(bulk_ess(chains) / wanted).mean())
        before.append(np.log(bulk_ess(draws[None]) / wanted).mean())
    assert abs(np.mean(after)) < 0.5
    assert np.mean(before) > 0.8


def test_draws_in_step_have_the_correlations_of_the_posterior(seed):
    """All coordinates of a draw come from the same moment. The control mixes moments.

    A correlation of 1,000 independent draws has an error of at most 0.03: the limit is at six.
    """
    rng = np.random.default_rng(seed)
    factor = np.linalg.cholesky([[1.0, 0.8], [0.8, 1.0]])
    shards = [rng.standard_normal((1000, 2)) @ factor.T for _ in range(3)]
    weights, draws = merged(shards, 1000, seed)
    laid_out = merged_in_step(draws, weights, shards)
    assert np.corrcoef(laid_out.T)[0, 1] == pytest.approx(0.8, abs=0.19)
    mixed = np.column_stack([laid_out[:, 0], np.roll(laid_out[:, 1], 1)])
    assert abs(np.corrcoef(mixed.T)[0, 1]) < 0.19


def test_one_shard_gets_back_its_own_draws(seed):
    (shard,) = slow_shards(np.random.default_rng(seed), 0.9, (400,), 3)
    weights, draws = merged([shard], 400, seed)
    assert not np.allclose(draws, shard)
    np.testing.assert_allclose(merged_in_step(draws, weights, [shard]), shard)


def test_a_coordinate_that_does_not_move_stays(rng):
    shards = [np.column_stack([rng.standard_normal(20), np.full(20, 3.0)]) for _ in range(2)]
    weights = np.broadcast_to(np.eye(2) / 2, (2, 2, 2))
    draws = np.mean([shards[0][::-1], shards[1]], axis=0)
    np.testing.assert_allclose(merged_in_step(draws, weights, shards)[:, 1], 3.0)


# ---------------------------------------------------------------- chains of an ensemble


@pytest.mark.parametrize(
    ("n_draws", "n_chains", "shape"),
    [
        (1000, 125, (5, 200)),
        (512, 64, (4, 128)),
        (1003, 125, (5, 200)),
        (7 * 8, 7, (4, 8)),
        (400, 2, (2, 200)),
        (4000, 20, (20, 200)),
        (24, 3, (3, 8)),
    ],
)
def test_short_chains_are_joined_end_to_end(n_draws, n_chains, shape):
    rows = joined_chains(n_draws, n_chains)
    assert rows.shape == shape
    own = in_chains(np.arange(n_draws // n_chains * n_chains), n_chains)
    np.testing.assert_array_equal(rows.ravel(), own.ravel()[: rows.size])


def test_the_ess_of_many_short_chains_is_not_overstated(seed):
    """125 chains of 8 independent draws are worth about 1,000; each by itself seems worth more."""
    ratios = []
    for i in range(20):
        draws = np.random.default_rng([seed, i]).standard_normal((1000, 4))
        assert bulk_ess(in_chains(draws, 125)).mean() > 1250
        ratios.append(bulk_ess(draws[joined_chains(1000, 125)]) / 1000)
    # A ratio has a standard deviation of about 0.1: the mean of 80 is within 0.06 but for once in
    # 10⁷ times.
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.06)


# ---------------------------------------------------------------- results


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of ArviZ 0.x
@pytest.mark.parametrize(
    "options",
    [
        {"method": "exact"},
        {"method": "merge", "sampler": "random_walk"},
        {"method": "merge", "sampler": "random_walk", "scheme": "coded", "redundancy": 1},
    ],
)
def test_arviz_and_the_summary_agree(options, seed):
    """ESS and R-hat of both differ by their own noise. A random walk mixes slowly.

    The mean of the logs of four ratios of ESS, each of about 350, has an error of 0.08, and R-hat
    exceeds 1 by 4/ESS times a χ² over its 7 degrees of freedom: limits are beyond 1 in a million.
    """
    rng = np.random.default_rng(seed)
    columns = np.column_stack([np.ones(300), rng.standard_normal((300, 2))])
    data = {"X": columns, "y": columns @ [1.0, -1.0, 0.5] + rng.standard_normal(300)}
    result = quorate.sample(
        linear(3), data, workers=3, draws=6000, seed=seed, progress=False, check=False, **options
    )
    ours = result.summary()
    told = az.summary(result.to_inference_data(), kind="all", round_to="none")
    gaps = told["mean"].to_numpy(float) - ours["mean"].to_numpy(float)
    assert np.all(np.abs(gaps) < 0.1 * ours["mcse"].to_numpy(float))
    np.testing.assert_allclose(told["sd"].to_numpy(float), ours["sd"], rtol=0.01)
    ratios = told["ess_bulk"].to_numpy(float) / ours["ess"].to_numpy(float)
    assert abs(np.log(ratios).mean()) < 0.5
    assert result.chain_rows.shape[0] >= N_CHAINS
    assert np.abs(told["r_hat"].to_numpy(float) - ours["r_hat"].to_numpy(float)).max() < 0.1


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of ArviZ 0.x
def test_arviz_and_the_summary_agree_on_many_parameters_of_slow_shards(seed):
    """The mean of 30 logs of ratios has an error of at most 0.12. The control has no chains."""
    shards = slow_shards(np.random.default_rng(seed), 0.9, (1000,) * 4, 30)
    weights, draws = merged(shards, 1000, seed)
    result = Result(
        model=from_functions(lambda p: 0.0, lambda p, shard: 0.0, {"beta": Real(30)}),
        unconstrained=draws,
        shard_draws=shards,
        weights=weights,
        timeline=Timeline(release_times=[1.0] * 1000),
        scheme="cmc",
        workers=4,
        redundancy=1,
        excluded=(),
        lost=frozenset(),
        stopped="done",
        run_dir="",
    )
    ours = result.summary()

    def surplus(tree):
        told = az.summary(tree, kind="all", round_to="none")
        return told, np.log(told["ess_bulk"].to_numpy(float) / ours["ess"].to_numpy(float)).mean()

    told, found = surplus(result.to_inference_data())
    assert abs(found) < 0.5
    for column in ("mean", "sd"):
        np.testing.assert_allclose(told[column].to_numpy(float), ours[column], rtol=0.01, atol=1e-9)
    _, without = surplus(replace(result, weights=None).to_inference_data())
    assert without > 1.5
