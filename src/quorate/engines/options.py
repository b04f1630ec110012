"""Engines as users choose them: processes of this machine, or actors of a Ray cluster."""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Protocol

from quorate._registry import OptionsRegistry
from quorate._warnings import warn
from quorate.engines.devices import CPU, checked, dealt
from quorate.engines.drive import Engine
from quorate.engines.faults import Handicap
from quorate.engines.processes.engine import ProcessEngine
from quorate.engines.ray.engine import RayEngine
from quorate.engines.workers.worker import Job
from quorate.errors import DeviceWarning, require
from quorate.models.protocol import runs_in_threads
from quorate.protocol.allocation import Allocation


class EngineOptions(Protocol):
    """An engine as a user chooses it: a frozen dataclass whose fields are its options.

    `restarts` is how often in a row a lost worker is restarted. `needs` are the modules that the
    engine imports besides those of quorate, with the extra of quorate that installs each.
    """

    name: ClassVar[str]
    needs: ClassVar[Mapping[str, str]]

    @property
    def restarts(self) -> int: ...

    @property
    def compiles(self) -> bool:
        """Whether workers have models compiled for a device, which takes a while."""

    def device_workers(self, n_workers: int) -> Collection[int]:
        """Workers certain to run on a device, of `n_workers`."""

    def start(
        self,
        job: Job,
        allocation: Allocation,
        logs: Path,
        handicaps: Mapping[int, Handicap],
        began_at: float,
    ) -> AbstractContextManager[Engine]:
        """Start the engine.

        Parameters
        ----------
        job
            What workers draw from, the same for all.
        allocation
            Which worker holds which shards.
        logs
            Folder for what workers print.
        handicaps
            Delays put in on purpose, by worker.
        began_at
            Seconds that earlier sittings of the run took.
        """


@dataclass(frozen=True)
class Processes:
    """Workers are processes of this machine.

    Parameters
    ----------
    processes
        Number of processes, by default one for each worker. With fewer, workers share them. With
        more, the others stand by for those that are lost.
    restarts
        Restart a lost worker at most this many times in a row.
    devices
        Device of each process: cpu, gpu, or a list such as gpu:0,cpu,cpu. One device holds for all
        processes. In Python also a list of strings. GPUs need JAX. See docs/how-to/devices.md.
    """

    processes: int | None = None
    restarts: int = 5
    devices: str = CPU

    name: ClassVar[str] = "process"
    needs: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __post_init__(self) -> None:
        given = self.processes
        require(given is None or given >= 1, f"processes must be at least 1, not {given}.")
        object.__setattr__(self, "devices", checked(self.devices))
        require(self.restarts >= 0, f"restarts must be 0 or more, not {self.restarts}.")

    @property
    def compiles(self) -> bool:
        return any(name != CPU for name in self.devices.split(","))

    def device_workers(self, n_workers: int) -> Collection[int]:
        names = self.devices.split(",")
        n_places = min(self.processes or n_workers, n_workers, len(names))
        return [k for k in range(n_workers) if names[k % n_places] != CPU]

    def start(
        self,
        job: Job,
        allocation: Allocation,
        logs: Path,
        handicaps: Mapping[int, Handicap],
        began_at: float,
    ) -> AbstractContextManager[Engine]:
        n_workers = allocation.n_workers
        devices = dealt(self.devices, self.processes or n_workers)
        return ProcessEngine(job, n_workers, logs, self.processes, handicaps, began_at, devices)


@dataclass(frozen=True)
class Ray:
    """Workers live in actors of a Ray cluster.

    Parameters
    ----------
    address
        HOST:PORT of a running Ray cluster, or "auto". By default a cluster is started on this
        machine.
    restarts
        Restart a lost worker at most this many times in a row.
    gpus_per_worker
        GPUs of each worker, while its node has any left; other workers compute on cores. With
        0.25, four workers share a GPU. Workers that share an actor share a GPU in any case.
    actors
        Number of actors, by default and at most one for each worker. With fewer, workers share
        them: they take turns, and answer the passes of an exact run together, so that the
        coordinator has less to do. An actor computes on one core.
    actor_per_node
        Have one actor on each node of the cluster. It starts processes that its workers live in,
        and adds up their sums, so that one sum of each node travels.
    processes_per_node
        Processes that the actor of a node starts: by default one for each core, and at most one for
        each worker. With 1, or with GPUs, the actor computes itself: in passes of exact runs with
        one thread for each core, if the model allows it, and else on one core.
    """

    address: str | None = field(
        default=None, metadata={"flag": "ray-address", "metavar": "HOST:PORT"}
    )
    restarts: int = 5
    gpus_per_worker: float = 0.0
    actors: int | None = None
    actor_per_node: bool = False
    processes_per_node: int | None = None

    name: ClassVar[str] = "ray"
    needs: ClassVar[Mapping[str, str]] = MappingProxyType({"ray": "ray"})

    def __post_init__(self) -> None:
        require(self.restarts >= 0, f"restarts must be 0 or more, not {self.restarts}.")
        share = self.gpus_per_worker
        require(
            0 <= share <= 1 or (1 < share < inf and share == int(share)),
            f"gpus_per_worker must be a share up to 1, or a whole number, not {share}.",
        )
        given = self.actors
        require(given is None or given >= 1, f"actors must be at least 1, not {given}.")
        is_clear = given is None or not self.actor_per_node
        require(is_clear, "actors and actor_per_node exclude each other. Leave one of them out.")
        given = self.processes_per_node
        require(given is None or given >= 1, f"processes_per_node must be at least 1, not {given}.")
        is_clear = given is None or self.actor_per_node
        require(is_clear, "processes_per_node is for actor_per_node=True. Give both, or neither.")

    @property
    def compiles(self) -> bool:
        return self.gpus_per_worker > 0

    def device_workers(self, n_workers: int) -> Collection[int]:
        return ()  # nodes may have no GPU left

    def start(
        self,
        job: Job,
        allocation: Allocation,
        logs: Path,
        handicaps: Mapping[int, Handicap],
        began_at: float,
    ) -> AbstractContextManager[Engine]:
        is_alone = self.processes_per_node == 1 and job.model is not None
        if is_alone and not runs_in_threads(job.model):
            warn(
                f"{type(job.model).__name__} does not run in threads, so every node computes on "
                "one core. Leave out processes_per_node; or set runs_in_threads = True in the "
                "model, if several threads may evaluate it at the same time.",
                DeviceWarning,
            )
        held, share = allocation.held, self.gpus_per_worker
        return RayEngine(
            job,
            held,
            self.address,
            handicaps,
            began_at,
            share,
            self.actors,
            is_per_node=self.actor_per_node,
            n_processes=self.processes_per_node,
        )


ENGINES: OptionsRegistry[EngineOptions] = OptionsRegistry(
    "engine", "quorate.engines", {engine.name: engine for engine in (Processes, Ray)}
)
