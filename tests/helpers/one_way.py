"""Gaussian models with groups, in closed form: one level, and two that nest."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from quorate.models.groups.levels import Level, Moments

LOG_2PI = np.log(2 * np.pi)


@dataclass
class OneWay:
    """y ~ N(mu + u_g, sigma), u_g ~ N(0, tau); mu ~ N(0, 10), log sigma and log tau ~ N(0, 1)."""

    name: str = "plane"

    dim = 3
    names = ("mu", "log_sigma", "log_tau")

    @property
    def levels(self):
        return (Level(self.name, ("Intercept",), (1,)),)

    @property
    def group_columns(self):
        return self.name

    def initial(self):
        return np.zeros(3)

    def log_prior(self, x):
        return float(self.log_prior_many(x[None])[0])

    def log_likelihood(self, x, shard):
        return float(self.log_likelihood_many(x[None], shard)[0])

    def log_prior_many(self, points):
        return -0.5 * np.sum((points / [10.0, 1.0, 1.0]) ** 2, axis=1)

    def log_likelihood_many(self, points, shard):
        _, n, means, within = summed(shard)
        mu, var, tau2 = (part[:, None] for part in natural(points))
        total = var + n * tau2
        quadratic = within / var + n * (means - mu) ** 2 / total
        log_dets = (n - 1) * np.log(var) + np.log(total)
        return -0.5 * np.sum(quadratic + log_dets + n * LOG_2PI, axis=1)

    def constrain(self, draws):
        mu, log_sigma, log_tau = draws.T
        return {"mu": mu, "sigma": np.exp(log_sigma), "tau": np.exp(log_tau)}

    def local(self, points, shard):
        """Codes of groups (m,), and means and variances of u given points, (n_points, m)."""
        codes, n, means, _ = summed(shard)
        mu, var, tau2 = (part[:, None] for part in natural(points))
        variances = 1 / (n / var + 1 / tau2)
        return codes, variances * n / var * (means - mu), variances

    def local_moments(self, points, shard):
        codes, means, variances = self.local(points, shard)
        centres = summed(shard)[2]
        gaps = means - centres
        powers = (gaps, gaps**2 + variances, gaps**3 + 3 * gaps * variances)
        sums = np.stack([power.sum(axis=0)[:, None] for power in powers])
        return {self.name: Moments(codes, centres[:, None], sums)}

    def local_draws(self, points, shard, groups, uniforms):
        codes, means, variances = self.local(points, shard)
        at = np.searchsorted(codes, groups)
        normals = ndtri(uniforms(self.name, groups, 1)[..., 0])
        draws = means[:, at] + np.sqrt(variances[:, at]) * normals
        return {self.name: (groups, draws[..., None])}


def natural(points):
    """Mu, sigma² and tau², (n_points,) each."""
    return points[:, 0], np.exp(2 * points[:, 1]), np.exp(2 * points[:, 2])


def summed(shard):
    """Of each group its code, number of rows, mean, and squares around the mean, (m,) each."""
    codes, at, n = np.unique(shard["group"], return_inverse=True, return_counts=True)
    means = np.bincount(at, shard["y"]) / n
    return codes, n, means, np.bincount(at, (shard["y"] - means[at]) ** 2)


@dataclass
class Nested(OneWay):
    """Beside u_g, every inner group h has v_h ~ N(0, 1) of its own, known to be of that size."""

    @property
    def levels(self):
        return (*super().levels, Level(f"{self.name}:part", ("Intercept",), (1,)))

    @property
    def group_columns(self):
        return f"{self.name}/part"

    def log_likelihood_many(self, points, shard):
        near = np.abs(points[:, 1:]).max(axis=1) < 8  # further out, precisions have no inverse
        values = np.full(len(points), -np.inf)
        of_groups = [self.of_group(points[near], *rows)[0] for _, *rows in cut(shard)]
        values[near] = np.sum(of_groups, axis=0)
        return values

    def of_group(self, points, inner, y):
        """Log-likelihoods (n,), and means (n, 1 + m) and covariances of u and all v of a group."""
        codes, at = np.unique(inner, return_inverse=True)
        design = np.concatenate([np.ones((len(y), 1)), at[:, None] == np.arange(len(codes))], 1)
        mu, var, tau2 = natural(points)
        prior = np.ones((len(points), design.shape[1]))
        prior[:, 0] = tau2
        gaps = y - mu[:, None]
        pulls = gaps @ design / var[:, None]
        precisions = design.T @ design / var[:, None, None]
        precisions[:, range(len(codes) + 1), range(len(codes) + 1)] += 1 / prior
        covs = np.linalg.inv(precisions)
        means = np.einsum("nij,nj->ni", covs, pulls)
        quadratic = np.sum(gaps**2, axis=1) / var - np.sum(means * pulls, axis=1)
        log_dets = np.linalg.slogdet(precisions)[1] + np.log(prior).sum(axis=1)
        values = -0.5 * (quadratic + log_dets + len(y) * (np.log(var) + LOG_2PI))
        return values, means, covs

    def local_moments(self, points, shard):
        found = []
        for code, inner, y in cut(shard):
            _, means, covs = self.of_group(points, inner, y)
            variances = np.diagonal(covs, axis1=1, axis2=2)
            powers = (means, means**2 + variances, means**3 + 3 * means * variances)
            found.append((code, np.unique(inner), np.stack(powers).sum(axis=1)))
        outer = np.array([code for code, _, _ in found])
        inner = np.concatenate([codes for _, codes, _ in found])
        of_outer = np.stack([sums[:, :1] for _, _, sums in found], axis=1)
        of_inner = np.concatenate([sums[:, 1:, None] for _, _, sums in found], axis=1)
        order = np.argsort(inner)
        none = [np.zeros((len(codes), 1)) for codes in (outer, inner)]
        return {
            self.levels[0].name: Moments(outer, none[0], of_outer),
            self.levels[1].name: Moments(inner[order], none[1], of_inner[:, order]),
        }

    def local_draws(self, points, shard, groups, uniforms):
        outer, inner, of_outer, of_inner = [], [], [], []
        for code, codes, y in cut(shard):
            if code in groups:
                draws = self.draws_of_group(points, code, codes, y, uniforms)
                outer.append(code)
                inner.append(np.unique(codes))
                of_outer.append(draws[:, :1, None])
                of_inner.append(draws[:, 1:, None])
        return {
            self.levels[0].name: (np.array(outer), np.concatenate(of_outer, axis=1)),
            self.levels[1].name: (np.concatenate(inner), np.concatenate(of_inner, axis=1)),
        }

    def draws_of_group(self, points, code, inner, y, uniforms):
        _, means, covs = self.of_group(points, inner, y)
        first, second = (level.name for level in self.levels)
        u = uniforms(first, np.array([code]), 1)[..., 0]
        v = uniforms(second, np.unique(inner), 1)[..., 0]
        normals = ndtri(np.concatenate([u, v], axis=1))
        return means + np.einsum("nij,nj->ni", np.linalg.cholesky(covs), normals)


def cut(shard):
    """Each outer group: its code, and the inner codes and outcomes of its rows."""
    for code in np.unique(shard["group"]):
        of = shard["group"] == code
        yield code, shard["inner"][of], shard["y"][of]


def rows(rng, n_groups=30, n_inner=2, sizes=(1, 8)):
    """Simulated rows of the models above, in random order, with the codes that a shard has."""
    group = rng.permutation(np.repeat(np.arange(n_groups), rng.integers(*sizes, n_groups)))
    inner = group * n_inner + rng.integers(0, n_inner, len(group))
    u, v = rng.normal(0.0, 1.5, n_groups), rng.normal(0.0, 1.0, n_groups * n_inner)
    y = 1.0 + u[group] + v[inner] + rng.normal(0.0, 0.7, len(group))
    codes = np.unique(inner, return_inverse=True)[1]
    return {"y": y, "group": group, "inner": codes, "part": inner % n_inner}


def table(data):
    """The same rows as a user has them: group 3 is plane N003, with parts 0, 1, ...."""
    return {"y": data["y"], "plane": planes(data["group"]), "part": data["part"]}


def planes(codes):
    """Labels of groups."""
    return np.array([f"N{code:03d}" for code in codes])
