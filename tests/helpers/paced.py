"""A model that takes its time until a file says that it may hurry."""

import time
from pathlib import Path

import numpy as np

from helpers.machines import SHARED

_QUICK = 1000  # evaluations of a process that take no time: those of warm-up
_SECONDS = 0.05  # for each of the others
_HURRY = "hurry"


class PacedModel:
    """Rows (a, b) ~ N(θ, 1), θ ~ N(0, 100); slow until `hurry` was called."""

    dim = 2
    names = ("a", "b")

    def __init__(self, shared: Path) -> None:
        self._file = shared / _HURRY
        self._n = 0

    @staticmethod
    def hurry(shared: Path) -> None:
        """Let evaluations take as long as they need, from now on."""
        (shared / _HURRY).touch()

    def initial(self):
        return np.zeros(2)

    def log_prior(self, x):
        return float(-0.5 * np.sum(x**2) / 100)

    def log_likelihood(self, x, shard):
        self._n += 1
        if self._n > _QUICK and not self._file.exists():
            time.sleep(_SECONDS)
        return float(-0.5 * np.sum((shard["a"] - x[0]) ** 2 + (shard["b"] - x[1]) ** 2))

    def constrain(self, draws):
        return {"theta": draws}


model = PacedModel(SHARED)
