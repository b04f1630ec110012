"""Rows of a table with missing values: counted over all its chunks, and dropped on request."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quorate._types import BoolArray
from quorate._words import counted
from quorate.data.complete import NA
from quorate.errors import BadInputError, require


@dataclass
class Completeness:
    """What is missing in the rows seen so far: the number in each column, and the first row.

    The first row is None where others have counted, in an order of their own.
    """

    n_rows: int = 0
    n_incomplete: int = 0
    columns: dict[str, tuple[int, int | None]] = field(default_factory=dict)

    def add(self, frame: Any) -> BoolArray:
        """Take in one more chunk, and say which of its rows are complete."""
        lacking = frame.isna()
        for name in frame.columns:
            rows = lacking[name].to_numpy()
            if rows.any():
                before, first = self.columns.get(name, (0, self.n_rows + int(np.argmax(rows))))
                self.columns[name] = (before + int(rows.sum()), first)
        complete = ~lacking.any(axis=1).to_numpy()
        self.n_incomplete += int((~complete).sum())
        self.n_rows += len(complete)
        return np.asarray(complete)

    def take(self, n_rows: int, n_incomplete: int, columns: Mapping[str, int]) -> None:
        """Take in what was counted elsewhere: rows, and missing values by column."""
        self.n_rows += n_rows
        self.n_incomplete += n_incomplete
        for name, count in columns.items():
            self.columns[name] = (self.columns.get(name, (0, None))[0] + count, None)

    def require_usable(self, na: NA) -> None:
        """Raise if rows are incomplete and are not to be dropped, or if none is left."""
        if na == "raise" and self.n_incomplete:
            way = "Drop these rows with na='drop' (--na drop on the command line), or fill them."
            raise BadInputError(f"{self.in_words}. {way}")
        require(
            self.n_incomplete < max(self.n_rows, 1),
            f"{self.in_words}. No row is complete: leave out a column, or fill it.",
        )

    @property
    def in_words(self) -> str:
        """How many rows are incomplete, and where."""
        columns = (
            f"column `{name}` is missing in {counted(count, 'row')}"
            + ("" if first is None else f", {'the first being ' * (count > 1)}row {first}")
            for name, (count, first) in self.columns.items()
        )
        are = "is" if self.n_incomplete == 1 else "are"
        of = f"{self.n_incomplete} of {counted(self.n_rows, 'row')}"
        return f"{of} {are} incomplete: {'; '.join(columns)}"


def require_complete(frame: Any) -> None:
    """Raise if any row of a table has missing values."""
    found = Completeness()
    found.add(frame)
    if found.n_incomplete:
        raise BadInputError(f"{found.in_words}. Drop or fill those rows.")
