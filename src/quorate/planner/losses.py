"""How many workers a run can lose by chance."""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import combinations
from math import comb

import numpy as np

from quorate.protocol.scheme import SchemeOptions, Setup

_ORDERS = 500


def survives_typically(options: SchemeOptions, n_workers: int, seed: int) -> int:
    """Median number of workers that a run can lose, if chance decides on their order.

    In half of the orders, a run that loses one worker more cannot finish. Where at most 500 sets of
    workers can be left, as with up to 11 workers, the median is exact. Otherwise it is that of 500
    random orders.
    """
    scheme = options.start(Setup(n_workers, dim=1, seed=seed))
    in_order = np.tile(np.arange(n_workers), (_ORDERS, 1))
    orders = np.random.default_rng(seed).permuted(in_order, axis=1).tolist()

    def mostly_ends_it(n_lost: int) -> bool:
        n_left = n_workers - n_lost
        sets_left: Iterable[Iterable[int]] = (order[n_lost:] for order in orders)
        if comb(n_workers, n_left) <= _ORDERS:
            sets_left = combinations(range(n_workers), n_left)
        survived = [not scheme.out_of_reach(1, set(alive)) for alive in sets_left]
        return 2 * sum(survived) <= len(survived)

    return bisect_left(range(1, n_workers + 1), True, key=mostly_ends_it)
