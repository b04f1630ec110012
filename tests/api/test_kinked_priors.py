"""Exact runs with Laplace priors: no special case, though the density has kinks."""

import numpy as np
import pytest
from scipy.stats import norm

import quorate
from helpers import kinked
from helpers.assertions import FALSE_FAIL_RATE
from quorate.numerics.ess import joined_chains, mean_ess


def worst(result, mean, sd):
    """The largest z-score of a mean or of a mean square, in units of the limit for it.

    The limit is that of the stated false-alarm rate; Bonferroni over both and all coordinates.
    """
    z = (result.unconstrained - mean) / sd
    functions = np.concatenate([z, z**2 - 1], axis=1)
    ess = mean_ess(functions[joined_chains(len(z), result.n_chains)])
    scores = functions.mean(axis=0) / functions.std(axis=0) * np.sqrt(ess)
    return np.abs(scores).max() / norm.isf(FALSE_FAIL_RATE / (2 * len(scores)))


@pytest.mark.parametrize("workers", [4, 8])
def test_the_posterior_is_that_of_the_closed_form(workers, seed):
    """At K = 8 a shard has fewer rows than coefficients. Without the prior means are off."""
    data = kinked.rows(np.random.default_rng(seed))
    result = quorate.sample(
        kinked.model(), data, workers=workers, draws=1000, seed=seed, progress=False
    )
    assert result.method == "exact"
    assert result.verdict.verdict == "good"
    assert worst(result, *kinked.moments(data)) < 1
    without = data["X"].T @ data["y"] / kinked.N_ROWS
    assert worst(result, without, kinked.N_ROWS**-0.5) > 1
