"""Workers as processes of this machine, started afresh, one pipe each way.

A reader thread for each worker takes its frames in, so that a worker that stops in the middle of
one holds up nobody else. Workers are started in a session of their own: Ctrl-C reaches only the
coordinator, and they end when their input does.
"""

import os
import queue
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from quorate.coordinator import Coordinator
from quorate.engines.timeline import Timeline
from quorate.errors import WorkerFailedError, warning_named
from quorate.frames import Frame, read_frame, write_frame
from quorate.messages import (
    Block,
    DeadlinePassed,
    Event,
    Release,
    Task,
    WorkerJoined,
    WorkerLost,
)
from quorate.worker import Handicap, Job, setup_frame

_POOLS = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM")
_ONE_THREAD = {f"{pool}_NUM_THREADS": "1" for pool in _POOLS} | {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
}
_GRACE = 2.0  # seconds that workers have to end by themselves


class ProcessEngine:
    """One process for each worker.

    Parameters
    ----------
    job
        What is to be drawn, the same for all.
    n_workers
        K. There may be more of them than cores.
    logs
        Folder for what workers print, one file each.
    handicaps
        Delays put in on purpose, by worker.
    """

    def __init__(
        self, job: Job, n_workers: int, logs: Path, handicaps: Mapping[int, Handicap] | None = None
    ) -> None:
        self._start_time = time.monotonic()
        self._frames: queue.SimpleQueue[tuple[int, Frame | None]] = queue.SimpleQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._readers: list[threading.Thread] = []
        self._warned: set[tuple[int | None, str]] = set()
        logs.mkdir(parents=True, exist_ok=True)
        setup = {handicap: setup_frame(job, handicap) for handicap in (handicaps or {}).values()}
        plain = setup_frame(job, Handicap())
        try:
            for worker in range(n_workers):
                frame = setup[handicaps[worker]] if handicaps and worker in handicaps else plain
                self._start(worker, frame, logs / f"worker-{worker}.log")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "ProcessEngine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, worker: int, setup: Frame, log: Path) -> None:
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-c", "from quorate.worker import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(sys.path)},
                start_new_session=True,
            )
        self._processes.append(process)
        reader = threading.Thread(target=self._read, args=(worker, process), daemon=True)
        reader.start()
        self._readers.append(reader)
        self._write(worker, setup)

    def _read(self, worker: int, process: "subprocess.Popen[bytes]") -> None:
        output = cast(BinaryIO, process.stdout)
        while (frame := read_frame(output)) is not None:
            self._frames.put((worker, frame))
        self._frames.put((worker, None))

    def _write(self, worker: int, frame: Frame) -> None:
        """To a worker that is gone: its reader has noticed, or is about to."""
        with suppress(BrokenPipeError, ValueError):
            write_frame(cast(BinaryIO, self._processes[worker].stdin), frame)

    def now(self) -> float:
        """Seconds since the engine was started."""
        return time.monotonic() - self._start_time

    def send(self, task: Task) -> None:
        """Give a task to its worker."""
        self._write(task.worker, Frame("task", task._asdict()))

    def poll(self, timeout: float) -> Event | None:
        """The next event, or None if there is none within `timeout` seconds."""
        try:
            worker, frame = self._frames.get(timeout=timeout)
        except queue.Empty:
            return None
        if frame is None:
            return WorkerLost(worker)
        if frame.kind == "ready":
            return WorkerJoined(worker)
        if frame.kind == "failed":
            raise WorkerFailedError(worker, **frame.fields)
        if frame.kind == "warning":
            self._warn(worker, **frame.fields)
            return None
        task = Task(**{**frame.fields["task"], "shards": tuple(frame.fields["task"]["shards"])})
        return Block(task, frame.fields["first_draw"], frame.arrays["payload"])

    def _warn(self, worker: int, category: str, message: str, shard: int | None) -> None:
        """Pass on what a worker warns of, once for each shard."""
        if (shard, message) not in self._warned:
            self._warned.add((shard, message))
            warnings.warn(
                f"shard {shard}, worker {worker}: {message}", warning_named(category), stacklevel=2
            )

    def close(self) -> None:
        """End all workers: by themselves if they can, and for sure."""
        for process in self._processes:
            with suppress(BrokenPipeError):  # it is gone already
                cast(BinaryIO, process.stdin).close()
        deadline = time.monotonic() + _GRACE
        for process in self._processes:
            try:
                process.wait(max(deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for reader, process in zip(self._readers, self._processes, strict=True):
            reader.join()
            cast(BinaryIO, process.stdout).close()


def run(
    coordinator: Coordinator,
    engine: ProcessEngine,
    stop_asked: Callable[[float], bool],
    on_release: Callable[[float, int], None],
) -> Timeline:
    """Carry messages between `coordinator` and the workers until it stops.

    `stop_asked` is told the time, a few times a second at least, and may end the run; `on_release`
    is told the time and the number of global draws when that has grown.
    """
    timeline = Timeline()
    while True:
        event = DeadlinePassed() if stop_asked(engine.now()) else engine.poll(timeout=0.1)
        if event is None:
            continue
        now = engine.now()
        if isinstance(event, Block):
            timeline.block_times.append(now)
            timeline.block_workers.append(event.task.worker)
            timeline.block_sizes.append(len(event.payload))
        for command in coordinator.handle(event):
            if isinstance(command, Task):
                engine.send(command)
            elif isinstance(command, Release):
                timeline.released(now, command.n_global)
                on_release(now, command.n_global)
            else:
                timeline.finished = command.finished
                return timeline
