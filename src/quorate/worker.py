"""A worker process: holds shards, draws from their subposteriors, and streams blocks.

Started by an engine that speaks `quorate.frames` over its standard
input and output. It ends when its input does, so it never outlives its coordinator.
"""

import os
import queue
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import numpy as np

from quorate._types import Array, CodedArray
from quorate.errors import BadInputError, QuorateWarning
from quorate.frames import Frame, read_frame, write_frame
from quorate.messages import Arrays, Block, Task
from quorate.model import Model
from quorate.sampler import Sampler, State
from quorate.scheme import WorkerSide
from quorate.shards import ShardSet
from quorate.streams import ChainStream, Purpose, Streams
from quorate.target import Target

_BLOCK_SECONDS = 0.1
_FIRST_BLOCK = 8


@dataclass(frozen=True)
class Handicap:
    """Delays put in on purpose, for demonstrations and tests.

    Every block takes `factor` times as long as it would, and `tail_index`, if given, draws another
    factor of mean 1 from a Pareto distribution for each block. A worker is dead after
    `dies_after` blocks, if that is given.
    """

    factor: float = 1.0
    tail_index: float | None = None
    dies_after: int | None = None

    def seconds(self, spent: float, uniform: float) -> float:
        """How long to wait after a block that took `spent`."""
        factor = self.factor
        if self.tail_index is not None:
            scale = (self.tail_index - 1) / self.tail_index
            factor *= scale * uniform ** (-1 / self.tail_index)
        return spent * max(factor - 1.0, 0.0)


@dataclass(frozen=True)
class Job:
    """All that a worker needs to know of a run; the same for every worker."""

    model: Model
    sampler: Sampler
    worker_side: WorkerSide
    shard_folder: str
    n_shards: int
    seed: int


class Chains:
    """The chains of the shards that one worker holds."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._shards = ShardSet.open(job.shard_folder)
        self.at_work_on: int | None = None  # a shard, for errors to name
        self._targets: dict[int, Target] = {}
        self._states: dict[tuple[int, int], State] = {}

    def draw(self, shard: int, chain: int, n: int) -> Array:
        """The next `n` draws of a chain, which is warmed up when it is first asked for."""
        self.at_work_on = shard
        target = self._target(shard)
        stream = ChainStream(Streams(self._job.seed), shard, chain)
        key = shard, chain
        if key not in self._states:
            self._states[key] = self._job.sampler.warm_up(target, stream)
        draws, self._states[key] = self._job.sampler.draw(target, self._states[key], stream, n)
        return draws

    def _target(self, shard: int) -> Target:
        if shard not in self._targets:
            rows = self._shards.shard(shard)
            self._targets[shard] = Target(self._job.model, rows, self._job.n_shards)
        return self._targets[shard]


class Worker:
    """Performs tasks block by block."""

    def __init__(self, job: Job, handicap: Handicap) -> None:
        self._job = job
        self._handicap = handicap
        self.chains = Chains(job)
        self._side_states: dict[tuple[int, ...], Arrays] = {}
        self._block_size = _FIRST_BLOCK
        self._n_blocks = 0

    def blocks(self, task: Task) -> Iterator[Block]:
        """The blocks of a task, each worth about a tenth of a second."""
        n_done = 0
        while n_done < task.n_draws:
            n = min(self._block_size, task.n_draws - n_done)
            start = time.perf_counter()
            payload, extras = self._payload(task, n)
            spent = time.perf_counter() - start
            self._wait(task.worker, spent)
            if n_done or task.first_draw:  # the very first block has the warm-up in it
                self._block_size = max(1, min(4 * n, int(n * _BLOCK_SECONDS / max(spent, 1e-6))))
            yield Block(task, task.first_draw + n_done, payload, extras)
            n_done += n

    def _payload(self, task: Task, n: int) -> tuple[CodedArray, Arrays]:
        draws = np.stack([self.chains.draw(shard, task.chain, n) for shard in task.shards])
        side, state = self._job.worker_side, self._side_states.get(task.shards)
        if state is None:
            state = side.start([None] * len(task.shards))
        processed, self._side_states[task.shards] = side.process(draws, state)
        return side.encode(task.worker, processed)

    def _wait(self, worker: int, spent: float) -> None:
        self._n_blocks += 1
        if self._n_blocks == self._handicap.dies_after:
            os._exit(137)
        streams = Streams(self._job.seed)
        uniform = streams.uniforms(Purpose.TIMES, [(worker, 0)], self._n_blocks, 1, 1)[0, 0, 0]
        time.sleep(self._handicap.seconds(spent, float(uniform)))


def main() -> None:
    """Serve tasks until the input ends."""
    commands, replies = _take_over_pipes()
    frames: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(commands, frames), daemon=True).start()
    try:
        _serve(frames, replies)
    except BrokenPipeError:
        os._exit(0)


def _serve(frames: "queue.SimpleQueue[Frame]", replies: BinaryIO) -> None:
    worker: Worker | None = None
    try:
        worker = _set_up(frames.get())
        _tell_warnings(worker, replies)
        write_frame(replies, Frame("ready"))
        while True:
            _perform(worker, frames.get(), replies)
    except BrokenPipeError:
        raise
    except Exception as error:  # the user's code may raise anything: it is told, not hidden
        fields = {
            "shard": None if worker is None else worker.chains.at_work_on,
            "kind": type(error).__name__,
            "message": str(error),
            "traceback": traceback.format_exc(),
        }
        write_frame(replies, Frame("failed", fields))


def _set_up(frame: Frame) -> Worker:
    import cloudpickle

    job = Job(**cloudpickle.loads(frame.arrays["job"].tobytes()))
    return Worker(job, Handicap(**frame.fields["handicap"]))


def _tell_warnings(worker: Worker, replies: BinaryIO) -> None:
    """Send our own warnings to the coordinator; others go to the log."""
    to_log = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, QuorateWarning):
            fields = {"category": category.__name__, "message": str(message)}
            write_frame(replies, Frame("warning", {**fields, "shard": worker.chains.at_work_on}))
        else:
            to_log(message, category, *where, **more)

    warnings.showwarning = show
    warnings.simplefilter("always", QuorateWarning)


def _perform(worker: Worker, frame: Frame, replies: BinaryIO) -> None:
    task = Task(**{**frame.fields, "shards": tuple(frame.fields["shards"])})
    for block in worker.blocks(task):
        fields = {"task": task._asdict(), "first_draw": block.first_draw}
        write_frame(replies, Frame("block", fields, {"payload": block.payload}))


def setup_frame(job: Job, handicap: Handicap) -> Frame:
    """The first frame that a worker is sent."""
    import cloudpickle

    fields = {name: getattr(job, name) for name in Job.__dataclass_fields__}
    try:
        packed = np.frombuffer(cloudpickle.dumps(fields), dtype=np.uint8)
    except Exception as error:
        way_out = f"it cannot be sent to workers ({error}): it must be picklable"
        raise BadInputError("model", type(job.model).__name__, way_out) from None
    return Frame("setup", {"handicap": asdict(handicap)}, {"job": packed})


def _listen(commands: BinaryIO, frames: "queue.SimpleQueue[Frame]") -> None:
    """Pass frames on; at the end of the input the coordinator is gone, and so are we."""
    try:
        while (frame := read_frame(commands)) is not None:
            frames.put(frame)
    finally:  # also where a frame makes no sense: nobody would ever speak to us again
        os._exit(0)


def _take_over_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Our pipes, out of reach of `print` in user code, which goes to standard error from now on."""
    commands, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return commands, replies
