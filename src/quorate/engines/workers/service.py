"""Runs workers in a process or actor, and converts messages to frames and back."""

import os
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from quorate._warnings import warn
from quorate.engines.devices import CPU, use
from quorate.engines.faults import Handicap
from quorate.engines.frames import Frame
from quorate.engines.packing import packed, unpacked
from quorate.engines.workers.delivered import Delivered
from quorate.engines.workers.in_place import RowsInPlace
from quorate.engines.workers.pulse import Pulse
from quorate.engines.workers.worker import Job, ShardSource, Worker
from quorate.errors import QuorateWarning, warning_named
from quorate.models.protocol import for_workers, on_device
from quorate.numerics.named_arrays import Nested, flattened, part
from quorate.protocol.messages import (
    Answer,
    Block,
    Doing,
    Evaluate,
    Event,
    ShardFound,
    ShardTask,
    Survey,
    Surveyed,
    Task,
    Values,
    Work,
    WorkerFailed,
    WorkerJoined,
    WorkerLost,
)

_POOLS = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM")
_ONE_THREAD = {f"{pool}_NUM_THREADS": "1" for pool in _POOLS}
_XLA_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
_STATE, _EXTRAS = "state", "extras"
_NO_POINTS = np.empty((0, 0))  # they are not sent back
_NO_NUMBERS = np.empty(0, dtype=np.int64)
_ARRAYS_OF_EVALUATE = ("points", "scales", "coefficients", "recipes")
_GIVEN = "given"
_ARRAYS = {*_ARRAYS_OF_EVALUATE, "numbers", _GIVEN}
_PLAIN = {of: [f for f in of._fields if f not in _ARRAYS] for of in (Evaluate, ShardTask)}

# ---------------------------------------------------------------- frames


def packed_job(job: Job) -> bytes:
    """The job as bytes."""
    lighter = replace(job, model=for_workers(job.model))
    return packed({name: getattr(lighter, name) for name in Job.__dataclass_fields__})


def setup_frame(job: Job, handicaps: Mapping[int, Handicap]) -> Frame:
    """The first frame for a process."""
    fields = {"handicaps": {worker: asdict(given) for worker, given in handicaps.items()}}
    return Frame("setup", fields, {"job": np.frombuffer(packed_job(job), dtype=np.uint8)})


def device_frame(device: str, n_threads: int = 1) -> Frame:
    """What a process is to compute on; it comes before the setup."""
    return Frame("device", {"device": device, "n_threads": n_threads})


def task_frame(task: Work) -> Frame:
    """A task for a worker, with its arrays: states to start from, or points."""
    if isinstance(task, Task):
        return Frame("task", task._replace(start=None)._asdict(), dict(task.start or {}))
    if isinstance(task, Survey):
        return Frame("survey", task._asdict())
    if isinstance(task, ShardTask):
        nested: Nested = {"points": task.points, "numbers": task.numbers, _GIVEN: task.given}
        return Frame("shard_task", _plain_fields(task), flattened(nested))
    arrays = {name: getattr(task, name) for name in _ARRAYS_OF_EVALUATE}
    sent = {name: array for name, array in arrays.items() if array is not None}
    return Frame("evaluate", _plain_fields(task), sent)


def task_of(frame: Frame) -> Work:
    """The task that `task_frame` made a frame of."""
    fields = {**frame.fields, "shards": tuple(frame.fields["shards"])}
    if frame.kind == "evaluate":
        return Evaluate(**{**fields, **frame.arrays})
    if frame.kind == "shard_task":
        fields |= {name: frame.arrays[name] for name in ("points", "numbers")}
        return ShardTask(**fields, given=part(frame.arrays, _GIVEN))
    if frame.kind == "survey":
        return Survey(**fields)
    return Task(**{**fields, "start": frame.arrays or None})


def answer_frame(answer: Answer) -> Frame:
    """A block, values, or what a survey or a task after a run found, for the coordinator."""
    if isinstance(answer, ShardFound):
        return Frame("shard_found", _plain_fields(answer.task), dict(answer.found))
    if isinstance(answer, Surveyed):
        return Frame("surveyed", answer.task._asdict(), dict(answer.found))
    if isinstance(answer, Values):
        more = {} if answer.gradients is None else {"gradients": answer.gradients}
        return Frame("values", _plain_fields(answer.task), {"values": answer.values, **more})
    sent: Nested = {"payload": answer.payload, _EXTRAS: answer.extras, _STATE: answer.state}
    fields = {"task": answer.task[:-1], "first_draw": answer.first_draw}
    return Frame("block", fields, flattened(sent))


def answer_of(frame: Frame) -> Answer:
    """What `answer_frame` made a frame of."""
    arrays = frame.arrays
    if frame.kind != "block":
        fields = {**frame.fields, "shards": tuple(frame.fields["shards"])}
        if frame.kind == "surveyed":
            return Surveyed(Survey(**fields), arrays)
        if frame.kind == "shard_found":
            task = ShardTask(**fields, points=_NO_POINTS, numbers=_NO_NUMBERS)
            return ShardFound(task, arrays)
        return Values(Evaluate(**fields, points=_NO_POINTS), **arrays)
    worker, shards, *rest = frame.fields["task"]
    return Block(
        Task(worker, tuple(shards), *rest),
        frame.fields["first_draw"],
        arrays["payload"],
        part(arrays, _EXTRAS),
        part(arrays, _STATE),
    )


def _plain_fields(task: Evaluate | ShardTask) -> dict[str, Any]:
    """The fields of a task that are no arrays."""
    return {name: getattr(task, name) for name in _PLAIN[type(task)]}


def beat_frame(doing: Doing) -> Frame:
    """A sign of life, for the coordinator."""
    return Frame("beat", doing._asdict())


def doing_of(frame: Frame) -> Doing:
    """What `beat_frame` made a frame of."""
    return Doing(**frame.fields)


def events_of(frame: Frame, workers: Sequence[int], node: str) -> list[Event]:
    """The events that a frame of a process or actor describes.

    `workers` live there. An error in their common setup concerns all of them. Workers of a `node`
    answer together.
    """
    if frame.kind in ("block", "values", "surveyed", "shard_found"):
        return [answer_of(frame)]
    if frame.kind == "ready":
        process = frame.fields.get("process")  # that a node with several has given the worker
        is_one_of_many = node and process is not None
        name = f"{node}, process {process}" if is_one_of_many else ""
        return [WorkerJoined(frame.fields["worker"], node, name)]
    if frame.kind == "lost":
        return [WorkerLost(**frame.fields)]
    at_work = frame.fields["worker"]  # None if they could not be set up
    concerned = workers if at_work is None else [at_work]
    return [WorkerFailed(**{**frame.fields, "worker": worker}) for worker in concerned]


class WarningsHeard:
    """Passes on warnings of workers: each kind of warning once for each shard."""

    def __init__(self) -> None:
        self._told: set[tuple[int | None, str]] = set()

    def tell(self, worker: int | None, category: str, message: str, shard: int | None) -> None:
        """Warn with the fields of a frame of kind `warning`."""
        if (shard, category) not in self._told:
            self._told.add((shard, category))
            where = "" if shard is None else f"shard {shard}, worker {worker}: "
            warn(where + message, warning_named(category))


def environment() -> dict[str, str]:
    """Environment of workers: our own module path, and one thread for each library."""
    xla = f"{os.environ.get('XLA_FLAGS', '')} {_XLA_ONE_THREAD}".strip()
    return {**_ONE_THREAD, "XLA_FLAGS": xla, "PYTHONPATH": os.pathsep.join(sys.path)}


# ---------------------------------------------------------------- where workers live


class Service:
    """Takes frames in, sends others, and takes turns between the workers that live here.

    Attributes
    ----------
    pulse
        What it is doing, for another thread to tell.
    delivered
        Shards whose rows were sent here.

    Parameters
    ----------
    say
        Called with every frame for the coordinator.
    open_shards
        Opens the shards in the folder that the job names.
    """

    def __init__(
        self, say: Callable[[Frame], None], open_shards: Callable[[str], ShardSource]
    ) -> None:
        self.pulse = Pulse()
        self.delivered = Delivered()
        self._say = say
        self._open_shards = open_shards
        self._worker: Worker | None = None
        self._in_place: RowsInPlace | None = None
        self._at_work: int | None = None
        self._device, self._n_threads = CPU, 1
        self._to_do: dict[int, deque[Iterator[Answer]]] = {}

    @property
    def has_work(self) -> bool:
        """Whether any task is left."""
        return any(self._to_do.values())

    def take(self, frame: Frame) -> None:
        """Set up the process, add a worker, or take a task."""
        if frame.kind == "device":
            self._device = frame.fields["device"]
            self._n_threads = frame.fields["n_threads"]
            return
        if frame.kind == "lacking":  # the folder is not here
            self._open_shards = lambda _: self.delivered
            return
        if frame.kind == "rows":
            self.delivered.shards[frame.fields["number"]] = frame.arrays
            return
        if frame.kind == "setup":
            with self.pulse.doing("setup"):
                self._worker = self._set_up(frame)
            return
        assert self._worker is not None
        if frame.kind == "host":
            self._worker.join(**frame.fields)
            self._to_do[frame.fields["worker"]] = deque()
            self._say(Frame("ready", {"worker": frame.fields["worker"]}))
        else:
            task = task_of(frame)
            self._to_do[task.worker].append(self._worker.answers(task))

    def turn(self) -> None:
        """Send one answer of every worker that has work."""
        for at_work, tasks in self._to_do.items():
            self._at_work = at_work
            self._one_answer(tasks)

    def forget(self) -> None:
        """Remove what was copied of rows in place on this node."""
        if self._in_place is not None:
            self._in_place.forget()

    def tell_failure(self, error: Exception) -> None:
        """Report an error that user code has raised, or that refuses the model.

        What the system could not do, such as to read a file, is no refusal: it may work again.
        """
        cause = error.__cause__ if isinstance(error.__cause__, OSError | MemoryError) else error
        fields = {
            "worker": self._at_work,
            "shard": self._shard,
            "kind": type(cause).__name__,
            "message": str(error),
            "traceback": traceback.format_exc(),
        }
        self._say(Frame("failed", fields))

    def _set_up(self, frame: Frame) -> Worker:
        self._tell_warnings()
        is_on_device = use(self._device)  # before models import JAX
        job = Job(**unpacked(frame.arrays["job"].tobytes()))
        if is_on_device:
            job = replace(job, model=on_device(job.model), is_on_device=True)
        handicaps = {int(k): Handicap(**given) for k, given in frame.fields["handicaps"].items()}
        return Worker(job, handicaps, self._source(job), self.pulse, self._n_threads)

    @property
    def _shard(self) -> int | None:
        """The shard at work on, for errors and warnings."""
        return None if self._worker is None else self._worker.chains.at_work_on

    def _source(self, job: Job) -> ShardSource:
        if job.placed is None:
            return self._open_shards(job.shard_folder)
        self._in_place = RowsInPlace(job.placed, self.pulse)
        return self._in_place

    def _one_answer(self, tasks: deque[Iterator[Answer]]) -> None:
        while tasks:
            answer = next(tasks[0], None)
            if answer is not None:
                self._say(answer_frame(answer))
                return
            tasks.popleft()

    def _tell_warnings(self) -> None:
        """Send our own warnings to the coordinator; others go to the log."""
        to_log = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, QuorateWarning):
                fields = {
                    "worker": self._at_work,
                    "shard": self._shard,
                    "category": category.__name__,
                    "message": str(message),
                }
                self._say(Frame("warning", fields))
            else:
                to_log(message, category, *where, **more)

        warnings.showwarning = show
        warnings.simplefilter("always", QuorateWarning)
