"""One more pass over the shards of a run: the posterior itself, at points around the merge."""

from collections.abc import Callable, Mapping
from pathlib import Path

from quorate._types import Array
from quorate.engines.drive import Engine, drive
from quorate.journal import BlockRecord, ChainKey, JournalReader, WorkerEvent
from quorate.merging.fit import Fit
from quorate.numerics.named_arrays import part
from quorate.passes.one_question import OneQuestion
from quorate.protocol.allocation import Allocation
from quorate.protocol.columns import Columns
from quorate.protocol.messages import Block, Command, Event, Happening
from quorate.protocol.passes import PassCoordinator, PassSchedule
from quorate.protocol.patience import Limits
from quorate.protocol.sums import Sums
from quorate.protocol.supervisor import Supervisor
from quorate.run.draws_on_disk import DrawFile
from quorate.samplers import fit_of
from quorate.trust.shards import ShardChains

_DIVERGENCES = "divergences"
_FAULTS = (Happening.REFUSED, Happening.FAILED)


class _SameWorkers:
    """An engine whose workers are already at work; the blocks they still send are ignored.

    `attempts` says how often each worker has been started before.
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
        return [event for event in self._engine.poll(timeout) if not isinstance(event, Block)]


def evaluate(
    engine: Engine,
    sums: Sums,
    points: Array,
    limits: Limits,
    attempts: Mapping[int, int],
    stop_asked: Callable[[float], bool],
) -> tuple[Array, str]:
    """The log posterior at the first n points, (n,), and why not at more.

    It survives what a run survives: workers that are slow, die or lie.
    """
    question = OneQuestion(points)
    schedule = PassSchedule(sums, question, needs_surveys=False)
    supervisor = Supervisor(PassCoordinator(schedule, len(points)), limits=limits)
    for _ in drive(supervisor, _SameWorkers(engine, attempts), _forget, stop_asked):
        pass
    if len(question.values):
        return question.values, ""
    values, failure = schedule.known(0), supervisor.failure
    if failure is not None:
        return values, f"worker {failure.worker} failed with {failure.kind}: {failure.message}"
    lost = supervisor.coordinator.lost
    return values, "all workers that hold some shard were lost" if lost else "it was ended early"


def shard_chains(folder: Path, allocation: Allocation) -> list[ShardChains]:
    """All draws of each shard by chain, as far as they were sent, with what went wrong."""
    n_shards = allocation.n_shards
    draws = Columns(DrawFile(folder))
    chains: list[dict[ChainKey, None]] = [{} for _ in range(n_shards)]
    divergences: dict[int, int] = {}
    fits: dict[int, Fit | None] = {}
    modes: dict[int, Array] = {}
    faults = [0] * n_shards
    with JournalReader(folder) as reader:
        for record in reader.records():
            if isinstance(record, BlockRecord) and record.payload.ndim == 3:
                for i, shard in enumerate(record.shards):
                    chains[shard].setdefault(record.key)
                    draws.append((shard, record.key), record.payload[:, i])
            elif isinstance(record, WorkerEvent) and record.what in _FAULTS:
                for shard in allocation.shards_of(record.worker):
                    faults[shard] += 1
        for key, state in reader.states():
            for shard in key.shards:
                found = part(state or {}, shard)
                fits[shard] = fits.get(shard) or fit_of(found)
                if "other_modes" in found:
                    modes[shard] = found["other_modes"]
                if _DIVERGENCES in found:
                    divergences[shard] = divergences.get(shard, 0) + int(found[_DIVERGENCES])
    return [
        ShardChains(
            [draws.rows((shard, key)) for key in chains[shard]],
            fits.get(shard),
            divergences.get(shard),
            faults[shard],
            modes.get(shard, ()),
        )
        for shard in range(n_shards)
    ]


def _forget(now: float, commands: list[Command]) -> None:
    """Keep nothing: none of this outlives the run."""
