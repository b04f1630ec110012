"""Numbers of the groups of rows, and rows in the order of their groups, in time linear in rows."""

import numpy as np

from quorate._types import IntArray

_SPARSE = 8  # codes are counted, not sorted, if the largest is below so many times the rows


def numbered(group: IntArray) -> tuple[IntArray, IntArray]:
    """The codes that occur, in rising order, and the position of each row's code among them."""
    is_dense = group.dtype.kind == "i" and len(group) > 0 and group.min() >= 0
    if not is_dense or group.max() >= _SPARSE * len(group):
        codes, which = np.unique(group, return_inverse=True)
        return np.asarray(codes), np.asarray(which)
    occurs = np.bincount(group) > 0
    positions = np.cumsum(occurs) - 1
    return np.flatnonzero(occurs).astype(group.dtype), positions[group]


def by_group(which: IntArray, n_groups: int) -> IntArray:
    """An order of rows by group that keeps the order within groups: a counting sort."""
    from scipy.sparse import csr_array  # slow to import

    n_rows = len(which)
    ones, starts = np.ones(n_rows, dtype=np.int8), np.arange(n_rows + 1)
    table = csr_array((ones, which, starts), shape=(n_rows, n_groups))
    return np.asarray(table.tocsc().indices, dtype=np.int64)
