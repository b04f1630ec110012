"""What the cores of a node are worth: an actor's own threads beside processes that it relays to.

Actors get one question after the other, 64 points for a logistic regression on 8 shards of 100,000
rows, as in the passes of an exact run. Ray and the coordinator are left out. Actors take turns, and
times are the shortest of many, since others may use the cores too.
"""

import tempfile
import time
from collections.abc import Callable
from math import inf

import numpy as np

from quorate._types import Array
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

DIM, SHARDS, ROWS, POINTS, REPEATS = 10, 8, 100_000, 64, 60
Ask = Callable[..., bytes]


def with_threads(shards: ShardSet, first: bytes, n: int) -> Ask:
    """An actor that computes itself."""
    host = Host(shards.fingerprint)
    host.turn(packed_frame(device_frame(CPU, n)), first, started(0))
    return host.turn


def with_processes(shards: ShardSet, first: bytes, n: int) -> Ask:
    """An actor that is a relay."""
    hosted = [[worker] for worker in range(n)]
    relay = Relay(hosted, (str(shards.folder), shards.fingerprint), is_team=True)
    number = 0

    def turn(*frames: bytes) -> bytes:
        nonlocal number
        number += 1
        return relay.turn(number - 1, *frames)

    n_there = turn(packed_frame(device_frame(CPU)), first, *map(started, range(n))).count(b"ready")
    while n_there < n:
        n_there += turn().count(b"ready")
    return turn


def started(worker: int) -> bytes:
    """The frame that starts a worker."""
    return packed_frame(Frame("host", {"worker": worker, "attempt": 0}))


def main() -> None:
    """Threads and processes, one and two of them."""
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
        kinds = {"threads": with_threads, "processes": with_processes}
        asks = {(kind, n): kinds[kind](shards, first, n) for kind in kinds for n in (1, 2)}
        times = dict.fromkeys(asks, inf)
        for number in range(REPEATS):
            question = task_frame(Evaluate(0, tuple(range(SHARDS)), 0, number, 0, points(rng)))
            for each, ask in asks.items():
                start = time.perf_counter()
                ask(packed_frame(question))
                times[each] = min(times[each], time.perf_counter() - start)
    for kind in kinds:
        one, two = (1000 * times[kind, n] for n in (1, 2))
        print(
            f"{kind:9}: {one:.0f} ms with one, {two:.0f} ms with two: {one / two:.2f} times as fast"
        )


def points(rng: np.random.Generator) -> Array:
    """Points of one question."""
    return 0.1 * rng.standard_normal((POINTS, DIM))


if __name__ == "__main__":
    main()
