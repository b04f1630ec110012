"""Few classes of groups by size, for arithmetic that is compiled for each size.

In a class all groups are filled up to the rows of the largest. A class more costs the time to
compile it; a class less costs the time for rows that count nothing.
"""

from collections.abc import Iterator

import numpy as np

from quorate._types import IntArray

_EXACT = 8  # sizes above are rounded up to multiples of it
_GROWTH = 1.2  # of sizes above, from one candidate to the next
_COST_OF_CLASS = 0.15  # as a share of all rows


def few_classes(sizes: IntArray) -> Iterator[tuple[int, IntArray]]:
    """The size of each class, with the positions of its groups; `sizes` (n_groups,) are rows."""
    rounded = _rounded(sizes)
    candidates, counts = np.unique(rounded, return_counts=True)
    order = np.argsort(rounded, kind="stable")
    ends = np.cumsum(counts)
    start = 0
    for last in _last_of_classes(candidates, counts):
        yield int(candidates[last]), np.asarray(order[start : ends[last]])
        start = int(ends[last])


def _rounded(sizes: IntArray) -> IntArray:
    """Each size, rounded up to one of few candidates."""
    most = int(sizes.max(initial=1))
    candidates = list(range(1, _EXACT + 1))
    while candidates[-1] < most:
        candidates.append(-(-int(_GROWTH * candidates[-1] + 1) // _EXACT) * _EXACT)
    grid = np.array(candidates)
    return np.asarray(grid[np.searchsorted(grid, sizes)])


def _last_of_classes(candidates: IntArray, counts: IntArray) -> list[int]:
    """The last candidate of each class, by dynamic programming over where classes end."""
    n, total = len(candidates), float(candidates @ counts)
    groups = np.concatenate([[0], np.cumsum(counts)])
    cost, begins = np.zeros(n + 1), np.zeros(n + 1, dtype=np.int64)
    for end in range(1, n + 1):
        filled = candidates[end - 1] * (groups[end] - groups[:end]).astype(float)
        costs = cost[:end] + filled + _COST_OF_CLASS * total
        begins[end] = int(np.argmin(costs))
        cost[end] = costs[begins[end]]
    found, end = [], n
    while end:
        found.append(end - 1)
        end = int(begins[end])
    return found[::-1]
