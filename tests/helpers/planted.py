"""Posteriors on which consensus is right, and on which it fails in a known way.

Each is a function of a seed and gives a `Case`. Draws of shards are independent, from a grid or
from points around the mode, so that only the merge can be at fault.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from quorate.merging.consensus import consensus_weights, merge
from quorate.models import logistic
from quorate.models.gaussian import ROWS, gaussian_mean_model
from quorate.models.subposterior import Target, log_densities
from quorate.numerics.moments import Moments
from quorate.numerics.streams import Streams
from quorate.samplers.laplace import laplace_fit
from quorate.samplers.modes import other_modes
from quorate.trust.shards import ShardChains
from quorate.trust.verdict import Question, Verdict

N_POINTS, N_DRAWS = 1000, 1000


@dataclass
class Case:
    """The subposteriors, and draws of each: `chains[s]` are (n, d), by chain."""

    targets: list[Target]
    chains: list[list[np.ndarray]]
    truth: np.ndarray | None = None  # posterior mean, where a grid gives it
    is_searched: bool = False  # for other modes, as warm-up does

    def merged(self) -> np.ndarray:
        draws = np.stack([np.concatenate(chains) for chains in self.chains], axis=1)
        covs = Moments.of(np.swapaxes(draws, 0, 1)).covariance()
        return merge(consensus_weights(covs), draws)

    def verdict(self, seed: int = 1, n_points: int = N_POINTS) -> Verdict:
        """As a run would give it, without processes."""
        shards = [
            ShardChains(chains, other_modes=_other_modes(target) if self.is_searched else ())
            for target, chains in zip(self.targets, self.chains, strict=True)
        ]
        question = Question(self.targets[0].model, self.merged(), shards, len(shards))
        points = question.proposal().points(Streams(seed), n_points)
        values = np.sum([log_densities(target, points) for target in self.targets], axis=0)
        return question.answer(points, values)


@dataclass
class Formula:
    """A model of one likelihood, under independent normal priors."""

    dim: int
    likelihood: Callable[[Any, Any], Any]  # of coordinates x[0], …, which may be arrays
    prior_sd: float

    @property
    def names(self):
        return tuple(f"x[{i}]" for i in range(self.dim))

    def initial(self):
        return np.zeros(self.dim)

    def log_prior(self, x):
        return -0.5 * float(x @ x) / self.prior_sd**2

    def log_likelihood(self, x, shard):
        return float(self.likelihood(x, shard["z"]))

    def constrain(self, draws):
        return {"x": draws}

    def on_grid(self, grid, shards):
        """Log densities of the subposteriors at `grid` (n, d), shape (n_shards, n)."""
        prior = -0.5 * np.sum(grid**2, axis=1) / self.prior_sd**2 / len(shards)
        return np.stack([prior + self.likelihood(grid.T, shard["z"]) for shard in shards])


def gaussian(seed, dim=2, n_shards=8, n_draws=N_DRAWS):
    """The mean of Gaussian rows: consensus is exact."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((60 * n_shards, dim)) + rng.standard_normal(dim)
    model = gaussian_mean_model(rows, n_shards, np.eye(dim), 100 * np.eye(dim))
    draws = model.draws(Streams(seed), [(s, 0) for s in range(n_shards)], 0, n_draws)
    targets = [Target(model, {ROWS: np.array([s])}, n_shards) for s in range(n_shards)]
    return Case(targets, [[x] for x in draws], model.posterior()[0])


def regression(seed, n_rows=1600, dim=3, n_shards=4, mislabelled=False):
    """Logistic, with enough rows in each shard; one of them with wrong labels, if asked for."""
    rng = np.random.default_rng(seed)
    features = np.column_stack([np.ones(n_rows), rng.standard_normal((n_rows, dim - 1))])
    chance = 1 / (1 + np.exp(-features @ rng.normal(0, 0.7, dim)))
    y = (rng.random(n_rows) < chance).astype(float)
    if mislabelled:
        y[: n_rows // n_shards] = 1 - y[: n_rows // n_shards]
    model = logistic(dim)
    shards = [
        {"X": X, "y": part}
        for X, part in zip(
            np.array_split(features, n_shards), np.array_split(y, n_shards), strict=True
        )
    ]
    targets = [Target(model, shard, n_shards) for shard in shards]
    return Case(targets, [[_resampled(target, rng)] for target in targets])


def mislabelled(seed):
    """One shard of four has every label wrong."""
    return regression(seed, mislabelled=True)


def two_modes(seed, stuck=False):
    """z ~ N(θ², 1): θ and -θ are alike. `stuck` chains stay in one mode, each shard in its own."""
    rng = np.random.default_rng(seed)
    n_shards = 8
    rows = rng.normal(1.2**2, 1.0, 25 * n_shards)
    model = Formula(1, lambda x, z: -0.5 * len(z) * (z.mean() - x[0] ** 2) ** 2, 2.0)
    shards = [{"z": part} for part in np.array_split(rows, n_shards)]
    grid = np.linspace(-4, 4, 4001)
    case = _on_a_grid(model, shards, rng, grid[:, None], grid[1] - grid[0])
    if stuck:
        signs = rng.permutation(np.resize([1.0, -1.0], n_shards))
        case.chains = [
            [sign * np.abs(x) for x in chains]
            for sign, chains in zip(signs, case.chains, strict=True)
        ]
    return case


def two_modes_stuck(seed):
    """The same, and every chain stays where it began."""
    return two_modes(seed, stuck=True)


def two_modes_unseen(seed, is_searched=True):
    """The same, and all chains began in one of them: nothing in any draw tells of the other."""
    case = two_modes(seed)
    case.chains = [[np.abs(x) for x in chains] for chains in case.chains]
    case.is_searched = is_searched
    return case


def banana(seed):
    """z ~ N(θ₁ + θ₂², 1): only the prior tells one from the other."""
    rng = np.random.default_rng(seed)
    n_shards = 5
    rows = rng.normal(1.0, 1.0, 20 * n_shards)
    model = Formula(2, lambda x, z: -0.5 * len(z) * (z.mean() - x[0] - x[1] ** 2) ** 2, 1.0)
    shards = [{"z": part} for part in np.array_split(rows, n_shards)]
    axis = np.linspace(-9, 9, 361)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    return _on_a_grid(model, shards, rng, grid, axis[1] - axis[0])


def skewed(seed):
    """Rare events at rate exp(θ): two rows in each of sixty shards, with one event, or none."""
    rng = np.random.default_rng(seed)
    n_shards = 60
    rows = rng.poisson(0.3, 2 * n_shards)
    model = Formula(1, lambda x, z: z.sum() * x[0] - len(z) * np.exp(x[0]), 3.0)
    shards = [{"z": part} for part in np.array_split(rows, n_shards)]
    grid = np.linspace(-110, 8, 4001)
    return _on_a_grid(model, shards, rng, grid[:, None], grid[1] - grid[0])


def _on_a_grid(model, shards, rng, grid, step):
    """Exact draws of subposteriors of few parameters, and the mean of their product."""
    targets = [Target(model, shard, len(shards)) for shard in shards]
    values = model.on_grid(grid, shards)
    chains = [
        [grid[_chosen(v, rng, N_DRAWS)] + rng.uniform(-0.5, 0.5, (N_DRAWS, model.dim)) * step]
        for v in values
    ]
    total = values.sum(axis=0)
    weights = np.exp(total - total.max())
    return Case(targets, chains, weights @ grid / weights.sum())


def _other_modes(target):
    return other_modes(target, laplace_fit(target)).get("other_modes", ())


def _chosen(log_density, rng, n):
    weights = np.exp(log_density - log_density.max())
    return rng.choice(len(weights), n, p=weights / weights.sum())


def _resampled(target, rng):
    """Nearly independent draws of a regression's subposterior, from points around its mode."""
    fit = laplace_fit(target)
    n, dim, freedom = 4 * N_DRAWS, target.dim, 5
    z = rng.standard_normal((n, dim)) / np.sqrt(rng.chisquare(freedom, n) / freedom)[:, None]
    points = fit.mode + z @ np.linalg.cholesky(fit.cov).T
    eta = target.shard["X"] @ points.T
    likelihood = target.shard["y"] @ eta - np.logaddexp(0, eta).sum(axis=0)
    prior = -0.5 * np.sum((points / 2.5) ** 2, axis=1) / target.n_shards
    log_t = -0.5 * (freedom + dim) * np.log1p((z**2).sum(axis=1) / freedom)
    return points[_chosen(prior + likelihood - log_t, rng, N_DRAWS)]


GOOD = {
    "gaussian, d = 2": gaussian,
    "gaussian, d = 10": partial(gaussian, dim=10),
    "regression": regression,
}
FAILURES = {
    "two modes": two_modes,
    "two modes, stuck": two_modes_stuck,
    "two modes, unseen": two_modes_unseen,
    "banana": banana,
    "skewed": skewed,
}
