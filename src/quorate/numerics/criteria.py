"""Criteria of predictive accuracy of single items, from their log-likelihoods at draws.

PSIS-LOO: Vehtari, Gelman & Gabry (2017), doi:10.1007/s11222-016-9696-4.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from quorate._types import Array
from quorate.numerics.pareto import pareto_smoothed


class Criteria(NamedTuple):
    """Criteria of m items, (m,) each."""

    elpd: Array  # expected log predictive density with the item left out, by PSIS
    pareto_k: Array  # shape of the tail of its importance weights
    lppd: Array  # log of the mean of its likelihood
    variance: Array  # of its log-likelihood: the effective parameters of WAIC


def criteria(log_likelihoods: Array, r_eff: float) -> Criteria:
    """Criteria of items with log-likelihoods (n_draws, m); `r_eff` is ESS / n_draws.

    If an item is impossible at some draw, that draw has all the weight without the item.
    """
    n_draws, n_items = log_likelihoods.shape
    elpd, pareto_k = np.full(n_items, -np.inf), np.full(n_items, np.inf)
    variance = np.full(n_items, np.inf)
    with np.errstate(all="ignore"):
        for item, values in enumerate(np.ascontiguousarray(log_likelihoods.T)):
            if not np.isneginf(values).any():
                log_weights, pareto_k[item] = pareto_smoothed(-values, r_eff)
                elpd[item] = logsumexp(log_weights + values)
                variance[item] = np.var(values)
        lppd = np.asarray(logsumexp(log_likelihoods, axis=0) - np.log(n_draws))
    return Criteria(elpd, pareto_k, lppd, variance)
