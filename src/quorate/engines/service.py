"""What runs in a process of the process engine, and the frames that go to and fro.

It ends when its input does, so it never outlives its coordinator.
"""

import os
import queue
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, BinaryIO

import numpy as np

from quorate.errors import QuorateWarning
from quorate.frames import Frame, read_frame, write_frame
from quorate.messages import Block, Task
from quorate.packing import packed, unpacked
from quorate.worker import Handicap, Job, Worker

_STATE, _EXTRA = "state/", "extra/"


def packed_job(job: Job) -> bytes:
    """The job, as workers unpack it."""
    return packed({name: getattr(job, name) for name in Job.__dataclass_fields__})


def setup_frame(job: Job, handicaps: Mapping[int, Handicap]) -> Frame:
    """The first frame that a process is sent."""
    fields = {"handicaps": {worker: asdict(given) for worker, given in handicaps.items()}}
    return Frame("setup", fields, {"job": np.frombuffer(packed_job(job), dtype=np.uint8)})


def task_frame(task: Task) -> Frame:
    """A task for a worker, with the states to start from."""
    return Frame("task", task._replace(start=None)._asdict(), dict(task.start or {}))


def block_frame(block: Block) -> Frame:
    """A block for the coordinator."""
    arrays = {"payload": block.payload}
    arrays |= {_EXTRA + name: array for name, array in block.extras.items()}
    arrays |= {_STATE + name: array for name, array in block.state.items()}
    fields = {"task": block.task[:-1], "first_draw": block.first_draw}
    return Frame("block", fields, arrays)


def block_of(frame: Frame) -> Block:
    """What `block_frame` made a frame of."""
    worker, shards, *rest = frame.fields["task"]
    arrays = {"": {}, _STATE: {}, _EXTRA: {}}  # type: dict[str, dict[str, Any]]
    for name, array in frame.arrays.items():
        where, slash, inner = name.partition("/")
        arrays[where + slash if slash else ""][inner or name] = array
    task = Task(worker, tuple(shards), *rest)
    payload, extras, state = arrays[""]["payload"], arrays[_EXTRA], arrays[_STATE]
    return Block(task, frame.fields["first_draw"], payload, extras, state)


def main() -> None:
    """Serve tasks until the input ends."""
    commands, replies = _take_over_pipes()
    frames: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(commands, frames), daemon=True).start()
    with suppress(BrokenPipeError):
        _Service(frames, replies).run()
    os._exit(0)


class _Service:
    """Takes frames in, and turns between the workers that live here, block by block."""

    def __init__(self, frames: "queue.SimpleQueue[Frame]", replies: BinaryIO) -> None:
        self._frames = frames
        self._replies = replies
        self._worker: Worker | None = None
        self._at_work: int | None = None
        self._to_do: dict[int, deque[Iterator[Block]]] = {}

    def run(self) -> None:
        """Until the input ends, or user code raises."""
        try:
            worker = self._set_up(self._frames.get())
            while True:
                self._listen(worker)
                for at_work, tasks in self._to_do.items():
                    self._at_work = at_work
                    self._one_block(tasks)
        except BrokenPipeError:
            raise
        except Exception as error:  # the user's code may raise anything: it is told, not hidden
            self._tell_failure(error)

    def _set_up(self, frame: Frame) -> Worker:
        job = Job(**unpacked(frame.arrays["job"].tobytes()))
        handicaps = {int(k): Handicap(**given) for k, given in frame.fields["handicaps"].items()}
        self._worker = Worker(job, handicaps)
        self._tell_warnings(self._worker)
        return self._worker

    def _listen(self, worker: Worker) -> None:
        """Take in all frames that are there; wait for one where there is nothing to do."""
        while not any(self._to_do.values()) or not self._frames.empty():
            frame = self._frames.get()
            if frame.kind == "host":
                worker.join(**frame.fields)
                self._to_do[frame.fields["worker"]] = deque()
                write_frame(self._replies, Frame("ready", {"worker": frame.fields["worker"]}))
            else:
                fields = {**frame.fields, "shards": tuple(frame.fields["shards"])}
                task = Task(**{**fields, "start": frame.arrays or None})
                self._to_do[task.worker].append(worker.blocks(task))

    def _one_block(self, tasks: deque[Iterator[Block]]) -> None:
        while tasks:
            block = next(tasks[0], None)
            if block is not None:
                write_frame(self._replies, block_frame(block))
                return
            tasks.popleft()

    def _tell_failure(self, error: Exception) -> None:
        fields = {
            "worker": self._at_work,
            "shard": None if self._worker is None else self._worker.chains.at_work_on,
            "kind": type(error).__name__,
            "message": str(error),
            "traceback": traceback.format_exc(),
        }
        write_frame(self._replies, Frame("failed", fields))

    def _tell_warnings(self, worker: Worker) -> None:
        """Send our own warnings to the coordinator; others go to the log."""
        to_log = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, QuorateWarning):
                fields = {
                    "worker": self._at_work,
                    "shard": worker.chains.at_work_on,
                    "category": category.__name__,
                    "message": str(message),
                }
                write_frame(self._replies, Frame("warning", fields))
            else:
                to_log(message, category, *where, **more)

        warnings.showwarning = show
        warnings.simplefilter("always", QuorateWarning)


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
