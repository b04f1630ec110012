"""One more pass over the shards of a run: the posterior itself, at points around its merge."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from quorate._types import Array
from quorate.engines.drive import Engine, drive
from quorate.journal import BlockRecord, EventRecord, JournalReader
from quorate.merging.fit import Fit
from quorate.protocol.allocation import Allocation
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.messages import Arrays, Block, Command, Event
from quorate.protocol.schemes.evaluation import Evaluation
from quorate.protocol.supervisor import Limits, Supervisor
from quorate.samplers import fit_of
from quorate.trust.shards import ShardChains

_DIVERGENCES = "divergences"
_FAULTS = ("refused", "failed")


class _Anew:
    """An engine whose workers are at work already: what they still send of it is not heard.

    `attempts` says how often each has been started before.
    """

    def __init__(self, engine: Engine, attempts: Mapping[int, int]) -> None:
        self._engine = engine
        self._attempts = attempts
        self.now, self.send = engine.now, engine.send
        self.kill, self.close = engine.kill, engine.close

    def start(self, worker: int, attempt: int) -> None:
        self._engine.start(worker, attempt + self._attempts.get(worker, 0))

    def pid(self, worker: int) -> int | None:
        return self._engine.pid(worker)

    def poll(self, timeout: float) -> list[Event]:
        return [event for event in self._engine.poll(timeout) if not _is_a_draw(event)]


def evaluate(
    engine: Engine,
    allocation: Allocation,
    points: Array,
    limits: Limits,
    attempts: Mapping[int, int],
    stop_asked: Callable[[float], bool],
) -> tuple[Array, str]:
    """Log densities of all shards at the first points, (n_shards, n), and why not at more.

    Survives what a run survives: workers that are slow, die or lie.
    """
    scheme = Evaluation(allocation, points)
    coordinator = Coordinator(scheme, len(points), queue_depth=2)
    supervisor = Supervisor(coordinator, points.shape[1], limits)
    for _ in drive(supervisor, _Anew(engine, attempts), _forget, stop_asked):
        pass
    values = scheme.log_densities()
    if values.shape[1] == len(points):
        return values, ""
    failure = supervisor.failure
    if failure is not None:
        return values, f"worker {failure.worker} failed with {failure.kind}: {failure.message}"
    lost = supervisor.coordinator.lost
    return values, "the workers that hold some shard were lost" if lost else "it was ended early"


def shard_chains(folder: Path, allocation: Allocation) -> list[ShardChains]:
    """All draws of each shard by chain, as far as they were sent, with what went wrong."""
    n_shards = len({shard for held in allocation.held for shard in held})
    chains: list[dict[object, list[Array]]] = [{} for _ in range(n_shards)]
    divergences: dict[int, int] = {}
    fits: dict[int, Fit | None] = {}
    modes: dict[int, Array] = {}
    faults = [0] * n_shards
    with JournalReader(folder) as reader:
        for record in reader.records():
            if isinstance(record, BlockRecord) and record.payload.ndim == 3:
                for i, shard in enumerate(record.shards):
                    chains[shard].setdefault(record.key, []).append(record.payload[:, i])
            elif isinstance(record, EventRecord) and record.what in _FAULTS:
                whose = () if record.worker is None else allocation.shards_of(record.worker)
                for shard in whose:
                    faults[shard] += 1
        for key, state in reader.states():
            for shard in key.shards:
                found = _state_of(shard, state or {})
                fits[shard] = fits.get(shard) or fit_of(found)
                if "other_modes" in found:
                    modes[shard] = found["other_modes"]
                if _DIVERGENCES in found:
                    divergences[shard] = divergences.get(shard, 0) + int(found[_DIVERGENCES])
    return [
        ShardChains(
            [np.concatenate(blocks) for blocks in chains[shard].values()],
            fits.get(shard),
            divergences.get(shard),
            faults[shard],
            modes.get(shard, ()),
        )
        for shard in range(n_shards)
    ]


def _state_of(shard: int, state: Arrays) -> Arrays:
    """What the state of some shards' chains has of one."""
    prefix = f"{shard}/"
    return {
        name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)
    }


def _is_a_draw(event: Event) -> bool:
    return isinstance(event, Block) and event.task.chain >= 0


def _forget(now: float, commands: list[Command]) -> None:
    """Nothing of this has to outlive the run."""
