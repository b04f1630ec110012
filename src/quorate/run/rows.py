"""Rows of the journal for the commands of a run that draws from shards."""

from collections.abc import Mapping

from quorate.journal import BlockRecord, Record, TaskGiven, WorkerEvent
from quorate.protocol.messages import Block, Command, Keep, Note, Task


def row_of(now: float, command: Command, attempts: Mapping[int, int]) -> Record | None:
    """The row for a command, if it has one; `attempts` are restarts so far, by worker."""
    if isinstance(command, Keep) and isinstance(command.answer, Block):
        task, block = command.answer.task, command.answer
        return BlockRecord(
            now,
            task.worker,
            attempts[task.worker],
            task.shards,
            task.chain,
            block.first_draw,
            block.payload,
            block.extras,
            block.state,
        )
    if isinstance(command, Note):
        worker, what, details = command
        return WorkerEvent(now, worker, attempts[worker], what, details)
    if isinstance(command, Task):
        worker, shards, chain, first_draw, n_draws, start = command
        attempt = attempts[worker]
        told = start is not None
        return TaskGiven(now, worker, attempt, shards, chain, first_draw, n_draws, told)
    return None
