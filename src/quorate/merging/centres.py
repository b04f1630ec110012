"""Shifts that make the means of shards accurate from the first draws.

The mean of merged draws is as noisy as the shard means that go into it. Early in a run, warm-up
often knows the mean of a shard better than its draws do. The mean of the draws is then shrunk
towards warm-up's, in proportion to the precision of both, and less if they differ by more than
noise explains. Merged draws are shifted accordingly. The shift goes to 0 as draws come in.
"""

import numpy as np

from quorate._types import Array
from quorate.merging.fit import Fit
from quorate.merging.weights import WORTH
from quorate.numerics.moments import Moments

_SIGMAS = 2.0  # above √d: a chi with d degrees of freedom exceeds that once in 300 times


def shift_of(moments: Moments, fit: Fit | None) -> Array:
    """Shift to add to the draws of a shard, shape (d,); 0 if its fit does not know the mean.

    If the gap between fit and draws exceeds its noise, draws keep the share 1 - limit² / gap² of
    it, as in `quorate.merging.weights`. Chains mix slowly in heavy tails, so n draws count for
    fewer there. The fourth moment of their mean is 1 + (noise - 1) / n times a Gaussian's, and the
    limit is wider by its root. The noise also depends on the spread of the draws: a chain that was
    far out for a while has a mean that is off, and a spread that shows it.
    """
    if fit is None or not fit.worth or not moments.count:
        return np.zeros(moments.mean.shape[-1])
    gap, n = fit.mean - moments.mean, WORTH / fit.noise * moments.count
    noise = (fit.covariance + moments.covariance()) / n + fit.covariance / fit.worth
    square = float(gap @ np.linalg.solve(noise, gap))
    limit = (np.sqrt(len(gap)) + _SIGMAS) ** 2 * np.sqrt(1 + (fit.noise - 1) / n)
    share = min(fit.worth / (n + fit.worth), limit / max(square, limit))
    return np.asarray(share * gap)
