"""Summaries of weighted points, scalar by scalar."""

from quorate.models.protocol import Model
from quorate.numerics.importance import Weighted
from quorate.numerics.names import named_scalars

_QUANTILES, _SHARES = ("3%", "50%", "97%"), (0.03, 0.5, 0.97)


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
