"""Simulated rows with groups, and integrated likelihoods by brute force."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from scipy.stats import nbinom, norm, poisson

from quorate.models import linear, logistic, negative_binomial
from quorate.models import poisson as poisson_model

FAMILIES = {
    "linear": linear,
    "logistic": logistic,
    "poisson": poisson_model,
    "negative_binomial": negative_binomial,
}
NAMES = ("Intercept", "x")


@dataclass(frozen=True)
class Case:
    """A regression with groups, a shard of its rows, and the point that they were simulated at."""

    family: str
    model: object
    shard: dict
    truth: np.ndarray


def case(family: str, q: int, rng: np.random.Generator, n_groups: int = 30, n: int = 240) -> Case:
    """Rows of groups with `q` coefficients each; groups differ in size."""
    weights = rng.dirichlet(np.full(n_groups, 2.0))
    group = np.concatenate([np.arange(n_groups), rng.choice(n_groups, n - n_groups, p=weights)])
    columns = np.column_stack([np.ones(n), rng.normal(size=n)])
    varying = columns[:, :q].copy()
    local = rng.normal(size=(n_groups, q)) * [0.8, 0.5][:q]
    eta = columns @ [0.2, 0.5] + (varying * local[group]).sum(axis=1)
    scales = {"linear": [np.log(0.7)], "negative_binomial": [np.log(2.0)]}.get(family, [])
    covs = [np.log(0.8), np.log(0.5), 0.0][: 1 if q == 1 else 3]
    shard = {"X": columns, "y": simulated_response(family, eta, rng), "Z": varying, "group": group}
    for array in shard.values():
        array.flags.writeable = False
    model = FAMILIES[family](NAMES, groups="g", varying=NAMES[:q])
    return Case(family, model, shard, np.array([0.2, 0.5, *scales, *covs]))


def brute_force(case: Case, x: np.ndarray) -> float:
    """The integrated log-likelihood on a grid of N(0, Σ), group by group."""
    q = case.shard["Z"].shape[1]
    k = 2 + (case.family in ("linear", "negative_binomial"))
    sds, rho = np.exp(x[k : k + q]), np.tanh(x[k + q]) if q == 2 else 0.0
    correlation = np.array([[1.0, rho], [rho, 1.0]])[:q, :q]
    lower = np.linalg.cholesky(sds[:, None] * correlation * sds)
    n_grid = 2001 if q == 1 else 241
    axis = np.linspace(-8, 8, n_grid)
    grid = np.stack(np.meshgrid(*[axis] * q, indexing="ij"), axis=-1).reshape(-1, q)
    log_weights = -0.5 * (grid**2).sum(axis=1)
    log_weights -= np.logaddexp.reduce(log_weights)
    local, total = grid @ lower.T, 0.0
    for code in np.unique(case.shard["group"]):
        rows = case.shard["group"] == code
        eta = (case.shard["X"][rows] @ x[:2])[:, None] + case.shard["Z"][rows] @ local.T
        terms = log_density(case.family, case.shard["y"][rows][:, None], eta, x[2])
        total += np.logaddexp.reduce(terms.sum(axis=0) + log_weights)
    return float(total)


def simulated_response(family: str, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if family == "linear":
        return eta + 0.7 * rng.normal(size=len(eta))
    if family == "logistic":
        return (rng.random(len(eta)) < expit(eta)).astype(float)
    noise = rng.gamma(2.0, 0.5, len(eta)) if family == "negative_binomial" else 1.0
    return rng.poisson(np.exp(eta) * noise).astype(float)


def log_density(family: str, y: np.ndarray, eta: np.ndarray, log_scale: float) -> np.ndarray:
    if family == "linear":
        return norm.logpdf(y, eta, np.exp(log_scale))
    if family == "logistic":
        return y * eta - np.logaddexp(0, eta)
    if family == "poisson":
        return poisson.logpmf(y, np.exp(eta))
    phi = np.exp(log_scale)
    return nbinom.logpmf(y, phi, phi / (phi + np.exp(eta)))
