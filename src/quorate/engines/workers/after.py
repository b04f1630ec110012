"""Work after a run at a worker: what a task asks for, and the function that computes it."""

from collections.abc import Callable

from quorate.engines.workers.local import local_draws, local_moments
from quorate.engines.workers.row_work import (
    criteria_by_group,
    criteria_by_row,
    log_likelihood_by_group,
    log_likelihood_by_row,
    responses_by_row,
)
from quorate.models.protocol import Model, Shard
from quorate.numerics.streams import Streams
from quorate.protocol.messages import Arrays, ShardTask

Work = Callable[[Model, Shard, Streams, ShardTask], Arrays]
WORK: dict[str, Work] = {
    "moments": local_moments,
    "draws": local_draws,
    "log_likelihood_by_row": log_likelihood_by_row,
    "log_likelihood_by_group": log_likelihood_by_group,
    "criteria_by_row": criteria_by_row,
    "criteria_by_group": criteria_by_group,
    "responses_by_row": responses_by_row,
}


def computed(model: Model, rows: Shard, streams: Streams, task: ShardTask) -> Arrays:
    """The arrays that a task asks for, of the rows of its shard."""
    return WORK[task.what](model, rows, streams, task)
