"""Draws for the figure `exact`, made or remembered so that many runs in virtual time are cheap."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quorate._types import Array
from quorate.engines.virtual.passes import Answering
from quorate.models.subposterior import Target, log_densities
from quorate.numerics.importance import Weighted, student_points
from quorate.numerics.linalg import spd_inverse
from quorate.numerics.streams import Lane, Purpose, Streams
from quorate.passes.ensemble import log_base
from quorate.passes.numbers import DEGREES
from quorate.protocol.messages import Answer, Evaluate, Question, Survey, Surveyed, Values
from quorate.samplers.base import Base
from quorate.samplers.laplace import laplace_fit
from quorate.samplers.sobol import shifted_points


@dataclass(frozen=True, eq=False)
class WeightedShards:
    """Subposteriors for `quorate.engines.virtual.engine.Cluster`: many weighted points of each.

    Draws are independent, so merges see no autocorrelation.
    """

    shards: Sequence[Weighted]

    @classmethod
    def of(cls, targets: Sequence[Target], n_points: int = 2**14) -> "WeightedShards":
        """Weigh points of a Student-t around the mode of each subposterior."""
        return cls([_weighed(shard, target, n_points) for shard, target in enumerate(targets)])

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return int(self.shards[0].points.shape[1])

    def draws(self, streams: Streams, lanes: Sequence[Lane], first: int, n: int) -> Array:
        """Draws `first` to `first + n - 1` of each (shard, chain), shape (len(lanes), n, d)."""
        uniforms = streams.uniforms(Purpose.DRAWS, lanes, first, n, 1)[..., 0]
        made = zip(lanes, uniforms, strict=True)
        return np.array([self._chosen(shard, row) for (shard, _), row in made])

    def _chosen(self, shard: int, uniforms: Array) -> Array:
        which = np.searchsorted(self._totals[shard][:-1], uniforms)
        return np.asarray(self.shards[shard].points[which])

    @cached_property
    def _totals(self) -> list[Array]:
        return [np.cumsum(shard.weights) for shard in self.shards]

    def merged_mean(self) -> Array:
        """Mean of the consensus merge of infinitely many draws, shape (d,)."""
        precisions = spd_inverse(np.array([shard.covariance for shard in self.shards]))
        means = np.array([shard.mean(shard.points) for shard in self.shards])
        pulls = np.einsum("sij,sj->i", precisions, means)
        return np.asarray(np.linalg.solve(precisions.sum(axis=0), pulls))


def _weighed(shard: int, target: Target, n_points: int) -> Weighted:
    base = Base.around(laplace_fit(target))
    shift = Streams(0).uniforms(Purpose.POINTS, [(shard, 0)], 0, 1, target.dim + 1)[0, 0]
    uniforms = shifted_points(n_points, shift)
    z = student_points(uniforms[:, :-1], uniforms[:, -1], DEGREES)
    points = base.points(z)
    return Weighted.of(points, log_densities(target, points) - log_base(z))


class Remembering:
    """Answers tasks as a worker does, and computes each answer only once.

    All runs of a seed ask the same questions. Times and placement change only who answers them.
    Each task must be for a single shard.
    """

    def __init__(self, worker: Answering) -> None:
        self._worker = worker
        self._known: dict[tuple[object, ...], Answer] = {}

    def forget_values(self) -> None:
        """Forget all but surveys, before runs of another seed."""
        known = self._known.items()
        self._known = {key: answer for key, answer in known if isinstance(answer, Surveyed)}

    def answers(self, task: Question) -> Iterator[Answer]:
        key = task.shards, *task[2:5]  # lane, question and first point, if it is no survey
        if key not in self._known:
            self._known[key] = next(self._worker.answers(task))
        known = self._known[key]
        if isinstance(known, Values) and isinstance(task, Evaluate):
            yield known._replace(task=task._replace(points=task.points[:0]))
        elif isinstance(known, Surveyed) and isinstance(task, Survey):
            yield known._replace(task=task)
