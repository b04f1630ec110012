"""A Gaussian fit of a subposterior, as warm-up finds it before the first draw."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array
from quorate.numerics.named_arrays import flattened, parts

_FITS = "fits"


@dataclass(frozen=True, eq=False)
class Fit:
    """What is known of a subposterior without its draws.

    Parameters
    ----------
    mean
        The mean (d,) as well as it is known, be it no better than the mode.
    covariance
        The inverse curvature at the mode (d, d), or better where known.
    noise
        How much more noise covariances of draws have than those of Gaussian draws: times the
        variance, where the tails are heaviest. Chains are about as many times slower there.
    worth
        How many independent draws have a mean as good as `mean`; 0 where it is a mode.
    """

    mean: Array
    covariance: Array
    noise: float = 1.0
    worth: float = 0.0


def as_arrays(fits: Sequence[Fit | None]) -> dict[str, NDArray[Any]]:
    """The known fits as flat arrays that can travel; see `quorate.numerics.named_arrays`."""
    known = {i: fit for i, fit in enumerate(fits) if fit is not None}
    return flattened(
        {
            _FITS: {
                i: {part.name: np.asarray(getattr(fit, part.name)) for part in fields(Fit)}
                for i, fit in known.items()
            }
        }
    )


def fits_among(arrays: Mapping[str, NDArray[Any]], shards: Sequence[int]) -> dict[int, Fit]:
    """The fits among flat arrays, by shard; `shards[i]` is the i-th."""
    return {
        shards[int(i)]: Fit(
            fit["mean"], fit["covariance"], float(fit["noise"]), float(fit["worth"])
        )
        for i, fit in parts(arrays, _FITS).items()
    }
