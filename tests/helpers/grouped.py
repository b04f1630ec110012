"""Models with local parameters whose integrals are known, written as functions."""

from functools import cache

import numpy as np
from scipy import integrate, special, stats

from quorate.models import Positive, Real, from_functions

SIGMA = 0.7  # of rows, in the Gaussian model


def frozen(shard):
    """The shard with arrays that cannot change, as shards on disk are."""
    for array in shard.values():
        array.flags.writeable = False
    return shard


def one_way(rng, n_groups=12, n_rows=60):
    """Rows of a Gaussian one-way layout, and of 0 and 1 with the same groups."""
    g = np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, n_rows - n_groups)])
    z = 1.0 + 0.8 * rng.standard_normal(n_groups)
    x = rng.standard_normal(n_rows)
    late = rng.uniform(size=n_rows) < special.expit(z[g] - 0.5 * x)
    y = z[g] - 0.5 * x + SIGMA * rng.standard_normal(n_rows)
    # Codes of a shard need not be 0, 1, ...: other shards hold the others.
    return frozen({"g": g, "x": x, "y": y, "late": late.astype(float), "group": 3 * g + 2})


def _functions(xp, family):
    def normal(value, mean, sd):
        return -0.5 * ((value - mean) / sd) ** 2 - xp.log(sd) - 0.5 * np.log(2 * np.pi)

    def log_prior(p):
        return normal(p["mu"], 0.0, 5.0) + normal(p["b"], 0.0, 5.0) - 0.5 * p["tau"] ** 2

    def log_local(p, local):
        return normal(local["z"], p["mu"], p["tau"])

    def gaussian(p, local, shard):
        return normal(shard["y"], local["z"] + p["b"] * shard["x"], xp.asarray(SIGMA))

    def logistic(p, local, shard):
        eta = local["z"] + p["b"] * shard["x"]
        return shard["late"] * eta - xp.logaddexp(0.0, eta)

    return log_prior, log_local, {"gaussian": gaussian, "logistic": logistic}[family]


@cache
def by_functions(backend, family):
    """The one-way model (mu, b, log tau) of either family as functions, compiled once."""
    if backend == "jax":
        import jax.numpy as xp
    else:
        xp = np
    log_prior, log_local, log_likelihood = _functions(xp, family)
    return from_functions(
        log_prior,
        log_likelihood,
        {"mu": Real(), "b": Real(), "tau": Positive()},
        backend=backend,
        local={"z": Real()},
        groups="g",
        log_local=log_local,
    )


def gaussian_closed_form(point, shard):
    """Integrated log-likelihood, and means and sds of z, of the Gaussian one-way model."""
    mu, b, tau = point[0], point[1], np.exp(point[2])
    total, means, sds = 0.0, [], []
    for g in np.unique(shard["group"]):
        rest = (shard["y"] - b * shard["x"])[shard["group"] == g]
        cov = SIGMA**2 * np.eye(len(rest)) + tau**2
        total += stats.multivariate_normal(np.full(len(rest), mu), cov).logpdf(rest)
        precision = 1 / tau**2 + len(rest) / SIGMA**2
        means.append((mu / tau**2 + rest.sum() / SIGMA**2) / precision)
        sds.append(precision**-0.5)
    return total, np.array(means), np.array(sds)


def logistic_by_quad(point, shard):
    """Integrated log-likelihood of the logistic one-way model, one group after the other."""
    mu, b, tau = point[0], point[1], np.exp(point[2])
    total = 0.0
    for g in np.unique(shard["group"]):
        of_group = shard["group"] == g
        sign, shift = 2 * shard["late"][of_group] - 1, b * shard["x"][of_group]

        def density(t, sign=sign, shift=shift):
            log_rows = special.log_expit(sign * (mu + tau * t + shift)).sum()
            return np.exp(log_rows) * stats.norm.pdf(t)

        total += np.log(integrate.quad(density, -12, 12, epsabs=0, epsrel=1e-10)[0])
    return total
