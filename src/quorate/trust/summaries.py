"""Summaries of weighted points, scalar by scalar."""

from quorate.models.protocol import Model
from quorate.numerics.importance import Weighted
from quorate.numerics.names import named_scalars

_QUANTILES = {"3%": 0.03, "50%": 0.5, "97%": 0.97}


def summaries(model: Model, weighted: Weighted) -> dict[str, dict[str, float]]:
    """Mean, sd and quantiles of every scalar, in constrained coordinates."""
    return {
        name: {
            "mean": float(weighted.mean(values)),
            "sd": float(weighted.sd(values)),
            **{label: weighted.quantile(values, share) for label, share in _QUANTILES.items()},
        }
        for name, values in named_scalars(model.constrain(weighted.points))
    }
