"""What every rule starts from: draws of all shards, checked, on one scale, with their moments.

Coordinates are centred and scaled alike for all shards, and matrices are inverted as correlations,
so that units make no difference. Covariances divide by one less than the number of draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from quorate._types import Array
from quorate.errors import BadInputError, SingularCovarianceError, require
from quorate.merging.combined import Combined
from quorate.numerics.linalg import spd_inverse
from quorate.numerics.moments import Moments

_NEXT_TO_NONE = 1e-100  # spread beside that of other shards of which no square can be trusted
_TINY = 1e-150  # range of which no square can be computed
_SINGULAR = 1e-12  # per dimension: eigenvalue of a correlation matrix that may be rounding alone


@dataclass(frozen=True, eq=False)
class ShardDraws:
    """Draws of every shard in coordinates centred and scaled alike.

    Parameters
    ----------
    scaled
        (θ - centre) / scale, shape (n_s, d) for each shard.
    centre, scale
        Shape (d,). Scales are powers of two, so that scaling rounds nothing.
    names
        Of the coordinates, for errors.
    """

    scaled: tuple[Array, ...]
    centre: Array
    scale: Array
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, draws: "Sequence[ArrayLike] | ShardDraws", names: Sequence[str] | None = None
    ) -> "ShardDraws":
        """Check the draws, (n_s, d) for each shard, and bring them to one scale."""
        if isinstance(draws, ShardDraws):
            return draws
        require(len(draws) > 0, "number of shards", 0, "give the draws of at least one")
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
        """Of every coordinate in every shard, shape (n_shards, d)."""
        for shard, values in enumerate(self.scaled):
            spreads = np.ptp(values, axis=0)
            for j in np.flatnonzero(spreads <= _NEXT_TO_NONE):
                raise BadInputError(
                    f"the range of {self.names[j]} in shard {shard}",
                    float(spreads[j] * self.scale[j]),
                    "a coordinate that never changes has no weight: leave it out, or use "
                    "rule='consensus' with weights='uniform'",
                )
        return np.array([values.var(axis=0, ddof=1) for values in self.scaled])

    @cached_property
    def covs(self) -> Array:
        """C_s, shape (n_shards, d, d), each of full rank."""
        for shard, count in enumerate(self.counts):
            require(
                count > self.dim,
                f"number of draws of shard {shard}",
                count,
                f"a covariance in {self.dim} dimensions needs {self.dim + 1} or more: draw more, "
                "or use rule='consensus' with weights='diagonal'",
            )
        sds = np.sqrt(self.variances)
        covs = np.array([_covariance(values) for values in self.scaled])
        self._check_rank(covs / (sds[:, :, None] * sds[:, None, :]))
        return covs

    @cached_property
    def precisions(self) -> Array:
        """P_s = C_s⁻¹, shape (n_shards, d, d)."""
        return _inverse(self.covs)

    @cached_property
    def product_cov(self) -> Array:
        """V = (Σ P_s)⁻¹, the covariance of the product of Gaussians."""
        try:
            return _inverse(self.precisions.sum(axis=0))
        except SingularCovarianceError:
            way_out = "shards differ too much in scale: use weights='diagonal' of consensus"
            raise BadInputError("the sum of precisions", "singular", way_out) from None

    @cached_property
    def weights(self) -> Array:
        """W_s = V P_s of eq. (6), shape (n_shards, d, d); they sum to I."""
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
        """The result in the coordinates that were given; moments of the draws where none are."""
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
            raise BadInputError(
                f"the covariance of shard {shard}",
                "singular",
                f"its draws tie {' and '.join(dependent[:5])}"
                f"{' and others' if len(dependent) > 5 else ''} to each other: leave out what "
                "follows from the rest, or use rule='consensus' with weights='diagonal'",
            )


def _covariance(draws: Array) -> Array:
    return Moments.of(draws).scatter / (len(draws) - 1)


def _inverse(matrices: Array) -> Array:
    """Of symmetric positive definite matrices, on the scale of correlations."""
    sds = np.sqrt(np.einsum("...ii->...i", matrices))
    outer = sds[..., :, None] * sds[..., None, :]
    return np.asarray(spd_inverse(matrices / outer) / outer)


def _as_floats(shard: int, values: ArrayLike) -> Array:
    try:
        given = np.asarray(values)
    except ValueError as error:
        raise BadInputError(f"shard {shard}", "no array", f"give one ({error})") from None
    require(
        np.can_cast(given.dtype, np.float64, "same_kind"),
        f"type of the draws of shard {shard}",
        str(given.dtype),
        "give real numbers",
    )
    require(
        given.ndim == 2,
        f"shape of shard {shard}",
        given.shape,
        "give (n_draws, d) for every shard; draws[:, None] where there is one coordinate",
    )
    return given.astype(np.float64)


def _check_shape(shard: int, values: Array, dim: int) -> None:
    require(
        values.shape[1] == dim and dim > 0,
        f"number of coordinates of shard {shard}",
        values.shape[1],
        f"all shards must have as many as shard 0, which has {dim}, and at least one",
    )
    require(len(values) > 1, f"number of draws of shard {shard}", len(values), "give 2 or more")


def _check_finite(shard: int, values: Array, names: Sequence[str]) -> None:
    for draw, j in np.argwhere(~np.isfinite(values)):
        raise BadInputError(
            f"draw {draw} of {names[j]} in shard {shard}",
            float(values[draw, j]),
            "find out why the sampler gave it; no draw can be left out without a bias",
        )


def _check_units(half_ranges: Array, names: Sequence[str]) -> None:
    for name, half_range in zip(names, half_ranges, strict=True):
        require(
            half_range == 0 or _TINY < half_range < 1 / _TINY,
            f"half the range of {name}",
            float(half_range),
            "give it in units in which squares can be computed",
        )
