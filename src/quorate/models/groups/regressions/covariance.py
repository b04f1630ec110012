"""The covariance of the parameters of a group: standard deviations and correlations.

Σ = D R D with D = diag(τ). The unconstrained coordinates are log τ, and for each block of
correlated parameters the partial correlations z = tanh x that build R, as in
`quorate.models.supports.Correlation`. Under the LKJ(η) prior these are independent, and
(1 + z)/2 ~ Beta(a, a) with a = η + (m - k - 1)/2 in column k of a block of m.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import betaln

from quorate._types import Array
from quorate.models.arrays import log_sech2
from quorate.models.groups.levels import Level
from quorate.models.prior_draws import drawn
from quorate.models.priors import Prior
from quorate.models.supports import Correlation

_STEP = 1e-5  # of central differences of R
_FURTHEST = 50.0  # logarithm of a standard deviation beyond which it has no further effect


@dataclass(frozen=True)
class Covariance:
    """Σ of one level, with its prior. Points are (n, dim), and matrices (n, q, q)."""

    level: Level
    sd_priors: tuple[Prior, ...]  # one for each parameter
    shape: float  # η of the LKJ prior

    @property
    def dim(self) -> int:
        """Number of unconstrained coordinates."""
        return len(self.variables)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """Names of the standard deviations and correlations, as in brms."""
        group, names = self.level.name, self.level.names
        sds = [f"sd_{group}__{name}" for name in names]
        pairs = [(names[j], names[i]) for i, j in self._pairs]
        return (*sds, *(f"cor_{group}__{first}__{second}" for first, second in pairs))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the unconstrained coordinates."""
        q = len(self.level.names)
        logs = [f"log({name})" for name in self.variables[:q]]
        return (*logs, *(f"atanh-partial({name})" for name in self.variables[q:]))

    def matrices(self, points: Array) -> Array:
        """Σ at each point."""
        sds = np.exp(np.clip(points[:, : self._q], -_FURTHEST, _FURTHEST))
        return np.asarray(sds[:, :, None] * self.correlations(points) * sds[:, None, :])

    def correlations(self, points: Array) -> Array:
        """R at each point."""
        result = np.tile(np.eye(self._q), (len(points), 1, 1))
        free = points[:, self._q :]
        for first, size in self._blocks:
            n_free = size * (size - 1) // 2
            if n_free:
                block = slice(first, first + size)
                result[:, block, block] = Correlation((size, size)).constrain(free[:, :n_free])
                free = free[:, n_free:]
        return result

    def constrain(self, points: Array) -> dict[str, Array]:
        """Standard deviations and correlations by name, one for each point."""
        sds, correlations = np.exp(points[:, : self._q]), self.correlations(points)
        values = [*sds.T, *(correlations[:, i, j] for i, j in self._pairs)]
        return dict(zip(self.variables, values, strict=True))

    def log_prior_and_gradient(self, points: Array) -> tuple[Array, Array]:
        """Log prior of each point, Jacobian included, and its gradient."""
        values, gradients = np.zeros(len(points)), np.zeros((len(points), self.dim))
        sds = np.exp(points[:, : self._q])
        for i, prior in enumerate(self.sd_priors):
            density, slope = prior.log_density(sds[:, i])
            values += density + points[:, i]  # + x: the Jacobian of sd = exp x
            gradients[:, i] = slope * sds[:, i] + 1
        a, free = self._beta, points[:, self._q :]
        constant = (2 * a - 1) * np.log(2.0) + betaln(a, a)
        values += (a * log_sech2(free, np) - constant).sum(axis=1)
        gradients[:, self._q :] = -2 * a * np.tanh(free)
        return values, gradients

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        """Draws of the unconstrained coordinates from the prior, (n, dim)."""
        named = zip(self.sd_priors, self.variables, strict=False)
        logs = [np.log(drawn(prior, n, rng, name)) for prior, name in named]
        partial = 2 * rng.beta(self._beta, self._beta, size=(n, len(self._beta))) - 1
        return np.column_stack([*logs, np.arctanh(partial)])

    def gradient(self, points: Array, slopes: Array) -> Array:
        """Gradients (n, dim) of a function whose derivative in Σ is `slopes` (n, q, q)."""
        weighted = slopes * self.matrices(points)
        by_log_sd = weighted.sum(axis=1) + weighted.sum(axis=2)
        return np.column_stack([by_log_sd, *self._by_correlation(points, slopes)])

    def _by_correlation(self, points: Array, slopes: Array) -> list[Array]:
        sds = np.exp(points[:, : self._q])
        scaled = sds[:, :, None] * slopes * sds[:, None, :]
        found = []
        for i in range(self._q, self.dim):
            step = np.zeros(self.dim)
            step[i] = _STEP
            change = self.correlations(points + step) - self.correlations(points - step)
            found.append((scaled * change).sum(axis=(1, 2)) / (2 * _STEP))
        return found

    @property
    def _q(self) -> int:
        return len(self.level.names)

    @cached_property
    def _blocks(self) -> tuple[tuple[int, int], ...]:
        """First parameter and size of each block."""
        sizes = self.level.blocks
        return tuple((sum(sizes[:i]), size) for i, size in enumerate(sizes))

    @cached_property
    def _pairs(self) -> tuple[tuple[int, int], ...]:
        """Correlated parameters: row and column in R, in the order of the coordinates."""
        return tuple(
            (first + int(i), first + int(j))
            for first, size in self._blocks
            for i, j in zip(*np.tril_indices(size, -1), strict=True)
        )

    @cached_property
    def _beta(self) -> Array:
        columns = [
            (size - int(j) - 2) / 2
            for _, size in self._blocks
            for j in np.tril_indices(size, -1)[1]
        ]
        return self.shape + np.array(columns)
