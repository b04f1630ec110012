"""Six real posteriors (posteriordb), with references of long runs, in tests/data/cases.

Errors are in posterior standard deviations. `consensus` in the reference file is what consensus
weights reach on the same partition with long exact runs: the rule's own error, not ours.
"""

import numpy as np
import pytest
from scipy.stats import norm

from helpers.assertions import FALSE_FAIL_RATE, assert_known
from helpers.cases import MODELS, REFERENCE, targets, with_gradients
from quorate.merging.consensus import consensus_weights, merge
from quorate.numerics.ess import bulk_ess, mean_ess
from quorate.numerics.moments import Moments
from quorate.numerics.streams import ChainStream, Streams
from quorate.samplers import make_sampler

CONSENSUS = [(case, int(k)) for case, known in REFERENCE.items() for k in known["consensus"]]
N_DRAWS = 2000
N_DRAWS_OF_NUTS = {("logmesquite", 4): 1000}  # 11 rows for 8 parameters: all shards go to NUTS


def draws_of_shards(case, n_shards, seed, folder, sampler="auto", n_draws=N_DRAWS):
    """Shape (n_draws, n_shards, d); the partition is that of the reference, whatever the seed."""
    method = make_sampler(sampler)
    model = with_gradients(case) if sampler == "nuts" else MODELS[case]
    chains = []
    for s, target in enumerate(targets(case, n_shards, folder, model)):
        stream = ChainStream(Streams(seed), s, 0)
        chains.append(method.draw(target, method.warm_up(target, stream), stream, n_draws)[0])
    return np.stack(chains, axis=1)


@pytest.mark.parametrize(("sampler", "n_draws"), [("auto", 4000), ("nuts", 1500)])
@pytest.mark.parametrize("case", REFERENCE)
def test_one_shard_is_the_posterior(case, sampler, n_draws, seed, tmp_path):
    draws = draws_of_shards(case, 1, seed, tmp_path / "shards", sampler, n_draws)[:, 0]
    known = REFERENCE[case]
    limit = norm.isf(FALSE_FAIL_RATE / (4 * draws.shape[1]))
    for column, mean, sd in zip(draws.T, known["mean"], known["sd"], strict=True):
        noise = (1 / float(bulk_ess(column[None])) + 1 / known["n_draws"]) ** 0.5
        assert abs(column.mean() - mean) < limit * sd * noise
        squares = (column - mean) ** 2
        of_squares = 1 / float(bulk_ess(squares[None])) + 1 / known["n_draws"]
        spread = squares.std() / sd**2 / 2
        assert abs(column.std() / sd - 1) < limit * spread * of_squares**0.5 + 0.01


def assert_consensus(case, draws, merged):
    """RMS errors of merged means and sds are those of long runs, but for noise in the weights.

    The noise of means was 0.85 √(d / ESS) standard deviations (RMS) over 19 posteriors. That of sds
    is half of it, and both are twice as much for capture_Mt, which has a long tail. The ESS is that
    of means: ranks do not see how far out a chain was for a while.
    """
    n_shards, dim = draws.shape[1:]
    known = REFERENCE[case]
    expected = known["consensus"][str(n_shards)]
    ess = min(float(np.min(mean_ess(chain[None]))) for chain in np.swapaxes(draws, 0, 1))
    mean_errors = (merged.mean(axis=0) - known["mean"]) / known["sd"]
    sd_errors = merged.std(axis=0) / known["sd"] - 1
    unit = (2 if case == "capture_Mt" else 1) * (dim / ess) ** 0.5
    assert_known(np.sqrt(np.mean(mean_errors**2)), expected["mean_rms"], 0.85 * unit)
    assert_known(np.sqrt(np.mean(sd_errors**2)), expected["sd_rms"], 0.425 * unit)


@pytest.mark.filterwarnings("ignore::quorate.errors.WrongShapeWarning")  # a tail of capture_Mt
@pytest.mark.parametrize(("case", "n_shards"), CONSENSUS)
def test_consensus_reaches_what_the_rule_can(case, n_shards, seed, tmp_path):
    n_draws = N_DRAWS_OF_NUTS.get((case, n_shards), N_DRAWS)
    draws = draws_of_shards(case, n_shards, seed, tmp_path / "shards", n_draws=n_draws)
    covs = Moments.of(np.swapaxes(draws, 0, 1)).covariance()
    assert_consensus(case, draws, merge(consensus_weights(covs), draws))


def test_equal_weights_do_not(seed, tmp_path):
    """The control."""
    case = "kidscore_interaction"
    draws = draws_of_shards(case, 4, seed, tmp_path / "shards", n_draws=5000)
    with pytest.raises(AssertionError, match="z"):
        assert_consensus(case, draws, draws.mean(axis=1))
