"""Small models with known truths, to draw from."""

from dataclasses import dataclass

import numpy as np

from quorate.models.subposterior import Target
from quorate.numerics.streams import ChainStream, Streams


@dataclass
class Density:
    """A log density without data; `at` is where the search begins."""

    dim: int
    log_density: object
    at: float = 0.0

    @property
    def names(self):
        return tuple(f"x[{i}]" for i in range(self.dim))

    def initial(self):
        return np.full(self.dim, self.at)

    def log_prior(self, x):
        return 0.0

    def log_likelihood(self, x, shard):
        return self.log_density(x)

    def constrain(self, draws):
        return {"x": draws}


@dataclass
class Logistic:
    """Coefficients with independent N(0, prior_sd²) priors; infinity is a flat prior."""

    dim: int
    prior_sd: float = 1.0

    @property
    def names(self):
        return tuple(f"beta[{i}]" for i in range(self.dim))

    def initial(self):
        return np.zeros(self.dim)

    def log_prior(self, x):
        return -0.5 * float(x @ x) / self.prior_sd**2

    def log_likelihood(self, x, shard):
        eta = shard["X"] @ x
        return float(shard["y"] @ eta - np.logaddexp(0, eta).sum())

    def constrain(self, draws):
        return {"beta": draws}


class LogisticWithGradient(Logistic):
    def log_prior_and_gradient(self, x):
        return self.log_prior(x), -x / self.prior_sd**2

    def log_likelihood_and_gradient(self, x, shard):
        residual = shard["y"] - 1 / (1 + np.exp(-(shard["X"] @ x)))
        return self.log_likelihood(x, shard), shard["X"].T @ residual


class LogisticInJax(Logistic):
    def jax_log_prior(self, x):
        return -0.5 * x @ x / self.prior_sd**2

    def jax_log_likelihood(self, x, shard):
        import jax.numpy as jnp

        eta = shard["X"] @ x
        return shard["y"] @ eta - jnp.logaddexp(0, eta).sum()


class Linear(Density):
    """Flat priors on coefficients and on the log of the noise's sd."""

    def __init__(self, n_coefficients):
        super().__init__(n_coefficients + 1, None)

    def log_likelihood(self, x, shard):
        z = (shard["y"] - shard["X"] @ x[:-1]) * np.exp(-x[-1])
        return float(-0.5 * z @ z - len(z) * x[-1])


def gaussian(mean, cov):
    """N(mean, cov)."""
    precision = np.linalg.inv(cov)
    return Target(
        Density(len(mean), lambda x: float(-0.5 * (x - mean) @ precision @ (x - mean))), {}, 1
    )


def log_gamma(shapes):
    """Logarithms of Gamma(shape) variables: skewed, the more so the smaller the shape."""
    return Target(Density(len(shapes), lambda x: float(np.sum(shapes * x - np.exp(x)))), {}, 1)


def logistic_rows(n_rows, dim, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n_rows, dim))
    chance = 1 / (1 + np.exp(-features @ rng.standard_normal(dim)))
    return {"X": features, "y": (rng.random(n_rows) < chance).astype(float)}


def stream(seed, shard=0, chain=0):
    return ChainStream(Streams(seed), shard, chain)
