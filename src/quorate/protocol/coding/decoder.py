"""Coded rows from workers, and the sums that they decode to.

A sum does not depend on the order of arrival: rows are added by the number of their worker. With a
grouped code, where r divides K, a sum is one row of each group, so it has the same bits whichever
worker of a group was first.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from quorate._types import CodedArray
from quorate.protocol.coding.code import GradientCode


@dataclass
class _Item:
    """Something that workers send one row each of."""

    missing: list[int]  # answers that each cell lacks at least
    n_cells_missing: int
    rows: dict[int, CodedArray] = field(default_factory=dict)
    used: tuple[int, ...] = ()  # whose rows are in the sum
    total: CodedArray | None = None


class Answers:
    """The answers to a number of items, each decoded as soon as it can be.

    Parameters
    ----------
    code
        That workers encode with.
    keep
        Whether to keep rows after they have decoded, so that some can be taken out again.
    """

    def __init__(self, code: GradientCode, keep: bool = False) -> None:
        self.code = code
        self.doubtful: set[int] = set()  # items whose sum has a row that was taken out
        self._keep = keep
        self._items: dict[int, _Item] = {}
        self._cell_of = code.cell_numbers
        self._needed = [cell.needed for _, cell in code.cells]
        self._vectors: dict[tuple[int, ...], CodedArray] = {}

    def add(self, item: int, worker: int, row: CodedArray) -> bool:
        """Take in a row, as long as all rows of its item; whether the item decodes now."""
        if item not in self._items:
            self._items[item] = _Item(self._needed.copy(), len(self._needed))
        known = self._items[item]
        is_late = known.total is not None and item not in self.doubtful
        if worker in known.rows or (is_late and not self._keep):
            return is_late
        known.rows[worker] = row
        self._count(known, worker)
        if not is_late:
            self._decode_if_possible(item, known)
        return known.total is not None and item not in self.doubtful

    def take_out(self, worker: int, first: int) -> None:
        """Take the rows of a worker out, of items `first` and later.

        A sum that cannot do without is doubtful, until other answers come.
        """
        for item, known in self._items.items():
            if item < first or known.rows.pop(worker, None) is None:
                continue
            known.missing, known.n_cells_missing = self._needed.copy(), len(self._needed)
            for other in known.rows:
                self._count(known, other)
            if worker in known.used:
                self.doubtful.add(item)
                self._decode_if_possible(item, known)

    def answered(self, item: int) -> Collection[int]:
        """Workers whose rows have arrived."""
        return self._items[item].rows.keys() if item in self._items else ()

    def rows(self, item: int) -> dict[int, CodedArray]:
        """The rows of an item that have arrived, by worker."""
        return self._items[item].rows

    def total(self, item: int) -> CodedArray:
        """The decoded sum of an item that has decoded."""
        total = self._items[item].total
        assert total is not None
        return total

    def n_used(self, item: int) -> int:
        """Number of rows that the sum of an item is made of."""
        return len(self._items[item].used)

    def forget(self, end: int) -> None:
        """Drop items before `end`."""
        for item in [item for item in self._items if item < end]:
            del self._items[item]
        self.doubtful = {item for item in self.doubtful if item >= end}

    def _count(self, item: _Item, worker: int) -> None:
        cell = self._cell_of[worker]
        item.missing[cell] -= 1
        if not item.missing[cell]:
            item.n_cells_missing -= 1

    def _decode_if_possible(self, number: int, item: _Item) -> None:
        workers = tuple(sorted(item.rows))
        if item.n_cells_missing or not self.code.decodable(workers):
            return
        if workers not in self._vectors:
            self._vectors[workers] = self.code.decoding_vector(workers)
        vector = self._vectors[workers]
        item.used = tuple(int(worker) for worker in np.flatnonzero(vector))
        terms = [vector[worker] * item.rows[worker] for worker in item.used]
        item.total = np.add.reduce(terms, axis=0)
        self.doubtful.discard(number)
        if not self._keep:
            item.rows.clear()
