"""Criteria of predictive accuracy of single items, from their log-likelihoods at draws.

PSIS-LOO is that of ArviZ: Vehtari, Gelman & Gabry (2017), doi:10.1007/s11222-016-9696-4.
"""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from quorate._types import Array


class Criteria(NamedTuple):
    """Criteria of m items, (m,) each."""

    elpd: Array  # expected log predictive density with the item left out, by PSIS
    pareto_k: Array  # shape of the tail of its importance weights
    lppd: Array  # log of the mean of its likelihood
    variance: Array  # of its log-likelihood: the effective parameters of WAIC


def criteria(log_likelihoods: Array, r_eff: float) -> Criteria:
    """Criteria of items with log-likelihoods (n_draws, m); `r_eff` is ESS / n_draws."""
    n_draws, n_items = log_likelihoods.shape
    array_stats: Any = import_module("arviz_stats.base").array_stats
    if n_items == 0:
        return Criteria(*(np.zeros(0) for _ in Criteria._fields))
    of_items = np.ascontiguousarray(log_likelihoods.T)
    with np.errstate(all="ignore"):
        log_weights, pareto_k = array_stats.psislw(of_items, r_eff=r_eff)
        elpd = logsumexp(log_weights + of_items, axis=1)
    lppd = logsumexp(log_likelihoods, axis=0) - np.log(n_draws)
    variance = np.var(log_likelihoods, axis=0)
    return Criteria(*(np.asarray(of, np.float64) for of in (elpd, pareto_k, lppd, variance)))
