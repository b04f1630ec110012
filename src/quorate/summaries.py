"""What is told of the draws of one scalar."""

import numpy as np

from quorate._types import Array
from quorate.ess import bulk_ess, split_rhat


def summary_row(values: Array) -> dict[str, float]:
    """Mean, sd, 94 % interval, ESS, MCSE and split R-hat of `values` (n,)."""
    low, high = np.quantile(values, [0.03, 0.97])
    sd, ess = float(values.std(ddof=1)), float(bulk_ess(values[None]))
    return {
        "mean": float(values.mean()),
        "sd": sd,
        "3%": float(low),
        "97%": float(high),
        "ess": ess,
        "mcse": sd / ess**0.5,
        "r_hat": float(split_rhat(values[None])),
    }
