"""A worker: holds shards, draws from their subposteriors, and makes blocks of the draws.

It knows no engine.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, CodedArray
from quorate.data.placed import PlacedShards
from quorate.data.write import ShardSet
from quorate.engines.devices import points_that_fill
from quorate.engines.faults import Handicap
from quorate.engines.workers.after import computed
from quorate.engines.workers.evaluation import Evaluation
from quorate.engines.workers.in_place import RowsInPlace
from quorate.engines.workers.pulse import Pulse, WatchedTarget
from quorate.errors import BadInputError, ImproperError, NotConvergedError, require
from quorate.models.checks import at
from quorate.models.memo import PerShard
from quorate.models.protocol import Model, SearchingModel, Shard, runs_in_threads
from quorate.models.subposterior import Target
from quorate.numerics.named_arrays import flattened, part
from quorate.numerics.streams import ChainStream, Purpose, Streams
from quorate.passes.one_question import CHECK
from quorate.passes.shard_fit import fit_of_shard
from quorate.protocol.before import BEFORE
from quorate.protocol.messages import (
    NOTHING,
    RECIPE,
    Answer,
    Arrays,
    Block,
    Evaluate,
    Question,
    ShardFound,
    ShardTask,
    Survey,
    Surveyed,
    Task,
    Values,
    Work,
)
from quorate.protocol.scheme import WorkerSide
from quorate.protocol.sums import gradients_on_grid, summed, summed_values
from quorate.samplers import fit_of
from quorate.samplers.base import Base
from quorate.samplers.laplace import laplace_fit, starting_point
from quorate.samplers.modes import other_modes
from quorate.samplers.protocol import Sampler, State

_BLOCK_SECONDS = 0.1
_FIRST_BLOCK = 8
_SURVEY_STEPS, _FEWER_STEPS = 60, 15  # of a search for the mode; otherwise passes find it
_FEW = 32  # dimensions in which steps are cheap
_SIDE = "side"  # where a state holds the arrays of the scheme
_STILL = 1000  # draws in a row that are the same point: the chain refuses all proposals
_COUNTS = ("evaluations", "divergences", "accepted")  # of a chain, in its state
_Key = tuple[tuple[int, ...], int]  # shards, chain


@dataclass(frozen=True)
class Job:
    """What a worker needs to know of a run; the same for every worker."""

    model: Model
    sampler: Sampler
    worker_side: WorkerSide
    shard_folder: str
    n_shards: int
    seed: int
    placed: PlacedShards | None = None  # where rows lie that workers read in place
    is_on_device: bool = False

    def sites(self, held: Sequence[Sequence[int]]) -> dict[int, str]:
        """The site of each worker whose rows lie at one site only; `held` are its shards."""
        if self.placed is None:
            return {}
        places = self.placed.places
        found = {worker: places[shards[0]].site for worker, shards in enumerate(held) if shards}
        return {worker: site for worker, site in found.items() if site}


class ShardSource(Protocol):
    """Where a worker finds its shards."""

    def shard(self, number: int) -> Shard:
        """The rows of shard `number`."""


class Chains:
    """The chains of the shards that one process holds."""

    def __init__(
        self, job: Job, shards: ShardSource, pulse: Pulse | None = None, n_threads: int = 1
    ) -> None:
        self._job = job
        self._shards = shards
        self._pulse = pulse or Pulse()
        self.at_work_on: int | None = None  # a shard, for errors to name
        self._targets: dict[int, Target] = {}
        self._states: dict[tuple[int, int], State] = {}
        self._still: Counter[tuple[int, int]] = Counter()  # draws of a chain that are alike
        self._last: dict[tuple[int, int], Array] = {}  # draw of each chain
        is_parallel = runs_in_threads(job.model) and not job.is_on_device
        self.evaluation = Evaluation(self._target, self._pulse, n_threads if is_parallel else 1)

    def draw(self, shard: int, chain: int, n: int, step: str = "draw") -> Array:
        """The next `n` draws of a chain, which is warmed up first if needed."""
        target = self._target(shard)
        stream = ChainStream(Streams(self._job.seed), shard, chain)
        key = shard, chain
        if key not in self._states:
            with self._pulse.doing("warm_up"):
                self._states[key] = self._job.sampler.warm_up(target, stream)
        with self._pulse.doing(step):
            draws, self._states[key] = self._job.sampler.draw(target, self._states[key], stream, n)
        require(
            draws.shape == (n, target.dim),
            f"The sampler returned draws of shape {draws.shape} where {(n, target.dim)} was asked.",
        )
        last = self._last.get(key, draws[0])
        self._still[key] = self._still[key] + n if (draws == last).all() else 0
        self._last[key] = draws[-1]
        require(
            self._still[key] < _STILL,
            f"The chain has not moved for {self._still[key]} draws: all proposals were refused at "
            f"{at(draws[0], target.model.names)}. Check the log density around this point.",
        )
        return draws

    def survey(self, shard: int) -> Arrays:
        """The mode and curvature of a subposterior and its other modes; nothing without one."""
        target = self._target(shard)
        with self._pulse.doing("survey"):
            found = surveyed(target)
            if self._job.is_on_device:
                n = points_that_fill(target, found.get("mode"))
                return {**found, "at_once": np.array(n)}
            return found

    def prepare(self, shard: int, recipe: Array) -> None:
        """Prepare a shard as the worker that surveyed it did, without a search."""
        target = self._target(shard)
        if isinstance(target.model, SearchingModel):
            with self._pulse.doing("prepare"):
                target.model.prepare_by(recipe, target.shard)

    def after(self, shard: int, task: ShardTask) -> Arrays:
        """What a task before or after a run asks for."""
        self.at_work_on = shard
        if isinstance(self._shards, RowsInPlace) and task.what in BEFORE:
            return self._shards.told(task)
        target = self._target(shard)
        with self._pulse.doing(task.what):
            return computed(target.model, target.shard, Streams(self._job.seed), task)

    def state(self, shard: int, chain: int) -> State | None:
        """State of a chain; None before its warm-up."""
        return self._states.get((shard, chain))

    def restore(self, shard: int, chain: int, state: State, index: int) -> None:
        """Continue from `state` with the draw of this index; at 0 it may be another chain's."""
        zeros = {} if index else {name: np.array(0) for name in _COUNTS if name in state}
        self._states[shard, chain] = {**state, **zeros, "index": np.array(index)}

    def _target(self, shard: int) -> Target:
        self.at_work_on = shard
        if shard not in self._targets:
            rows = self._shards.shard(shard)
            job = self._job
            self._targets[shard] = WatchedTarget(job.model, rows, job.n_shards, self._pulse)
            PerShard.make_room(len(self._targets))
        return self._targets[shard]


class Worker:
    """Performs tasks block by block, for one worker or for several that share the process."""

    def __init__(
        self,
        job: Job,
        handicaps: Mapping[int, Handicap],
        shards: ShardSource | None = None,
        pulse: Pulse | None = None,
        n_threads: int = 1,
    ) -> None:
        self._job = job
        self._handicaps = handicaps
        self._pulse = pulse or Pulse()
        source = shards or ShardSet.open(job.shard_folder)
        self.chains = Chains(job, source, self._pulse, n_threads)
        self._streams = Streams(job.seed)
        self._side_states: dict[_Key, Arrays] = {}
        self._sent: dict[_Key, dict[str, NDArray[Any]]] = {}
        self._block_sizes: dict[int, int] = {}
        self._n_blocks: Counter[int] = Counter()

    def join(self, worker: int, attempt: int) -> None:
        """Add a worker. A worker that died on purpose stays dead."""
        handicap = self._handicaps.get(worker)
        if attempt and handicap is not None and handicap.dies_after is not None:
            os._exit(137)

    def answers(self, task: Work) -> Iterator[Answer]:
        """The blocks of a task, or the one answer that it asks for."""
        if isinstance(task, Task):
            yield from self.blocks(task)
            return
        start = time.perf_counter()
        answer = self._answer(task)
        self._wait(task.worker, time.perf_counter() - start)
        yield answer

    def _answer(self, task: Question) -> Answer:
        if isinstance(task, Evaluate):
            return self._values(task)
        return self._surveyed(task) if isinstance(task, Survey) else self._found(task)

    def blocks(self, task: Task) -> Iterator[Block]:
        """The blocks of a task, each worth about a tenth of a second."""
        if task.start is not None:
            self._restore(task, task.start)
        elif task.first_draw and self.chains.state(task.shards[0], task.chain) is None:
            self._payload(task, task.first_draw, "draw again")  # what was lost: the same bits
        n_done = 0
        while n_done < task.n_draws:
            n = min(self._block_sizes.get(task.worker, _FIRST_BLOCK), task.n_draws - n_done)
            is_warm = self.chains.state(task.shards[0], task.chain) is not None
            start = time.perf_counter()
            payload, extras = self._payload(task, n)
            spent = time.perf_counter() - start
            self._wait(task.worker, spent)
            if is_warm:
                per_block = int(n * _BLOCK_SECONDS / max(spent, 1e-6))
                self._block_sizes[task.worker] = max(1, min(4 * n, per_block))
            yield Block(task, task.first_draw + n_done, payload, extras, self._changes(task))
            n_done += n

    def _values(self, task: Evaluate) -> Values:
        """Sums over the shards of a task; coded ones if it has coefficients."""
        if task.recipes is not None:
            for shard, recipe in zip(task.shards, task.recipes, strict=True):
                self.chains.prepare(shard, recipe)
        found = list(
            self.chains.evaluation.of(
                task.shards,
                task.points,
                with_gradient=task.scales is not None,
                is_check=task.question == CHECK,
            )
        )
        values = summed_values([of_shard.values for of_shard in found], task.coefficients)
        gradients = [
            gradients_on_grid(of_shard.gradients * task.scales).ravel()
            for of_shard in found
            if of_shard.gradients is not None and task.scales is not None
        ]
        return Values(
            task._replace(points=task.points[:0], recipes=None),
            values,
            summed(gradients, task.coefficients) if gradients else None,
        )

    def _surveyed(self, task: Survey) -> Surveyed:
        return Surveyed(
            task, flattened({shard: self.chains.survey(shard) for shard in task.shards})
        )

    def _found(self, task: ShardTask) -> ShardFound:
        (shard,) = task.shards
        found = self.chains.after(shard, task)
        points, numbers = task.points[:0], task.numbers[:0]
        return ShardFound(task._replace(points=points, numbers=numbers, given=NOTHING), found)

    def _payload(self, task: Task, n: int, step: str = "draw") -> tuple[CodedArray, Arrays]:
        key, side = (task.shards, task.chain), self._job.worker_side
        draws = np.stack([self.chains.draw(shard, task.chain, n, step) for shard in task.shards])
        if key not in self._side_states:
            fits = [fit_of(self.chains.state(shard, task.chain) or {}) for shard in task.shards]
            self._side_states[key] = side.start(fits)
        processed, self._side_states[key] = side.process(draws, self._side_states[key])
        return side.encode(task.worker, processed)

    def _changes(self, task: Task) -> Arrays:
        """Arrays of the state that are not those sent with the last block."""
        key = task.shards, task.chain
        chains = {shard: self.chains.state(shard, task.chain) or {} for shard in task.shards}
        state = flattened({_SIDE: self._side_states[key], **chains})
        sent, self._sent[key] = self._sent.get(key, {}), state
        return {name: array for name, array in state.items() if sent.get(name) is not array}

    def _restore(self, task: Task, start: Arrays) -> None:
        for shard in task.shards:
            self.chains.restore(shard, task.chain, part(start, shard), task.first_draw)
        self._side_states[task.shards, task.chain] = part(start, _SIDE)

    def _wait(self, worker: int, spent: float) -> None:
        self._n_blocks[worker] += 1
        handicap, n_blocks = self._handicaps.get(worker, Handicap()), self._n_blocks[worker]
        if n_blocks == handicap.dies_after:
            os._exit(137)
        if handicap.factor > 1 or handicap.tail_index is not None:
            times = self._streams.uniforms(Purpose.TIMES, [(worker, 0)], n_blocks, 1, 1)
            self._pulse.wait(handicap.seconds(spent, float(times[0, 0, 0])))


def surveyed(target: Target) -> Arrays:
    """What a survey finds: a mode, its curvature and other modes; nothing if there is no mode.

    Models that search by themselves, those with groups, are not searched for other modes: their
    integrals are too costly.
    """
    if isinstance(target.model, SearchingModel):
        mode, cov = target.model.rough_fit(target.shard, target.n_shards)
        recipe = target.model.recipe(target.shard)
        more = {} if recipe is None else {RECIPE: recipe}
        return {"mode": mode, "lower": np.linalg.cholesky(cov), **more}
    try:
        starting_point(target)
    except ImproperError:
        return NOTHING
    try:
        fit = laplace_fit(target, _SURVEY_STEPS if target.dim <= _FEW else _FEWER_STEPS)
    except NotConvergedError:
        smooth = fit_of_shard(target)
        return NOTHING if smooth is None else {"mode": smooth.mean, "lower": smooth.lower}
    except (ImproperError, BadInputError):
        return NOTHING
    base = Base.around(fit)
    return {"mode": base.mean, "lower": base.lower, **other_modes(target, fit)}
