"""Means of shards that are right from the first draws.

The mean of merged draws is as noisy as the means of shards that go into it. Where warm-up knows
the mean of a shard better than its draws do yet, their mean is shrunk towards that: by what each
is worth, or less where they differ by more than noise explains. Merged draws are shifted by what
shards are; as draws come in the shift goes to 0.
"""

import numpy as np

from quorate._types import Array
from quorate.merging.fit import Fit
from quorate.merging.weights import WORTH
from quorate.numerics.moments import Moments

_SIGMAS = 2.0  # beyond √d, of a chi with d degrees of freedom: exceeded once in 300 times


def shift_of(moments: Moments, fit: Fit | None) -> Array:
    """What to add to the draws of a shard, shape (d,): 0 where its fit does not know the mean.

    Draws say where they differ from the fit louder than their noise: then the share
    1 - limit² / gap² of the gap is theirs, as in `quorate.merging.weights`. Chains are slow in
    heavy tails: n draws are worth fewer there, and the fourth moment of their mean is
    1 + (noise - 1) / n times that of a Gaussian, by whose root the limit is wider. Noise is judged
    by how wide draws are as well: a chain that was far out for a while brings a mean that is off,
    and a spread that says so.
    """
    if fit is None or not fit.worth or not moments.count:
        return np.zeros(moments.mean.shape[-1])
    gap, n = fit.mean - moments.mean, WORTH / fit.noise * moments.count
    noise = (fit.covariance + moments.covariance()) / n + fit.covariance / fit.worth
    square = float(gap @ np.linalg.solve(noise, gap))
    limit = (np.sqrt(len(gap)) + _SIGMAS) ** 2 * np.sqrt(1 + (fit.noise - 1) / n)
    share = min(fit.worth / (n + fit.worth), limit / max(square, limit))
    return np.asarray(share * gap)
