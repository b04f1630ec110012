"""Conformance tests of a scheme. A package that brings a scheme runs them on its own class.

>>> from quorate.testing import check_scheme
>>> check_scheme(Backup(redundancy=2), n_workers=4)

`check_scheme` runs all of them. Each drives the scheme with the real coordinator and real blocks,
and raises `AssertionError` with a sentence where a promise of `quorate.protocol.scheme` is broken.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, is_dataclass
from itertools import combinations

import numpy as np

from quorate._types import Array
from quorate.engines.latency import Pareto
from quorate.engines.virtual import engine as virtual
from quorate.models.gaussian import paper_subposteriors
from quorate.numerics.streams import Streams
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.messages import Block, Command, Release, Stop, Task, WorkerJoined, WorkerLost
from quorate.protocol.scheme import Scheme, SchemeOptions, Setup
from quorate.protocol.schemes import SCHEMES
from quorate.protocol.sums import summed_values
from quorate.protocol.times import Realisations, Work

__all__ = [
    "check_any_order",
    "check_losses",
    "check_options",
    "check_replay_and_resume",
    "check_scheme",
    "check_short_cuts",
    "check_sums",
]

_DIM = 5
_LATENCY = Pareto(0.1, 1.2)
_MOST_SETS = 20  # of workers that die together
_RESTART_AFTER = 3  # blocks


def check_scheme(options: SchemeOptions, n_workers: int = 4, seed: int = 0) -> None:
    """Run all conformance tests on a scheme with K workers. Takes about a second."""
    check_options(options, n_workers)
    for order in range(5):
        check_any_order(options, n_workers, seed + order)
    check_losses(options, n_workers, seed)
    check_replay_and_resume(options, n_workers, seed)
    check_short_cuts(options, n_workers, seed)
    check_sums(options, n_workers, seed)


def check_options(options: SchemeOptions, n_workers: int = 4) -> None:
    """Options are a registered dataclass of JSON values; every shard has r holders or more."""
    assert is_dataclass(options), "options are a frozen dataclass"
    assert SCHEMES[options.name] is type(options), f"{options.name!r} is registered as this class"
    again = SCHEMES.from_json(SCHEMES.as_json(options))
    assert again == options, "options survive the journal"
    r = options.shards_per_worker(n_workers)
    allocation = _started(options, n_workers).allocation
    assert allocation.n_workers == allocation.n_shards == n_workers, "K workers and K shards"
    assert max(map(len, allocation.held)) == r, "shards_per_worker is what a worker holds"
    assert 0 <= options.survives(n_workers) < n_workers, "survives is below the number of workers"


def check_any_order(options: SchemeOptions, n_workers: int = 4, seed: int = 0) -> None:
    """Whatever the order of arrivals, the run reaches its draws, and uses none twice."""
    n_draws = 15
    fleet = _Fleet(_started(options, n_workers, n_draws, seed), n_draws, seed)
    fleet.run()
    assert fleet.finished, "all draws are reached when nobody dies"
    assert fleet.released == sorted(fleet.released), "L(t) never falls while nobody is left out"
    received = fleet.scheme.received
    assert received.n_complete >= n_draws, "the last release counts the draws that are complete"
    draws = received.global_draws()
    assert draws.shape[0] >= n_draws, "there are as many global draws as were released"
    assert draws.shape[1] == _DIM, "a global draw has d coordinates"
    assert np.isfinite(draws).all(), "global draws are finite"
    counts = received.draw_counts()
    sent = sum(len(block.payload) * len(block.task.shards) for block in fleet.blocks)
    assert counts.received == sent, "every draw that arrives is counted once"
    assert 0 < counts.used <= counts.received, "draws that are used have arrived"


def check_losses(options: SchemeOptions, n_workers: int = 4, seed: int = 0) -> None:
    """Any `survives(K)` workers may be dead; a scheme that cannot finish says so at once.

    A worker that dies and is restarted is asked again for what it had not sent.
    """
    n_draws = 10
    restarted = _Fleet(_started(options, n_workers, n_draws, seed), n_draws, seed)
    restarted.run(restart=0)
    assert restarted.finished, "a restarted worker is asked again for what it had not sent"
    everybody = range(n_workers)
    for n_dead in range(n_workers):
        for dead in list(combinations(everybody, n_dead))[:_MOST_SETS]:
            scheme = _started(options, n_workers, n_draws, seed)
            missing = scheme.out_of_reach(n_draws, set(everybody) - set(dead))
            if n_dead <= options.survives(n_workers):
                assert not missing, f"the loss of workers {dead} is survived"
            fleet = _Fleet(scheme, n_draws, seed)
            fleet.run(dead=dead)
            assert fleet.finished == (not missing), f"out_of_reach is right without {dead}"


def check_replay_and_resume(options: SchemeOptions, n_workers: int = 4, seed: int = 0) -> None:
    """Replayed blocks give the same bits; a run that is resumed half-way reaches its draws."""
    n_draws = 12
    fleet = _Fleet(_started(options, n_workers, n_draws, seed), n_draws, seed)
    fleet.run()
    replayed = _started(options, n_workers, n_draws, seed)
    for block in fleet.blocks:
        replayed.receive(block)
    expected = fleet.scheme.received.global_draws()
    assert np.array_equal(replayed.received.global_draws(), expected), "a replay has the same bits"
    resumed = _Fleet(_started(options, n_workers, n_draws, seed), n_draws, seed + 1)
    for block in fleet.blocks[: len(fleet.blocks) // 2]:
        resumed.coordinator.handle(block)
    resumed.coordinator.take_all_back()
    resumed.run()
    assert resumed.finished, "a resumed run reaches its draws"


def check_short_cuts(options: SchemeOptions, n_workers: int = 4, seed: int = 0) -> None:
    """`looks` and `finish_times`, where they are offered, agree with running the scheme."""
    n_draws = 20
    scheme = _started(options, n_workers, n_draws, seed)
    cluster = virtual.Cluster(_LATENCY, paper_subposteriors(n_workers, _DIM), Streams(seed, 0))
    timeline = virtual.run(Coordinator(scheme, n_draws), cluster)
    looks = scheme.received.looks(np.ones((1, len(timeline.block_times)), dtype=np.bool_))
    if looks is not None:
        draws: Array = looks.draws[0, : looks.counts[0]]
        same = np.allclose(draws, scheme.received.global_draws(), rtol=1e-9, atol=1e-12)
        assert same, "the last look shows the global draws of now"
    times = options.finish_times(Realisations(Work(_LATENCY, n_workers, n_draws, seed=seed), 0, 1))
    if times is not None:
        simulated = timeline.release_times[n_draws - 1]
        assert np.isclose(times.times[0], simulated), "finish_times are those of a simulated run"


def _started(options: SchemeOptions, n_workers: int, n_draws: int = 10, seed: int = 0) -> Scheme:
    return options.start(Setup(n_workers, _DIM, n_draws, seed=seed))


@dataclass
class _Fleet:
    """Workers that answer in random order, one block of one draw at a time."""

    scheme: Scheme
    n_draws: int
    seed: int
    blocks: list[Block] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    finished: bool = False

    def __post_init__(self) -> None:
        n_workers = self.scheme.allocation.n_workers
        self.coordinator = Coordinator(self.scheme, self.n_draws, queue_depth=2)
        cluster = virtual.Cluster(
            _LATENCY, paper_subposteriors(n_workers, _DIM), Streams(self.seed, 0)
        )
        self._workers = virtual.VirtualWorkers(self.scheme, cluster)
        self._under_way: dict[int, list[Block]] = {k: [] for k in range(n_workers)}

    def run(self, dead: Collection[int] = (), restart: int | None = None) -> None:
        """Until the coordinator stops, or nobody has anything left to do.

        Workers `dead` are so from the start. Worker `restart` loses its tasks after a few blocks.
        """
        rng = np.random.default_rng(self.seed)
        for worker in dead:
            if self._perform(self.coordinator.handle(WorkerLost(worker))):
                return
        for worker in self._under_way:
            if worker not in dead and self._perform(self.coordinator.handle(WorkerJoined(worker))):
                return
        while busy := [worker for worker, blocks in self._under_way.items() if blocks]:
            block = self._under_way[int(rng.choice(busy))].pop(0)
            self.blocks.append(block)
            if self._perform(self.coordinator.handle(block)):
                return
            if restart is not None and len(self.blocks) == _RESTART_AFTER:
                self._under_way[restart].clear()
                self._perform(self.coordinator.take_back(restart))
                self._perform(self.coordinator.handle(WorkerJoined(restart)))

    def _perform(self, commands: Sequence[Command]) -> bool:
        """Carry out commands; whether the run has stopped."""
        for command in commands:
            if isinstance(command, Task):
                self._under_way[command.worker] += self._workers.blocks(command)
            elif isinstance(command, Release):
                self.released.append(command.n_global)
            elif isinstance(command, Stop):
                self.finished = command.finished
                return True
        return False


def check_sums(options: SchemeOptions, n_workers: int = 4, seed: int = 0) -> None:
    """Sums over shards are right from all answers, and from those of any workers that suffice."""
    sums = options.sums(n_workers, seed)
    shards = np.random.default_rng(seed).integers(-1000, 1000, (n_workers, 6)).astype(float)
    parts = {
        part.number: summed_values([shards[s] for s in part.shards], part.coefficients)
        for worker in range(n_workers)
        for part in sums.parts_of(worker)
    }
    assert sums.is_complete(parts), "all answers together give the sum"
    givers = [(w, part.number) for w in range(n_workers) for part in sums.parts_of(w)]
    assert all(w in sums.givers_of(number) for w, number in givers), "givers can give their parts"
    r = options.shards_per_worker(n_workers)
    for n_lost in range(min(options.survives(n_workers), r - 1) + 1):
        for lost in list(combinations(range(n_workers), n_lost))[:_MOST_SETS]:
            alive = [worker for worker in range(n_workers) if worker not in lost]
            numbers = {part.number for worker in alive for part in sums.parts_of(worker)}
            known = {number: parts[number] for number in numbers}
            assert sums.is_complete(known), f"without workers {lost} the sum is still known"
            total = sums.total(known, shards.shape[1])
            assert np.allclose(total, shards.sum(axis=0)), f"it is right without workers {lost}"
    assert sums.lost_shards((), ()), "nobody alive means that shards are lost"
