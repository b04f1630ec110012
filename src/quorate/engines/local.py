"""Local parameters at a worker: what a model is asked for, and the random numbers it gets."""

from dataclasses import dataclass
from typing import cast

import numpy as np

from quorate._types import Array, IntArray
from quorate.models.groups.levels import GroupedModel
from quorate.models.protocol import Model, Shard
from quorate.numerics.named_arrays import Nested, flattened
from quorate.numerics.streams import Purpose, Streams
from quorate.protocol.messages import Arrays, Local


def local_parameters(model: Model, rows: Shard, streams: Streams, task: Local) -> Arrays:
    """The arrays that a task asks for, by the number of their level."""
    grouped = cast(GroupedModel, model)
    names = [level.name for level in grouped.levels]
    nested: Nested
    if task.groups is None:
        moments = grouped.local_moments(task.points, rows)
        nested = {i: moments[name]._asdict() for i, name in enumerate(names)}
    else:
        (shard,) = task.shards
        uniforms = LocalUniforms(streams, shard, tuple(names), task.numbers)
        draws = grouped.local_draws(task.points, rows, task.groups, uniforms)
        levels = [draws[name] for name in names]
        nested = {i: {"groups": codes, "draws": z} for i, (codes, z) in enumerate(levels)}
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
