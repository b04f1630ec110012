"""A regression with Laplace priors whose posterior is known: its columns are orthogonal.

Over all rows the coefficients are independent, each with density ∝ exp(-n (b - b̂)² / 2 - |b| / s).
Shards have other columns, so that kinks and correlations meet in each of them.
"""

import numpy as np

from quorate.models import Real, from_functions

DIM, N_ROWS, SCALE = 40, 240, 0.05  # the posterior sds without a prior are .065
_HALF_WIDTH, _N_CELLS = 8.0, 20_000  # of the grids, in these sds


def rows(rng):
    """X'X = n I; a few coefficients are large, and most are shrunk against the kink."""
    x = np.linalg.qr(rng.standard_normal((N_ROWS, DIM)))[0] * np.sqrt(N_ROWS)
    large = np.where(np.arange(DIM) < 6, rng.choice([-0.5, 0.5], DIM), 0.0)
    return {"X": x, "y": x @ large + rng.standard_normal(N_ROWS)}


def model():
    """Rows have sd 1. Functions of many points, with gradients."""

    def gap(beta, shard):
        return shard["y"] - beta @ shard["X"].T

    return from_functions(
        lambda beta: -np.abs(beta).sum(axis=1) / SCALE,
        lambda beta, shard: -0.5 * np.sum(gap(beta, shard) ** 2, axis=1),
        Real(DIM),
        vectorised=True,
        gradient=(
            lambda beta: -np.sign(beta) / SCALE,
            lambda beta, shard: gap(beta, shard) @ shard["X"],
        ),
    )


def moments(data):
    """Means and sds of the posterior, (d,) each, from sums over a grid."""
    sd = N_ROWS**-0.5
    best = data["X"].T @ data["y"] / N_ROWS
    at = best[:, None] + np.linspace(-_HALF_WIDTH, _HALF_WIDTH, _N_CELLS + 1) * sd
    weights = np.exp(-0.5 * ((at - best[:, None]) / sd) ** 2 - np.abs(at) / SCALE)
    weights /= weights.sum(axis=1, keepdims=True)
    mean = np.sum(weights * at, axis=1)
    return mean, np.sqrt(np.sum(weights * (at - mean[:, None]) ** 2, axis=1))
