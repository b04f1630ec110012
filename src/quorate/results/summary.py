"""What is told of the draws of one scalar."""

import numpy as np

from quorate._types import Array
from quorate.numerics.ess import bulk_ess, split_rhat


def summary_row(
    values: Array, ess: float | None = None, r_hat: float | None = None
) -> dict[str, float]:
    """Mean, sd, 94 % interval, ESS, MCSE and split R-hat of `values` (n,).

    ESS and R-hat are those of `values` as one chain, unless they are known otherwise.
    """
    low, high = np.quantile(values, [0.03, 0.97])
    sd = float(values.std(ddof=1))
    ess = float(bulk_ess(values[None])) if ess is None else ess
    r_hat = float(split_rhat(values[None])) if r_hat is None else r_hat
    return {
        "mean": float(values.mean()),
        "sd": sd,
        "3%": float(low),
        "97%": float(high),
        "ess": ess,
        "mcse": sd / ess**0.5,
        "r_hat": r_hat,
    }
