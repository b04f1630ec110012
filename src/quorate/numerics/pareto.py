"""Pareto-smoothed importance sampling (Vehtari, Simpson, Gelman, Yao & Gabry 2024).

The largest importance weights are replaced by quantiles of a generalised Pareto distribution that
is fitted to them. Its shape k̂ says how far the weights can be relied on. The results are those of
arviz-stats, whose import takes longer than the check of a run. Where arviz-stats raises an error or
finds no number, as for weights that are all alike, k̂ is infinite here.
"""

import numpy as np
from scipy.special import logsumexp

from quorate._types import Array

_FEWEST = 5  # weights that a distribution is fitted to
_FEW = 225  # effective weights, up to which a fifth of all is the tail
_PRIOR_SHAPE, _PRIOR_WEIGHT = 0.5, 10  # the prior of the shape counts as so many weights


def pareto_smoothed(log_ratios: Array, r_eff: float = 1.0) -> tuple[Array, float]:
    """Smoothed log weights (n,), normalised, and k̂.

    `r_eff` is the effective number of draws relative to n. With too few weights, or if the largest
    are all alike, nothing is smoothed and k̂ is infinite.
    """
    values = log_ratios - log_ratios.max()
    n_tail = _length_of_tail(len(values), r_eff)
    k_hat = np.inf
    if n_tail >= _FEWEST:
        order = np.argsort(values, kind="stable")
        tail = order[-n_tail:]
        cutoff = np.exp(values[order[-n_tail - 1]])
        with np.errstate(all="ignore"):  # equal weights have no fit
            shape, scale = _fitted(np.exp(values[tail]) - cutoff)
            quantiles = np.log(cutoff + _quantiles(n_tail, shape, scale))
        if np.isfinite(quantiles).all():
            values[tail] = np.minimum(quantiles, 0.0)
            k_hat = shape
    return values - logsumexp(values), k_hat


def _length_of_tail(n: int, r_eff: float) -> int:
    return int(3 * np.sqrt(n / r_eff)) if n * r_eff > _FEW else n // 5


def _fitted(excesses: Array) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto distribution of `excesses`, in ascending order.

    Zhang & Stephens (2009): the posterior mean of b = -shape / scale, on a grid of values whose
    scale is that of the data; then the shape that is most likely given b. A prior of the shape
    makes fits to few weights steadier.
    """
    n = len(excesses)
    n_values = 30 + int(np.sqrt(n))
    quartile = excesses[int(n / 4 + 0.5) - 1]
    spread = 1 - np.sqrt(n_values / (np.arange(n_values) + 0.5))
    b = 1 / excesses[-1] + spread / (3 * quartile)
    shapes = np.log1p(-b[:, None] * excesses).mean(axis=1)
    heights = n * (np.log(-b / shapes) - shapes - 1)
    mean = np.exp(heights - logsumexp(heights)) @ b
    shape = np.log1p(-mean * excesses).mean()
    steadied = (n * shape + _PRIOR_WEIGHT * _PRIOR_SHAPE) / (n + _PRIOR_WEIGHT)
    return float(steadied), float(-shape / mean)


def _quantiles(n: int, shape: float, scale: float) -> Array:
    """Quantiles of the distribution in the middle of n intervals of the same probability."""
    exponential = -np.log1p(-(np.arange(n) + 0.5) / n)
    if shape == 0:
        return scale * exponential
    return np.asarray(scale / shape * np.expm1(shape * exponential))
