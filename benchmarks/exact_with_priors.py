"""Errors of exact runs with kinked or heavy priors, and with hundreds of coefficients.

    python benchmarks/exact_with_priors.py "laplace(0, 0.1)" "87 linear"

References do not come from quorate: Gibbs draws for linear regressions with Laplace and Student-t
priors, which are mixtures of normal ones; sums over a grid of the standard deviation of the rows
for normal priors; sums over grids for the logistic regression, whose intercepts are independent
given its slope. Rows are made up.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

import quorate
from exact_speed import spent
from quorate.models import linear, logistic
from quorate.models.priors import parse
from quorate.numerics.ess import joined_chains, mean_ess

N_DRAWS, WORKERS, SEED = 4000, (4, 8), 0
N_GIBBS, N_DROPPED = 10_000, 1_000
PRIORS = (
    "laplace(0, 0.1)",
    "laplace(0, 0.01)",
    "student_t(3, 0, 0.05)",
    "student_t(1, 0, 0.01)",
)
HALF_CAUCHY = 2.5  # scale of the prior of sigma, the default of `linear`
Rows = dict[str, np.ndarray]


class Known(NamedTuple):
    """Moments of the posterior, (d,) each, and the effective draws behind the means."""

    mean: np.ndarray
    sd: np.ndarray
    ess: np.ndarray | float = np.inf


def gibbs(rows: Rows, priors: list[str], seed: int) -> np.ndarray:
    """Draws of (β, log σ), (n, d + 1)."""
    rng, x, y = np.random.default_rng(seed), rows["X"], rows["y"]
    words = [parse(prior, "coefficient") for prior in priors]
    scales = np.array([prior.arguments[-1] for prior in words])
    is_laplace = np.array([prior.name == "laplace" for prior in words])
    is_student = np.array([prior.name == "student_t" for prior in words])
    df = np.array([prior.arguments[0] for prior in words if prior.name == "student_t"])
    gram, pull, precisions = x.T @ x, x.T @ y, scales**-2
    variance, auxiliary, draws = float(np.var(y)), 1.0, []
    for _ in range(N_DROPPED + N_GIBBS):
        half = np.linalg.inv(np.linalg.cholesky(gram / variance + np.diag(precisions)))
        beta = half.T @ (half @ pull / variance + rng.standard_normal(len(pull)))
        rate = 1 / auxiliary + np.sum((y - x @ beta) ** 2) / 2
        variance = rate / rng.gamma((len(y) + 1) / 2)
        auxiliary = (HALF_CAUCHY**-2 + 1 / variance) / rng.gamma(1.0)
        sizes, s = np.abs(beta[is_laplace]), scales[is_laplace]
        precisions[is_laplace] = rng.wald(1 / (s * np.maximum(sizes, 1e-12)), s**-2)
        spread = df * scales[is_student] ** 2 + beta[is_student] ** 2
        precisions[is_student] = rng.gamma((df + 1) / 2) * 2 / spread
        draws.append([*beta, 0.5 * np.log(variance)])
    return np.array(draws[N_DROPPED:])


def by_gibbs(rows: Rows, priors: list[str]) -> Known:
    """Of two chains."""
    draws = np.stack([gibbs(rows, priors, seed) for seed in (1, 2)])
    return Known(draws.mean(axis=(0, 1)), draws.std(axis=(0, 1)), mean_ess(draws))


def mixed(log_weights: np.ndarray, means: np.ndarray, variances: np.ndarray) -> Known:
    """Moments of a mixture: weights (n,), moments (n, d)."""
    weights = np.exp(log_weights - logsumexp(log_weights))
    mean = weights @ means
    return Known(mean, np.sqrt(weights @ (variances + (means - mean) ** 2)))


def by_sigma(rows: Rows, scale: float) -> Known:
    """Normal(0, `scale`) priors: given σ, the posterior of β is normal."""
    x, y = rows["X"], rows["y"]
    values, vectors = np.linalg.eigh(x.T @ x)
    pull, squares, n = vectors.T @ (x.T @ y), vectors**2, len(y)
    logs = np.log(np.std(y)) + np.linspace(-0.8, 0.3, 400)
    found = []
    for log_sigma in logs:
        noise = np.exp(2 * log_sigma)
        bends = values / noise + scale**-2
        fit = pull / noise / bends
        height = 0.5 * (pull @ fit - y @ y) / noise - n * log_sigma - 0.5 * np.log(bends).sum()
        prior = log_sigma - np.log1p(noise / HALF_CAUCHY**2)
        found.append((height + prior, vectors @ fit, squares @ (1 / bends)))
    heights, means, variances = map(np.array, zip(*found, strict=True))
    means = np.column_stack([means, logs])
    return mixed(heights, means, np.column_stack([variances, np.zeros(len(logs))]))


def by_slope(rows: Rows, scale: float) -> Known:
    """Logistic: intercepts of counties and, last, the slope of a column of 0 and 1."""
    county, up = rows["X"][:, :-1].argmax(axis=1), rows["X"][:, -1]
    n = rows["X"].shape[1] - 1
    groups = [(floor, np.bincount(county, up == floor, n)) for floor in (0, 1)]
    ones = [np.bincount(county, (up == floor) * rows["y"], n) for floor in (0, 1)]
    grid, found = np.linspace(-12, 12, 2401), []
    slopes = np.linspace(-2.5, 1.0, 141)
    for slope in slopes:
        heights = np.zeros((n, len(grid))) - 0.5 * (grid / scale) ** 2
        for (floor, totals), successes in zip(groups, ones, strict=True):
            eta = grid + floor * slope
            heights += np.outer(successes, eta) - np.outer(totals, np.logaddexp(0, eta))
        evidence = logsumexp(heights, axis=1)
        weights = np.exp(heights - evidence[:, None])
        mean = weights @ grid
        variance = weights @ grid**2 - mean**2
        prior = -0.5 * (slope / scale) ** 2
        found.append((evidence.sum() + prior, [*mean, slope], [*variance, 0.0]))
    return mixed(*map(np.array, zip(*found, strict=True)))


def sparse(prior: str) -> tuple[Any, Rows, Callable[[], Known]]:
    """300 rows, 60 correlated columns, six of which matter."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 60))
    for j in range(1, 60):
        x[:, j] = 0.5 * x[:, j - 1] + np.sqrt(0.75) * x[:, j]
    y = x[:, :6] @ [1.0, -0.7, 0.5, 0.4, -0.3, 0.25] + rng.standard_normal(300)
    rows = {"X": x, "y": y}
    return linear(60, prior), rows, lambda: by_gibbs(rows, [prior] * 60)


def series() -> tuple[Any, Rows, Callable[[], Known]]:
    """700 days: a trend with 25 changes of slope that have Laplace priors, seasons, holidays."""
    rng, days = np.random.default_rng(0), np.arange(700)
    t = days / 700
    changes = np.maximum(t[:, None] - np.linspace(0, 0.8, 26)[1:], 0)
    turns = np.concatenate([np.arange(1, 11) / 365.25, np.arange(1, 4) / 7])
    waves = 2 * np.pi * np.outer(days, turns)
    holidays = (rng.random((700, 8)) < 0.01).astype(float)
    x = np.column_stack([t, np.ones(700), changes, np.sin(waves), np.cos(waves), holidays])
    jumps = rng.laplace(0, 0.05, 25) * (rng.random(25) < 0.3)
    beta = np.concatenate([[0.5, 0.2], jumps, rng.normal(0, 0.03, 26), rng.normal(0, 0.05, 8)])
    y = x @ beta + 0.05 * rng.standard_normal(700)
    words = ["normal(0, 5)"] * 2 + ["laplace(0, 0.05)"] * 25 + ["normal(0, 10)"] * 34
    names, rows = [f"x{j}" for j in range(61)], {"X": x, "y": y / np.abs(y).max()}
    model = linear(names, priors=dict(zip(names, words, strict=True)))
    return model, rows, lambda: by_gibbs(rows, words)


def counties(n: int, n_rows: int, family: str) -> tuple[Any, Rows, Callable[[], Known]]:
    """An intercept for each county, many of which have few rows, and one slope."""
    rng = np.random.default_rng(0)
    sizes = rng.lognormal(0, 1.2, n)
    county = np.append(np.arange(n), rng.choice(n, n_rows - n, p=sizes / sizes.sum()))
    up = rng.random(n_rows) < 0.2
    eta = rng.normal(1.3, 0.35, n)[county] - 0.65 * up
    x = np.column_stack([county[:, None] == np.arange(n), up]).astype(float)
    if family == "linear":
        rows = {"X": x, "y": eta + 0.75 * rng.standard_normal(n_rows)}
        return linear(n + 1, "normal(0, 10)"), rows, lambda: by_sigma(rows, 10.0)
    rows = {"X": x, "y": (rng.random(n_rows) < 1 / (1 + np.exp(-eta))).astype(float)}
    return logistic(n + 1), rows, lambda: by_slope(rows, 2.5)


CASES: dict[str, Callable[[], tuple[Any, Rows, Callable[[], Known]]]] = {
    "time series": series,
    **{prior: partial(sparse, prior) for prior in PRIORS},
    "87 linear": partial(counties, 85, 919, "linear"),
    "86 logistic": partial(counties, 85, 919, "logistic"),
    "388 linear": partial(counties, 386, 12_573, "linear"),
    "387 logistic": partial(counties, 386, 4_000, "logistic"),
}


def line(model: Any, rows: Rows, known: Known, workers: int) -> str:
    """Errors, ESS, verdict and CPU seconds of a run."""
    options = {"workers": workers, "draws": N_DRAWS, "seed": SEED, "progress": False}
    _, seconds, result = spent(lambda: quorate.sample(model, rows, **options))
    draws = result.unconstrained
    ess = mean_ess(draws[joined_chains(len(draws), result.n_chains)])
    errors = np.abs(draws.mean(axis=0) - known.mean) / known.sd
    sds = np.abs(draws.std(axis=0) / known.sd - 1)
    noise = np.sqrt(1 / ess + 1 / known.ess)
    return (
        f"K = {workers}   means {errors.max():.3f} ({(errors / noise).max():.1f} standard "
        f"errors)   sds {sds.max():.3f}   ESS {ess.min():.0f}   {result.n_passes} passes   "
        f"{result.verdict.verdict}   {seconds:.1f} CPU s"
    )


def main(names: list[str]) -> None:
    """A line for each case and K."""
    for name in names:
        model, rows, reference = CASES[name]()
        known = reference()
        for workers in WORKERS:
            print(f"{name:22} {line(model, rows, known, workers)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(CASES))
