"""A fleet of workers for the conformance tests, which answer in random order."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from quorate.engines.latency import Pareto
from quorate.engines.virtual import engine as virtual
from quorate.models.gaussian import paper_subposteriors
from quorate.numerics.streams import Streams
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.messages import Block, Command, Release, Stop, Task, WorkerJoined, WorkerLost
from quorate.protocol.scheme import Scheme, SchemeOptions, Setup

DIM = 5
LATENCY = Pareto(0.1, 1.2)
_RESTART_AFTER = 3  # blocks


def started(options: SchemeOptions, n_workers: int, n_draws: int = 10, seed: int = 0) -> Scheme:
    """A new run of a scheme."""
    return options.start(Setup(n_workers, DIM, n_draws, seed=seed))


@dataclass
class Fleet:
    """Workers that answer in random order, one block of one draw at a time."""

    scheme: Scheme
    n_draws: int | None
    seed: int
    may_exclude: bool = False
    blocks: list[Block] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    finished: bool = False

    def __post_init__(self) -> None:
        n_workers = self.scheme.allocation.n_workers
        self.coordinator = Coordinator(self.scheme, self.n_draws, 2, self.may_exclude)
        cluster = virtual.Cluster(
            LATENCY, paper_subposteriors(n_workers, DIM), Streams(self.seed, 0)
        )
        self._workers = virtual.VirtualWorkers(self.scheme, cluster)
        self._under_way: dict[int, list[Block]] = {k: [] for k in range(n_workers)}

    @property
    def idle(self) -> list[int]:
        """Workers that have nothing to do."""
        return [worker for worker, blocks in self._under_way.items() if not blocks]

    def run(
        self,
        dead: Collection[int] = (),
        restart: int | None = None,
        n_blocks: int | None = None,
    ) -> None:
        """Until the coordinator stops, nobody has anything left to do, or so many blocks came.

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
            if len(self.blocks) == n_blocks:
                return
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
