"""Work on single rows at a worker, after a run: log-likelihoods, criteria and responses."""

from dataclasses import dataclass
from typing import cast

import numpy as np

from quorate._types import Array, IntArray
from quorate.engines.workers.local import LocalUniforms
from quorate.errors import BadInputError
from quorate.models.groups.levels import GroupedModel, levels_of
from quorate.models.protocol import Model, Shard
from quorate.models.rows import GroupedRowModel, RowModel, RowsAt, Seeds, some_of
from quorate.numerics.criteria import criteria
from quorate.numerics.named_arrays import Nested, flattened
from quorate.numerics.streams import Purpose, Streams
from quorate.protocol.messages import Arrays, ShardTask
from quorate.protocol.row_questions import DRAWS, ITEMS, OBSERVED, VALUES

_POINTS = 128  # at a time, where parameters of groups are drawn
_WIDTH = 4  # uniforms that are found together
_FIRST_PIECE = 1 << 32  # lanes of a shard


def log_likelihood_by_row(model: Model, rows: Shard, streams: Streams, task: ShardTask) -> Arrays:
    """Log-likelihoods of some rows at all points."""
    values = []
    for part in _parts(model, task):
        places, some = _rows(model, rows, streams, part)
        values.append(some.log_likelihoods())
    return {ITEMS: places, VALUES: _told(np.concatenate(values), task)}


def log_likelihood_by_group(model: Model, rows: Shard, streams: Streams, task: ShardTask) -> Arrays:
    """Integrated log-likelihoods of some groups at all points."""
    groups = _groups(rows, task)
    values = cast(GroupedRowModel, model).group_log_likelihoods(task.points, rows, groups)
    return {ITEMS: groups, VALUES: _told(values, task)}


def criteria_by_row(model: Model, rows: Shard, streams: Streams, task: ShardTask) -> Arrays:
    """Criteria of some rows, from their log-likelihoods at all points."""
    return _criteria(log_likelihood_by_row(model, rows, streams, task), task)


def criteria_by_group(model: Model, rows: Shard, streams: Streams, task: ShardTask) -> Arrays:
    """Criteria of some groups, from their log-likelihoods at all points."""
    return _criteria(log_likelihood_by_group(model, rows, streams, task), task)


def responses_by_row(model: Model, rows: Shard, streams: Streams, task: ShardTask) -> Arrays:
    """Draws of the responses of some rows, one for each point, and what was observed."""
    own, draws = Streams(int(task.given["seed"])), list[dict[str, Array]]()
    for part in _parts(model, task):
        places, some = _rows(model, rows, streams, part)
        draws.append(some.responses(_Random(own, part)))
    observed = some.observed()
    found: Nested = {
        DRAWS: {name: np.concatenate([part[name] for part in draws]) for name in draws[0]},
        OBSERVED: {name: observed[name] for name in draws[0] if name in observed},
    }
    return {ITEMS: places, **flattened(found)}


def _criteria(found: Arrays, task: ShardTask) -> Arrays:
    of_items = criteria(found[VALUES], float(task.given["r_eff"]))
    return {ITEMS: found[ITEMS], **of_items._asdict()}


def _parts(model: Model, task: ShardTask) -> list[ShardTask]:
    """The task at some points after others: draws of parameters of groups take much memory."""
    n_points = len(task.points)
    block = _POINTS if levels_of(model) else max(n_points, 1)
    cuts = [slice(first, first + block) for first in range(0, n_points, block)]
    return [task._replace(points=task.points[at], numbers=task.numbers[at]) for at in cuts]


def _rows(model: Model, rows: Shard, streams: Streams, task: ShardTask) -> tuple[IntArray, RowsAt]:
    """Places of the rows of a piece of work, and the rows."""
    if not levels_of(model):
        n_rows = len(next(iter(rows.values())))
        places = np.array_split(np.arange(n_rows), task.n_pieces)[task.piece]
        some = some_of(rows, slice(places[0], places[-1] + 1))
        return places, cast(RowModel, model).rows_at(task.points, some)
    groups = _groups(rows, task)
    uniforms = LocalUniforms.of(cast(GroupedModel, model), streams, task)
    of_prior = bool(task.given.get("of_prior", np.array(False)))
    grouped = cast(GroupedRowModel, model)
    return grouped.rows_of_groups(task.points, rows, groups, uniforms, of_prior)


def _groups(rows: Shard, task: ShardTask) -> IntArray:
    """Codes of the groups of a piece of work."""
    codes = np.unique(rows["group"]).astype(np.int64)
    return np.array_split(codes, task.n_pieces)[task.piece]


def _told(values: Array, task: ShardTask) -> Array:
    """Log-likelihoods that are numbers."""
    missing = np.isnan(values)
    if missing.any():
        point, item = np.argwhere(missing)[0]
        raise BadInputError(
            f"The log-likelihood of item {item} is not a number at draw {task.numbers[point]}. "
            "Check the model there."
        )
    return np.asarray(values, dtype=np.float64)


@dataclass(frozen=True)
class _Random:
    """Random numbers of a piece of work, found by seed, shard, piece and the number of a draw."""

    streams: Streams
    task: ShardTask

    def uniforms(self, n_rows: int) -> Array:
        numbers = self._numbers(Purpose.RESPONSES, -(-n_rows // _WIDTH))
        return numbers.reshape(len(numbers), -1)[:, :n_rows]

    def seeds(self) -> Seeds:
        numbers = self._numbers(Purpose.RESPONSE_SEEDS, 1)[:, 0, :2]
        return np.floor(numbers * 2.0**32).astype(np.uint32)

    def _numbers(self, purpose: Purpose, n: int) -> Array:
        (shard,) = self.task.shards
        lanes = [(int(draw), shard * _FIRST_PIECE + self.task.piece) for draw in self.task.numbers]
        return self.streams.uniforms(purpose, lanes, 0, n, _WIDTH)
