"""A Gaussian fit of a subposterior, as warm-up finds it before the first draw."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array


@dataclass(frozen=True, eq=False)
class Fit:
    """`mode` is (d,), `covariance` (d, d): the inverse curvature there, or better where known.

    `noise` says how much more noise covariances of draws have than those of Gaussian draws: times
    the variance, where the tails are heaviest.
    """

    mode: Array
    covariance: Array
    noise: float = 1.0


def as_arrays(fits: Sequence[Fit | None]) -> dict[str, Array]:
    """Those that are there, as arrays that can travel: `mode@i`, `fit@i`, `noise@i`."""
    known = {i: fit for i, fit in enumerate(fits) if fit is not None}
    modes = {f"mode@{i}": fit.mode for i, fit in known.items()}
    noises = {f"noise@{i}": np.array(fit.noise) for i, fit in known.items()}
    return modes | noises | {f"fit@{i}": fit.covariance for i, fit in known.items()}


def fits_among(arrays: Mapping[str, NDArray[Any]], shards: Sequence[int]) -> dict[int, Fit]:
    """The fits among arrays that travelled, by shard; `shards[i]` is the i-th."""
    return {
        shard: Fit(arrays[f"mode@{i}"], arrays[f"fit@{i}"], float(arrays[f"noise@{i}"]))
        for i, shard in enumerate(shards)
        if f"fit@{i}" in arrays
    }
