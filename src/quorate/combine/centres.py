"""Means of shards that are right from the first draws.

The mean of merged draws is as noisy as the means of shards that go into it. Where warm-up knows
the mean of a shard better than its draws do yet, their mean is shrunk towards that: by what each
is worth, or less where they differ by more than noise explains. Merged draws are shifted by what
shards are; as draws come in the shift goes to 0.
"""

import numpy as np

from quorate._types import Array
from quorate.combine.weights import WORTH
from quorate.fit import Fit
from quorate.moments import Moments

_SIGMAS = 2.0  # beyond √d, of a chi with d degrees of freedom: exceeded once in 300 times


def shift_of(moments: Moments, fit: Fit | None) -> Array:
    """What to add to the draws of a shard, shape (d,): 0 where its fit does not know the mean.

    Draws say where they differ from the fit louder than their noise: then the share
    1 - limit² / gap² of the gap is theirs, as in `quorate.combine.weights`. Chains are slow in
    heavy tails, and draws are worth less there.
    """
    if fit is None or not fit.worth or not moments.count:
        return np.zeros(moments.mean.shape[-1])
    gap, n = fit.mean - moments.mean, WORTH / np.sqrt(fit.noise) * moments.count
    square = float(gap @ np.linalg.solve(fit.covariance, gap))
    limit = (np.sqrt(len(gap)) + _SIGMAS) ** 2 * (1 / n + 1 / fit.worth)
    share = min(fit.worth / (n + fit.worth), limit / max(square, limit))
    return np.asarray(share * gap)
