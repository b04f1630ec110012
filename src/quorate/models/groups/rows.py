"""The rows of a shard, arranged by group: dense arrays of groups of about the same size.

Groups are sorted by their number of rows and put into buckets. In a bucket, every group has the
same number of rows; those with fewer are filled up with rows that count nothing. So all groups of a
bucket are one array operation.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quorate._types import Array, IntArray

_EXACT_SIZES = 8  # buckets of groups with up to so many rows have no rows that count nothing
_GROWTH = 1.15  # from the size of a bucket to the next


class Bucket(NamedTuple):
    """Some groups, with `size` rows each; rows with a count of 0 fill up."""

    which: IntArray  # (g,), positions of the groups in `GroupedRows.codes`
    columns: Array  # (g, size, p), X
    varying: Array  # (g, size, q), Z
    response: Array  # (g, size), sums of y over equal rows
    counts: Array  # (g, size), numbers of equal rows

    def part(self, groups: slice) -> "Bucket":
        """Some of its groups."""
        return Bucket(self.which[groups], *(array[groups] for array in self[1:]))


@dataclass(frozen=True)
class GroupedRows:
    """All rows of a shard, by group."""

    codes: IntArray  # (n_groups,), in rising order
    buckets: tuple[Bucket, ...]
    response_by_column: Array  # (p,), Xᵀy
    is_intercept: bool  # whether Z is a single column of ones

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.codes)

    def of_groups(self, codes: IntArray) -> "GroupedRows":
        """The rows of some groups only, without `response_by_column`."""
        wanted = np.searchsorted(self.codes, codes)
        position = np.full(self.n_groups, -1)
        position[wanted] = np.arange(len(codes))
        buckets = []
        for bucket in self.buckets:
            kept = position[bucket.which] >= 0
            if kept.any():
                which = position[bucket.which[kept]]
                buckets.append(Bucket(which, *(array[kept] for array in bucket[1:])))
        nothing = np.zeros_like(self.response_by_column)
        return GroupedRows(codes, tuple(buckets), nothing, self.is_intercept)


def arranged(columns: Array, varying: Array, response: Array, group: IntArray) -> GroupedRows:
    """Arrange rows by group: X (n, p), Z (n, q), y (n,) and the code of each row's group (n,)."""
    codes, which = np.unique(group, return_inverse=True)
    order, counts = _merged(np.column_stack([columns, varying]), which)
    sums = np.add.reduceat(response[order], _starts(counts)) if len(order) else response
    first = order[_starts(counts)]
    return GroupedRows(
        np.asarray(codes),
        tuple(_buckets(columns[first], varying[first], sums, counts.astype(float), which[first])),
        response @ columns,
        varying.shape[1] == 1 and bool((varying == 1).all()),
    )


def _merged(rows: Array, which: IntArray) -> tuple[IntArray, IntArray]:
    """An order of rows by group, and how many of them, in that order, count as one.

    Equal rows of a group count as one, if that saves half of the rows.
    """
    key = rows @ np.random.default_rng(0).standard_normal(rows.shape[1])
    order = np.lexsort((key, which))
    same = np.zeros(len(order), dtype=bool)
    same[1:] = (which[order[1:]] == which[order[:-1]]) & (key[order[1:]] == key[order[:-1]])
    same[1:] &= (rows[order[1:]] == rows[order[:-1]]).all(axis=1)
    if 2 * same.sum() < len(order):
        return order, np.ones(len(order), dtype=np.int64)
    starts = np.flatnonzero(~same)
    return order, np.diff(np.append(starts, len(order)))


def _starts(counts: IntArray) -> IntArray:
    return np.asarray(np.cumsum(counts) - counts)


def _buckets(
    columns: Array, varying: Array, response: Array, counts: Array, which: IntArray
) -> Iterator[Bucket]:
    """Buckets of rows that are sorted by group."""
    sizes = np.bincount(which)
    first_row = _starts(sizes)
    for size, groups in _by_size(sizes):
        offsets = np.arange(size)
        is_row = offsets < sizes[groups][:, None]
        rows = np.where(is_row, first_row[groups][:, None] + offsets, 0)
        yield Bucket(
            groups,
            np.where(is_row[:, :, None], columns[rows], 0.0),
            np.where(is_row[:, :, None], varying[rows], 0.0),
            np.where(is_row, response[rows], 0.0),
            np.where(is_row, counts[rows], 0.0),
        )


def _by_size(sizes: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Groups that share a bucket, with the number of rows of its largest group."""
    order = np.argsort(sizes, kind="stable")
    ranked = sizes[order]
    start = 0
    while start < len(order):
        least = int(ranked[start])
        most = least if least < _EXACT_SIZES else int(_GROWTH * least)
        end = int(np.searchsorted(ranked, most, side="right"))
        yield int(ranked[end - 1]), np.asarray(order[start:end])
        start = end
