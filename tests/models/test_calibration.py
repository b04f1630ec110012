"""A small simulation-based calibration; benchmarks/calibration.py has the large one.

If the posterior is right, the normal scores of the ranks of a parameter are standard normal over
data sets, and their sum of squares follows chi-squared; it is a little less, as ranks are rounded.
"""

import numpy as np
from scipy.stats import chi2, norm

from helpers.calibration import Design, ranks

N_SETS, FALSE_ALARMS = 24, 1e-5
WHOLE = Design("(1 | g)", q=1, n_groups=24, size=8, n_shards=2, n_draws=300, n_ranks=299)
# Each group has 3 rows in each of 64 shards, and groups differ much. A square of the intercept's
# scores is 5.6 in the mean, with an sd of 2.8: their sum is 4.6 sds above the limit.
TORN = Design("(1 | g)", 1, n_groups=4, size=192, n_shards=64, n_draws=200, n_ranks=199, sd_scale=2)


def sums_of_squares(design, seed, **options):
    """Of the normal scores of each parameter over data sets."""
    seeds = range(N_SETS * seed, N_SETS * (seed + 1))
    found = np.array([ranks(design, each, **options) for each in seeds])
    return (norm.ppf((found + 0.5) / (design.n_ranks + 1)) ** 2).sum(axis=0)


def limit(design):
    """The largest of all sums is above it in one of 100,000 suites."""
    return chi2.isf(FALSE_ALARMS / (design.model.dim + design.q), N_SETS)


def test_parameters_are_ranked_uniformly(seed):
    assert sums_of_squares(WHOLE, seed).max() < limit(WHOLE)


def test_torn_groups_are_found_out(seed):
    """The control: the intercept is far less certain than shards with parts of groups say."""
    intercept = sums_of_squares(TORN, seed, control=True, join=True)[0]
    assert intercept > limit(TORN)
