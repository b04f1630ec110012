"""One question of the posterior: its log density at given points."""

from collections.abc import Mapping

import numpy as np

from quorate._types import Array
from quorate.passes.inquiry import Pass

CHECK = -1  # number of the question of a check


class OneQuestion:
    """Asks for the log posterior at given points, and for nothing else."""

    def __init__(self, points: Array) -> None:
        self.open: dict[int, Pass] = {}
        self.values = np.empty(0)
        self._points = points

    @property
    def n_complete(self) -> int:
        """Points that are known."""
        return len(self.values)

    def begin(self, surveys: Mapping[int, Mapping[str, Array]]) -> None:
        """Ask the question."""
        # No question of a run has this number: a late answer to one of them is not taken for it
        self.open[0] = Pass(0, CHECK, "check", self._points)

    def take(self, lane: int, values: Array, gradients: Array | None = None) -> None:
        """Keep the answer."""
        del self.open[lane]
        self.values = values
