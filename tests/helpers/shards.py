"""Workers that answer for shards of a posterior in closed form, as real ones would."""

from dataclasses import dataclass

import numpy as np

from helpers import passes
from quorate.models.subposterior import NONE
from quorate.protocol.messages import Survey, Surveyed, Values
from quorate.protocol.sums import gradients_on_grid, summed, summed_values

MEAN, COV = np.array([1.0, -2.0]), np.array([[1.0, 0.5], [0.5, 2.0]])


@dataclass
class Shards:
    """Shards of N(MEAN, COV), whose means and log densities differ.

    If `is_cut`, shard 1 has no density where the first coordinate is below 0. With `at_once`,
    workers say that so many points fill the device on which they compute.
    """

    n_shards: int
    is_cut: bool = False
    at_once: int | None = None

    def fit(self, shard):
        """Mode, and Cholesky factor of the covariance."""
        gap = shard - (self.n_shards - 1) / 2
        return MEAN + gap, np.linalg.cholesky(COV * self.n_shards)

    def evaluated(self, shard, points):
        """Log densities (n,) and gradients (n, d)."""
        mode, lower = self.fit(shard)
        of = passes.gaussian(mode, lower @ lower.T).shifted(10.0 * shard)
        values, gradients = of.values(points), of.gradients(points)
        if self.is_cut and shard == 1:
            outside = points[:, 0] < 0
            values, gradients = np.where(outside, NONE, values), gradients * ~outside[:, None]
        return values, gradients

    def answer(self, task):
        """What a worker sends."""
        if isinstance(task, Survey):
            return self._surveyed(task)
        found = [self.evaluated(shard, task.points) for shard in task.shards]
        values = summed_values([values for values, _ in found], task.coefficients)
        gradients = [
            gradients_on_grid(gradients * task.scales).ravel()
            for _, gradients in found
            if task.scales is not None
        ]
        return Values(
            task._replace(points=task.points[:0]),
            values,
            summed(gradients, task.coefficients) if gradients else None,
        )

    def _surveyed(self, task):
        found = {}
        for shard in task.shards:
            mode, lower = self.fit(shard)
            found |= {f"{shard}/mode": mode, f"{shard}/lower": lower}
            if self.at_once is not None:
                found[f"{shard}/at_once"] = np.array(self.at_once)
        return Surveyed(task, found)
