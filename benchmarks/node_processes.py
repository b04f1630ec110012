"""What the cores of a node are worth: an actor's own threads beside processes that it relays to.

An actor gets one question after the other, 64 points for a logistic regression on 8 shards of
100,000 rows, as in the passes of an exact run. Ray and the coordinator are left out. Times are the
shortest of many, since others may use the cores too.
"""

import tempfile
import time
from collections.abc import Callable

import numpy as np

from quorate.data.write import ShardSet, write_shards
from quorate.engines.devices import CPU
from quorate.engines.frames import Frame, packed_frame
from quorate.engines.ray.host import Host
from quorate.engines.ray.relay import Relay
from quorate.engines.workers.service import device_frame, setup_frame, task_frame
from quorate.engines.workers.worker import Job
from quorate.models import logistic
from quorate.protocol.messages import Evaluate
from quorate.protocol.schemes.cmc import SendDraws
from quorate.samplers import make_sampler

DIM, SHARDS, ROWS, POINTS, REPEATS = 10, 8, 100_000, 64, 30
CORES = (1, 2)


def shortest(ask: Callable[[bytes], object]) -> float:
    """Seconds for a question, at least."""
    rng, times = np.random.default_rng(0), []
    for number in range(REPEATS):
        points = 0.1 * rng.standard_normal((POINTS, DIM))
        task = packed_frame(task_frame(Evaluate(0, tuple(range(SHARDS)), 0, number, 0, points)))
        start = time.perf_counter()
        ask(task)
        times.append(time.perf_counter() - start)
    return min(times)


def of_threads(shards: ShardSet, first: bytes, n: int) -> float:
    """Seconds of an actor with threads."""
    host = Host(shards.fingerprint)
    host.turn(packed_frame(device_frame(CPU, n)), first, started(0))
    return shortest(host.turn)


def of_processes(shards: ShardSet, first: bytes, n: int) -> float:
    """Seconds of an actor with processes."""
    hosted = [[worker] for worker in range(n)]
    relay = Relay(hosted, (str(shards.folder), shards.fingerprint), is_team=True)
    number = 0

    def turn(*frames: bytes) -> bytes:
        nonlocal number
        number += 1
        return relay.turn(number - 1, *frames)

    turn(packed_frame(device_frame(CPU)), first, *map(started, range(n)))
    for _ in range(1, n):  # until all of them are there
        turn()
    return shortest(turn)


def started(worker: int) -> bytes:
    """The frame that starts a worker."""
    return packed_frame(Frame("host", {"worker": worker, "attempt": 0}))


def main() -> None:
    """Both, on one core and on two."""
    rng = np.random.default_rng(1)
    rows = {
        "X": rng.standard_normal((SHARDS * ROWS, DIM)),
        "y": rng.integers(0, 2, SHARDS * ROWS).astype(float),
    }
    with tempfile.TemporaryDirectory() as folder:
        shards = write_shards(rows, SHARDS, f"{folder}/shards")
        sampler = make_sampler("ellipse", 1)
        job = Job(logistic(DIM), sampler, SendDraws(), str(shards.folder), SHARDS, 0)
        first = packed_frame(setup_frame(job, {}))
        for name, measure in (("threads", of_threads), ("processes", of_processes)):
            one, more = (measure(shards, first, n) for n in CORES)
            print(f"{name:9}: {1000 * one:.0f} ms on one core, {1000 * more:.0f} ms on two: "
                  f"{one / more:.2f} times as fast", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
