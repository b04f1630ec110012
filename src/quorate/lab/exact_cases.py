"""The two posteriors of the figure `exact`, cut into eight shards, with their true moments."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
from scipy.special import polygamma

from quorate._types import Array
from quorate.data.partition import shuffled
from quorate.models import logistic
from quorate.models.protocol import BatchedDifferentiableModel, Shard
from quorate.models.subposterior import Target

N_SHARDS = 8

# Of `rare`: rows of each group in a shard, and how many of them have the outcome
_ROWS = 50
_EVENTS = (2, 3, 4, 5)
# Moments of `wells`, by importance sampling from a Student-t with 15 degrees of freedom around the
# mode of all rows, at two scramblings of 2¹⁷ Sobol' points. The two differ by 0.0005 sds at most.
_WELLS_MEAN = (0.35760, -0.90741, 0.49797, 0.18608, -0.11806, 0.32584, 0.07264)
_WELLS_SD = (0.04035, 0.10758, 0.04314, 0.03927, 0.10411, 0.10714, 0.04396)


@dataclass(frozen=True, eq=False)
class Case:
    """A posterior: a model and its shards, and the true `mean` and `sd` of its coordinates, (d,).

    `name` is as files call it, `title` as the figure does.
    """

    name: str
    title: str
    model: BatchedDifferentiableModel
    shards: Sequence[Shard]
    mean: Array
    sd: Array

    def shard(self, number: int) -> Shard:
        """The rows of a shard."""
        return self.shards[number]

    def target(self, shard: int) -> Target:
        """The subposterior of a shard."""
        return Target(self.model, self.shards[shard], len(self.shards))

    def error(self, means: Array) -> Array:
        """Largest error over the coordinates of `means` (..., d), in posterior sds: (...)."""
        return np.asarray(np.abs((means - self.mean) / self.sd).max(axis=-1))


def rare(events: Sequence[int] = _EVENTS) -> Case:
    """A rare outcome in four groups: a logit for each, under a flat prior.

    Rows are stratified by outcome, so every shard has as many `events` of a group as any other. The
    logit of a rare event has a long left tail in a shard. In each and in all it is that of a beta
    variable.
    """
    n_groups = len(events)
    groups = np.repeat(np.arange(n_groups), _ROWS)
    happened = np.concatenate([np.arange(_ROWS) < n for n in events])
    shard = {"X": np.eye(n_groups)[groups], "y": happened.astype(np.float64)}
    all_events = N_SHARDS * np.array(events, dtype=np.float64)
    others = N_SHARDS * _ROWS - all_events
    mean = polygamma(0, all_events) - polygamma(0, others)
    sd = np.sqrt(polygamma(1, all_events) + polygamma(1, others))
    title = "rare outcomes: 1,600 rows, 4 groups"
    return Case("rare", title, logistic(n_groups, "flat"), [shard] * N_SHARDS, mean, sd)


def wells() -> Case:
    """Who changed to another well: logistic regression, 3,020 rows, flat prior (Gelman & Hill).

    Distance, arsenic and education, centred, and their products. Rows are dealt at random.
    """
    with (resources.files("quorate.lab") / "data" / "wells.npz").open("rb") as file:
        data = np.load(file)
        columns, switched = data["columns"], data["switched"].astype(np.float64)
    distance, arsenic, education = columns.T
    products = (distance * arsenic, distance * education, arsenic * education)
    x = np.column_stack([np.ones(len(columns)), columns, *products])
    owners = shuffled(len(x), N_SHARDS, seed=0)
    shards = [{"X": x[owners == s], "y": switched[owners == s]} for s in range(N_SHARDS)]
    title = "wells: 3,020 rows, 7 coefficients"
    moments = np.array(_WELLS_MEAN), np.array(_WELLS_SD)
    return Case("wells", title, logistic(7, "flat"), shards, *moments)


def cases() -> list[Case]:
    """The two of the figure."""
    return [rare(), wells()]
