"""Summaries of draws and of weighted points, scalar by scalar."""

from collections.abc import Mapping

import numpy as np

from quorate._types import Array, IntArray
from quorate.models.protocol import Model
from quorate.numerics.importance import Weighted
from quorate.numerics.names import named_scalars

_QUANTILES, _SHARES = ("3%", "50%", "97%"), (0.03, 0.5, 0.97)


def summaries_of_draws(variables: Mapping[str, Array]) -> dict[str, dict[str, float]]:
    """Mean, sd and quantiles of every scalar of draws by name, (n, *shape) each."""
    n = len(next(iter(variables.values())))
    places = np.minimum(np.searchsorted(np.cumsum(np.full(n, 1 / n)), _SHARES), n - 1)
    return {
        name: _summary(np.ascontiguousarray(values), places)
        for name, values in named_scalars(variables)
    }


def _summary(values: Array, places: IntArray) -> dict[str, float]:
    quantiles = np.partition(values, places)[places].tolist()
    return {
        "mean": float(values.mean()),
        "sd": float(values.std()),
        **dict(zip(_QUANTILES, quantiles, strict=True)),
    }


def summaries(model: Model, weighted: Weighted) -> dict[str, dict[str, float]]:
    """Mean, sd and quantiles of every scalar, in constrained coordinates."""
    return {
        name: {
            "mean": float(weighted.mean(values)),
            "sd": float(weighted.sd(values)),
            **dict(zip(_QUANTILES, weighted.quantiles(values, _SHARES), strict=True)),
        }
        for name, values in named_scalars(model.constrain(weighted.points))
    }
