"""The arrays of a shard of a regression with groups."""

from typing import NamedTuple

import numpy as np

from quorate._types import Array, BoolArray, IntArray
from quorate.models.groups.regressions.numbering import numbered
from quorate.models.observed import Observed


class Tables(NamedTuple):
    """Arrays of n rows. Those of groups are lists with one for each level, outer level first."""

    seen: Observed  # X, y and what comes with them
    varying: list[Array]  # Z, (n, q)
    groups: list[IntArray]  # codes, (n,)

    def at(self, rows: BoolArray | IntArray) -> "Tables":
        """Some of the rows."""
        return Tables(
            self.seen.at(rows),
            [each[rows] for each in self.varying],
            [each[rows] for each in self.groups],
        )

    def every(self, step: int) -> tuple["Tables", float]:
        """The rows of evenly spaced outer groups, and how many times they stand for all groups."""
        codes, _ = numbered(self.groups[0])
        chosen = codes[::step]
        return self.at(np.isin(self.groups[0], chosen)), len(codes) / len(chosen)
