"""Input of every rule: checked draws of all shards on a common scale, with their moments.

All shards share one centre and one scale per coordinate, and matrices are inverted as correlations.
So units make no difference. Covariances divide by n - 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from quorate._types import Array
from quorate.errors import BadInputError, SingularCovarianceError, require
from quorate.merging.combined import Combined
from quorate.numerics.linalg import scaled_inverse
from quorate.numerics.moments import Moments

_NEXT_TO_NONE = 1e-100  # spread, relative to other shards, whose square is unreliable
_TINY = 1e-150  # range whose square underflows
_SINGULAR = 1e-12  # per dimension: eigenvalue of a correlation matrix that rounding may explain


@dataclass(frozen=True, eq=False)
class ShardDraws:
    """Draws of every shard in common coordinates.

    Parameters
    ----------
    scaled
        (θ - centre) / scale, shape (n_s, d) for each shard.
    centre, scale
        Shape (d,). Scales are powers of two, so scaling does not round.
    names
        Names of the coordinates, for error messages.
    """

    scaled: tuple[Array, ...]
    centre: Array
    scale: Array
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, draws: "Sequence[ArrayLike] | ShardDraws", names: Sequence[str] | None = None
    ) -> "ShardDraws":
        """Check the draws, (n_s, d) for each shard, and bring them to a common scale."""
        if isinstance(draws, ShardDraws):
            return draws
        require(len(draws) > 0, "There are no shards. Give the draws of at least one.")
        shards = [_as_floats(shard, values) for shard, values in enumerate(draws)]
        dim = shards[0].shape[1]
        for shard, values in enumerate(shards):
            _check_shape(shard, values, dim)
        names = tuple(names or (f"coordinate {j}" for j in range(dim)))
        for shard, values in enumerate(shards):
            _check_finite(shard, values, names)
        lows = np.array([values.min(axis=0) for values in shards]) / 2
        highs = np.array([values.max(axis=0) for values in shards]) / 2
        centre = lows.min(axis=0) + highs.max(axis=0)
        half_ranges = (highs - lows).max(axis=0)
        _check_units(half_ranges, names)
        scale = np.exp2(np.round(np.log2(np.where(half_ranges > 0, half_ranges, 1.0))))
        return cls(tuple((v - centre) / scale for v in shards), centre, scale, names)

    @property
    def counts(self) -> list[int]:
        """Number of draws of each shard."""
        return [len(values) for values in self.scaled]

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return len(self.centre)

    @cached_property
    def means(self) -> Array:
        """μ_s, shape (n_shards, d)."""
        return np.array([values.mean(axis=0) for values in self.scaled])

    @cached_property
    def variances(self) -> Array:
        """Variance of every coordinate in every shard, shape (n_shards, d)."""
        for shard, values in enumerate(self.scaled):
            spreads = np.ptp(values, axis=0)
            for j in np.flatnonzero(spreads <= _NEXT_TO_NONE):
                spread = float(spreads[j] * self.scale[j])
                raise BadInputError(
                    f"{self.names[j]} is constant in shard {shard} (its range is {spread:g}), so "
                    "it has no weight. Leave it out, or use rule='consensus' with "
                    "weights='uniform'."
                )
        return np.array([values.var(axis=0, ddof=1) for values in self.scaled])

    @cached_property
    def covs(self) -> Array:
        """C_s, shape (n_shards, d, d), each of full rank."""
        for shard, count in enumerate(self.counts):
            require(
                count > self.dim,
                f"Shard {shard} has {count} draws, but a covariance in {self.dim} dimensions needs "
                f"{self.dim + 1} or more. Draw more, or use rule='consensus' with "
                "weights='diagonal'.",
            )
        sds = np.sqrt(self.variances)
        covs = np.array([_covariance(values) for values in self.scaled])
        self._check_rank(covs / (sds[:, :, None] * sds[:, None, :]))
        return covs

    @cached_property
    def precisions(self) -> Array:
        """P_s = C_s⁻¹, shape (n_shards, d, d)."""
        return scaled_inverse(self.covs)

    @cached_property
    def product_cov(self) -> Array:
        """V = (Σ P_s)⁻¹, the covariance of the product of Gaussians."""
        try:
            return scaled_inverse(self.precisions.sum(axis=0))
        except SingularCovarianceError:
            raise BadInputError(
                "The sum of the shards' precisions is singular, because shards differ too much in "
                "scale. Use rule='consensus' with weights='diagonal'."
            ) from None

    @cached_property
    def weights(self) -> Array:
        """W_s = V P_s of eq. (6), shape (n_shards, d, d). They sum to I."""
        return np.asarray(self.product_cov @ self.precisions)

    @cached_property
    def product_mean(self) -> Array:
        """m = Σ W_s μ_s, the mean of the product of Gaussians."""
        return np.asarray(np.einsum("sij,sj->i", self.weights, self.means))

    def combined(
        self,
        draws: Array,
        rule: str,
        assumes: str,
        mean: Array | None = None,
        cov: Array | None = None,
    ) -> Combined:
        """The result in the original coordinates; its moments are those of `draws` by default."""
        mean = draws.mean(axis=0) if mean is None else mean
        cov = _covariance(draws) if cov is None else cov
        return Combined(
            draws * self.scale + self.centre,
            mean * self.scale + self.centre,
            cov * self.scale * self.scale[:, None],
            rule,
            assumes,
        )

    def _check_rank(self, correlations: Array) -> None:
        values, vectors = np.linalg.eigh(correlations)
        for shard in np.flatnonzero(values[:, 0] < _SINGULAR * self.dim):
            loads = np.abs(vectors[shard, :, 0])
            dependent = [self.names[j] for j in np.flatnonzero(loads > 0.1 * loads.max())]
            listed = " and ".join(dependent[:5]) + " and others" * (len(dependent) > 5)
            raise BadInputError(
                f"The covariance of shard {shard} is singular: its draws of {listed} depend on "
                "each other linearly. Leave out one of them, or use rule='consensus' with "
                "weights='diagonal'."
            )


def _covariance(draws: Array) -> Array:
    return Moments.of(draws).scatter / (len(draws) - 1)


def _as_floats(shard: int, values: ArrayLike) -> Array:
    try:
        given = np.asarray(values)
    except ValueError as error:
        message = f"The draws of shard {shard} are not an array ({error}). Give shape (n_draws, d)."
        raise BadInputError(message) from None
    require(
        np.can_cast(given.dtype, np.float64, "same_kind"),
        f"The draws of shard {shard} are of type {given.dtype}. Give real numbers.",
    )
    require(
        given.ndim == 2,
        f"The draws of shard {shard} have shape {given.shape}. Give (n_draws, d), which is "
        "draws[:, None] for one coordinate.",
    )
    return given.astype(np.float64)


def _check_shape(shard: int, values: Array, dim: int) -> None:
    require(
        values.shape[1] == dim and dim > 0,
        f"Shard {shard} has {values.shape[1]} coordinates and shard 0 has {dim}. All shards need "
        "the same number, at least 1.",
    )
    require(len(values) > 1, f"Shard {shard} has {len(values)} draws. Give at least 2.")


def _check_finite(shard: int, values: Array, names: Sequence[str]) -> None:
    for draw, j in np.argwhere(~np.isfinite(values)):
        raise BadInputError(
            f"Draw {draw} of {names[j]} in shard {shard} is {float(values[draw, j])}. Find out why "
            "the sampler produced it: leaving it out would bias the result."
        )


def _check_units(half_ranges: Array, names: Sequence[str]) -> None:
    for name, half_range in zip(names, half_ranges, strict=True):
        require(
            half_range == 0 or _TINY < half_range < 1 / _TINY,
            f"The range of {name}, {2 * float(half_range):g}, cannot be squared in floating point. "
            "Use other units.",
        )
