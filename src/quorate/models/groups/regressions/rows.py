"""The rows of a shard, arranged by group: dense arrays of groups of about the same size.

Groups are sorted by their number of rows and put into bundles. In a bundle, every group has the
same number of rows; those with fewer are filled up with rows that count nothing. So all groups of a
bundle are one array operation, whose innermost and longest axis is that of the groups.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quorate._types import Array, IntArray
from quorate.models.groups.regressions.numbering import by_group, numbered
from quorate.models.observed import Observed

_EXACT_SIZES = 8  # groups with fewer rows share a bundle only with groups of the same size
GROWTH = 1.2  # more bundles cost time for each, fewer cost time for rows that count nothing
_ROWS = 4096  # of a bundle, about
# From the number of rows of each group to the groups that share a bundle, with its size
Bundling = Callable[[IntArray], Iterator[tuple[int, IntArray]]]


class Bundle(NamedTuple):
    """Some groups, with `size` rows each; rows with a count of 0 fill up."""

    which: IntArray  # (g,), positions of the groups in `GroupedRows.codes`
    columns: Array  # (size, p, g), X
    varying: Array  # (size, q, g), Z
    outer: Array  # (size, q of the outer level, g), its Z if these groups lie within others
    offset: Array  # (size, 0 or 1, g), added to Xβ
    response: Array  # (size, g), sums of y over equal rows
    counts: Array  # (size, g), numbers of equal rows

    def of(self, positions: IntArray) -> "Bundle | None":
        """Only those groups whose new position is not -1; None if there are none."""
        kept = positions[self.which] >= 0
        if not kept.any():
            return None
        return Bundle(positions[self.which[kept]], *(array[..., kept] for array in self[1:]))


@dataclass(frozen=True)
class GroupedRows:
    """All rows of a shard, by group."""

    codes: IntArray  # (n_groups,), in rising order
    bundles: tuple[Bundle, ...]
    has_ones: bool  # whether the first column of Z is one of ones

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.codes)

    @property
    def n_rows(self) -> int:
        """Number of rows, where equal rows count as one."""
        return sum(int((bundle.counts > 0).sum()) for bundle in self.bundles)

    def of_groups(self, codes: IntArray) -> "GroupedRows":
        """The rows of some groups, in any order."""
        positions = np.full(self.n_groups, -1)
        positions[np.searchsorted(self.codes, codes)] = np.arange(len(codes))
        some = (bundle.of(positions) for bundle in self.bundles)
        kept = tuple(bundle for bundle in some if bundle is not None)
        return GroupedRows(codes, kept, self.has_ones)


def arranged(
    seen: Observed,
    varying: Array,
    group: IntArray,
    bundling: Bundling,
    outer: Array | None = None,
) -> GroupedRows:
    """Arrange rows by group, with Z (n, q) and the code of each row's group (n,).

    `bundling` says which groups share a bundle: `of_like_size`. If the groups lie within others,
    `outer` is Z of these.
    """
    codes, which = numbered(group)
    none, offset = np.empty((len(varying), 0)), seen.offset
    tables = (
        seen.columns,
        varying,
        none if outer is None else outer,
        none if offset is None else offset[:, None],
    )
    order, equal = _merged(np.column_stack(tables), which, len(codes))
    starts = _starts(equal)
    first = order[starts]
    sums = np.add.reduceat(seen.weighted_response[order], starts)
    counts = equal if seen.counts is None else np.add.reduceat(seen.counts[order], starts)
    distinct = [_turned(table, first) for table in tables]
    return GroupedRows(
        codes,
        tuple(_bundles(distinct, sums, counts.astype(float), which[first], bundling)),
        bool((varying[:, 0] == 1).all()),
    )


def _merged(rows: Array, which: IntArray, n_groups: int) -> tuple[IntArray, IntArray]:
    """An order of rows by group, and how many of them, in that order, count as one.

    Equal rows of a group count as one, if that saves half of the rows.
    """
    key = rows @ np.random.default_rng(0).standard_normal(rows.shape[1])
    ranked = np.sort(key)
    n_rows = len(key)
    if (
        2 * int((ranked[1:] == ranked[:-1]).sum()) < n_rows
    ):  # even if groups are left out of account
        return by_group(which, n_groups), np.ones(n_rows, dtype=np.int64)
    by_key = np.argsort(key, kind="stable")
    order = by_key[by_group(which[by_key], n_groups)]
    groups, keys, values = which[order], key[order], rows[order]
    same = np.zeros(n_rows, dtype=bool)
    same[1:] = (groups[1:] == groups[:-1]) & (keys[1:] == keys[:-1])
    same[1:] &= (values[1:] == values[:-1]).all(axis=1)
    if 2 * same.sum() < n_rows:
        return order, np.ones(n_rows, dtype=np.int64)
    starts = np.flatnonzero(~same)
    return order, np.diff(np.append(starts, n_rows))


def _starts(counts: IntArray) -> IntArray:
    return np.asarray(np.cumsum(counts) - counts)


def _bundles(
    tables: Sequence[Array], response: Array, counts: Array, which: IntArray, bundling: Bundling
) -> Iterator[Bundle]:
    """Bundles of rows sorted by group; `tables` are X, Z, Z of the outer level, and the offset.

    Tables are those of `_turned`, and so have a last row of zeros.
    """
    sizes, n_rows = np.bincount(which), len(response)
    first_row = _starts(sizes)
    response, counts = np.append(response, 0.0), np.append(counts, 0.0)
    for size, groups in bundling(sizes):
        offsets = np.arange(size)[:, None]
        rows = np.where(offsets < sizes[groups], first_row[groups] + offsets, n_rows)
        columns, varying, outer, offset = (_dense(table, rows) for table in tables)
        yield Bundle(groups, columns, varying, outer, offset, response[rows], counts[rows])


def _turned(table: Array, rows: IntArray) -> Array:
    """Some rows of a table and one of zeros, one column after the other: (n_columns, n_rows + 1).

    To gather column by column is several times faster than row by row.
    """
    turned = np.zeros((table.shape[1], len(rows) + 1))
    for column, values in zip(turned, table.T, strict=True):
        column[:-1] = values[rows]
    return turned


def _dense(turned: Array, rows: IntArray) -> Array:
    """Columns of the rows (size, g) of a table, (size, n_columns, g)."""
    size, n_groups = rows.shape
    dense = np.empty((size, len(turned), n_groups))
    for i, column in enumerate(turned):
        dense[:, i] = column[rows]
    return dense


def of_like_size(growth: float) -> Bundling:
    """Bundles whose largest group has up to `growth` times the rows of the smallest."""

    def split(sizes: IntArray) -> Iterator[tuple[int, IntArray]]:
        order = np.argsort(sizes, kind="stable")
        ranked = sizes[order]
        start = 0
        while start < len(order):
            least = int(ranked[start])
            most = least if least < _EXACT_SIZES else int(growth * least)
            alike = int(np.searchsorted(ranked, most, side="right"))
            end = min(alike, start + max(1, _ROWS // most))
            yield int(ranked[end - 1]), np.asarray(order[start:end])
            start = end

    return split
