"""Six real posteriors (posteriordb), with references of long runs, in tests/data/cases.

Errors are in posterior standard deviations. `consensus` in the reference file is what consensus
weights reach on the same partition with long exact runs: the rule's own error, not ours.
"""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from quorate.combine.consensus import consensus_weights, merge
from quorate.ess import bulk_ess
from quorate.models import Ordered, Positive, UnitInterval, from_functions, linear, logistic
from quorate.moments import Moments
from quorate.samplers import make_sampler
from quorate.shards import write_shards
from quorate.streams import ChainStream, Streams
from quorate.target import Target

FOLDER = Path(__file__).parent / "data" / "cases"
REFERENCE = json.loads((FOLDER / "reference.json").read_text())
CONSENSUS = [
    (case, int(k))
    for case, known in REFERENCE.items()
    for k in known["consensus"]
    if case != "logmesquite"  # 46 rows: a quarter of them hardly makes eight parameters proper
]
N_DRAWS = 6000
FALSE_FAIL_RATE = 1e-6


def mixture_prior(p, xp=np):
    spread = (p["mu"] ** 2).sum() + (p["sigma"] ** 2).sum()
    return -spread / 8 + 4 * (xp.log(p["w"]) + xp.log1p(-p["w"]))


def mixture_likelihood(p, shard, xp=np):
    """Two normals; the logarithm of w N(mu_1, sigma_1) + (1 - w) N(mu_2, sigma_2)."""
    z = (shard["y"][:, None] - p["mu"]) / p["sigma"]
    with np.errstate(divide="ignore"):
        weights = xp.log(xp.array([p["w"], 1 - p["w"]]))
    return xp.sum(xp.logaddexp(*(weights - xp.log(p["sigma"]) - z**2 / 2).T))


def capture_likelihood(p, shard, xp=np):
    """An animal is there with probability omega; one never seen may not be."""
    y = shard["y"]
    with np.errstate(divide="ignore"):
        seen = xp.log(p["omega"]) + y @ xp.log(p["p"]) + (1 - y) @ xp.log1p(-p["p"])
        absent = xp.where(y.any(axis=1), -np.inf, xp.log1p(-p["omega"]))
    return xp.sum(xp.logaddexp(seen, absent))


FUNCTIONS = {
    "gauss_mix": (
        mixture_prior,
        mixture_likelihood,
        {"mu": Ordered(2), "sigma": Positive(2), "w": UnitInterval()},
    ),
    "capture_Mt": (
        lambda p, xp=np: xp.zeros(()),
        capture_likelihood,
        {"omega": UnitInterval(), "p": UnitInterval(3)},
    ),
}
MODELS = {
    "kidscore_interaction": linear(4, "flat", scale_prior="half_cauchy(2.5)"),
    "nes1996": linear(9, "flat", scale_prior="flat"),
    "logmesquite": linear(7, "flat", scale_prior="flat"),
    "wells_dae_inter": logistic(7, "flat"),
    **{case: from_functions(*functions) for case, functions in FUNCTIONS.items()},
}


def with_gradients(case):
    """Regressions have them; functions get theirs from JAX."""
    if case not in FUNCTIONS:
        return MODELS[case]
    jnp = pytest.importorskip("jax.numpy")
    prior, likelihood, parameters = FUNCTIONS[case]
    return from_functions(
        partial(prior, xp=jnp), partial(likelihood, xp=jnp), parameters, backend="jax"
    )


def draws_of_shards(case, n_shards, seed, folder, sampler="auto", n_draws=N_DRAWS):
    """Shape (n_draws, n_shards, d); the partition is that of the reference, whatever the seed."""
    with np.load(FOLDER / f"{case}.npz") as data:
        shards = write_shards(dict(data), n_shards, folder, seed=0)
    method = make_sampler(sampler)
    model = with_gradients(case) if sampler == "nuts" else MODELS[case]
    chains = []
    for s in range(n_shards):
        target = Target(model, shards.shard(s), n_shards)
        stream = ChainStream(Streams(seed), s, 0)
        chains.append(method.draw(target, method.warm_up(target, stream), stream, n_draws)[0])
    return np.stack(chains, axis=1)


@pytest.mark.parametrize(("sampler", "n_draws"), [("auto", N_DRAWS), ("nuts", 1500)])
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


@pytest.mark.parametrize(("case", "n_shards"), CONSENSUS)
def test_consensus_reaches_what_the_rule_can(case, n_shards, seed, tmp_path):
    """RMS errors of merged means and sds are those of long runs, but for noise in the weights.

    That noise is about 0.85 √(d / ESS) standard deviations; we allow for three times as much.
    """
    draws = draws_of_shards(case, n_shards, seed, tmp_path / "shards")
    known = REFERENCE[case]
    covs = Moments.of(np.swapaxes(draws, 0, 1)).covariance()
    merged = merge(consensus_weights(covs), draws)
    ess = min(float(np.min(bulk_ess(chain[None]))) for chain in np.swapaxes(draws, 0, 1))
    noise = 3 * 0.85 * (draws.shape[2] / ess) ** 0.5
    expected = known["consensus"][str(n_shards)]
    mean_errors = (merged.mean(axis=0) - known["mean"]) / known["sd"]
    sd_errors = merged.std(axis=0) / known["sd"] - 1
    assert np.sqrt(np.mean(mean_errors**2)) == pytest.approx(expected["mean_rms"], abs=noise)
    assert np.sqrt(np.mean(sd_errors**2)) == pytest.approx(expected["sd_rms"], abs=noise)
