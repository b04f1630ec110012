"""Draws for the figure `exact`, made or remembered so that many runs in virtual time are cheap."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from quorate._types import Array
from quorate.engines.virtual_passes import Answering
from quorate.models.subposterior import Target, log_densities, log_densities_and_gradients
from quorate.numerics.streams import Lane, Purpose, Streams
from quorate.passes.inquiry import Inquiry
from quorate.protocol.messages import Answer, Evaluate, Survey, Surveyed, Values
from quorate.samplers.laplace import laplace_fit


@dataclass(frozen=True, eq=False)
class ShardPools:
    """Subposteriors for `quorate.engines.virtual.Cluster`: many draws of each, made beforehand.

    A chain takes independent draws of the pool of its shard, the same in every run with the same
    streams. So merges see no autocorrelation. `pools` is (n_shards, n, d).
    """

    pools: Array

    @property
    def dim(self) -> int:
        """d."""
        return int(self.pools.shape[-1])

    def draws(self, streams: Streams, lanes: Sequence[Lane], first: int, n: int) -> Array:
        """Draws `first` to `first + n - 1` of each (shard, chain), shape (len(lanes), n, d)."""
        uniforms = streams.uniforms(Purpose.DRAWS, lanes, first, n, 1)[..., 0]
        which = (uniforms * self.pools.shape[1]).astype(np.int64)
        shards = np.array([shard for shard, _ in lanes])
        return np.asarray(self.pools[shards[:, None], which])

    def merged_mean(self) -> Array:
        """Mean of a consensus merge of all draws of the pools: where merges of draws end, (d,)."""
        precisions = np.array([np.linalg.inv(np.cov(pool.T)) for pool in self.pools])
        pulls = np.einsum("sij,sj->i", precisions, self.pools.mean(axis=1))
        return np.asarray(np.linalg.solve(precisions.sum(axis=0), pulls))


def draws_of(target: Target, n_draws: int, seed: int) -> Array:
    """Draws of one subposterior by an ensemble of elliptical slice samplers, (n_draws, d)."""
    model, fit = target.model, laplace_fit(target)
    inquiry = Inquiry(model.initial(), model.names, n_draws, seed, has_gradient=True)
    inquiry.begin({0: {"mode": fit.mode, "lower": fit.lower}})
    while inquiry.open:
        asked = next(iter(inquiry.open.values()))
        if asked.scales is None:
            inquiry.take(asked.lane, log_densities(target, asked.points))
        else:
            inquiry.take(asked.lane, *log_densities_and_gradients(target, asked.points))
    return inquiry.draws()


class Remembering:
    """Answers tasks as a worker does, and computes each answer only once.

    Runs of one seed ask the same questions, whatever their times and whoever holds what, as long as
    a worker answers for one shard at a time.
    """

    def __init__(self, worker: Answering) -> None:
        self._worker = worker
        self._known: dict[tuple[object, ...], Answer] = {}

    def answers(self, task: Evaluate | Survey) -> Iterator[Answer]:
        key = task.shards, *task[2:5]  # lane, question and first point, if it is no survey
        if key not in self._known:
            self._known[key] = next(self._worker.answers(task))
        known = self._known[key]
        if isinstance(known, Values) and isinstance(task, Evaluate):
            yield known._replace(task=task._replace(points=task.points[:0]))
        elif isinstance(known, Surveyed) and isinstance(task, Survey):
            yield known._replace(task=task)
