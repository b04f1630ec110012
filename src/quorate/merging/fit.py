"""The Gaussian fit of a subposterior that warm-up finds before the first draw."""

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
    """What warm-up knows of a subposterior.

    Parameters
    ----------
    mean
        Best known estimate of the mean (d,); the mode if there is no better one.
    covariance
        Best known estimate of the covariance (d, d): the inverse curvature at the mode, or better.
    noise
        Variance of sample covariances relative to Gaussian draws, along the heaviest tail. Chains
        mix about that many times more slowly there.
    worth
        Number of independent draws whose mean is as accurate as `mean`; 0 if `mean` is a mode.
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
    """Fits by shard, from the arrays of a message; `shards[i]` is the shard of the i-th fit."""
    return {
        shards[int(i)]: Fit(
            fit["mean"], fit["covariance"], float(fit["noise"]), float(fit["worth"])
        )
        for i, fit in parts(arrays, _FITS).items()
    }
