"""Local parameters at a worker: what a model is asked for, and the random numbers it gets."""

from dataclasses import dataclass
from typing import cast

import numpy as np

from quorate._types import Array, IntArray
from quorate.models.groups.levels import GroupedModel
from quorate.models.protocol import Model, Shard
from quorate.numerics.named_arrays import Nested, flattened
from quorate.numerics.streams import Purpose, Streams
from quorate.protocol.messages import Arrays, ShardTask


def local_moments(model: Model, rows: Shard, streams: Streams, task: ShardTask) -> Arrays:
    """Moments of the parameters of all groups, by the number of their level."""
    grouped = cast(GroupedModel, model)
    moments = grouped.local_moments(task.points, rows)
    nested: Nested = {i: moments[level.name]._asdict() for i, level in enumerate(grouped.levels)}
    return flattened(nested)


def local_draws(model: Model, rows: Shard, streams: Streams, task: ShardTask) -> Arrays:
    """Draws of the parameters of some groups, by the number of their level."""
    grouped = cast(GroupedModel, model)
    uniforms = LocalUniforms.of(grouped, streams, task)
    draws = grouped.local_draws(task.points, rows, task.given["groups"], uniforms)
    levels = [draws[level.name] for level in grouped.levels]
    nested: Nested = {i: {"groups": codes, "draws": z} for i, (codes, z) in enumerate(levels)}
    return flattened(nested)


@dataclass(frozen=True, eq=False)
class LocalUniforms:
    """Uniform numbers for draws of local parameters, found by shard, level, group and draw.

    They depend neither on who asks, nor on which groups and draws are asked for together. It is a
    `quorate.models.groups.levels.Uniforms`.

    Parameters
    ----------
    levels
        Names of the levels.
    numbers
        The draws that numbers are wanted for, (n_points,).
    """

    streams: Streams
    shard: int
    levels: tuple[str, ...]
    numbers: IntArray

    @classmethod
    def of(cls, model: GroupedModel, streams: Streams, task: ShardTask) -> "LocalUniforms":
        """The numbers for a task."""
        (shard,) = task.shards
        return cls(streams, shard, tuple(level.name for level in model.levels), task.numbers)

    def __call__(self, level: str, groups: IntArray, n: int) -> Array:
        """`n` numbers for each draw and group, (n_points, m, n)."""
        lane = self.shard * len(self.levels) + self.levels.index(level)
        lanes = [(int(group), lane) for group in groups]
        found = [
            self.streams.uniforms(Purpose.LOCAL, lanes, int(run[0]), len(run), n)
            for run in _consecutive(self.numbers)
        ]
        return np.swapaxes(np.concatenate(found, axis=1), 0, 1)


def _consecutive(numbers: IntArray) -> list[IntArray]:
    """Numbers cut into runs of consecutive ones."""
    return np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
