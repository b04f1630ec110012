"""A run opened from its folder, without its model: `quorate.load`. Nothing in it is executed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from quorate._types import Array
from quorate.errors import BadInputError
from quorate.journal import WorkerEvent
from quorate.models.axes import Axes
from quorate.models.protocol import Shard
from quorate.models.scales import Scale, kept_scales
from quorate.protocol.messages import Note
from quorate.protocol.timeline import Timeline
from quorate.results import saved
from quorate.results.result import Result
from quorate.run.history import History
from quorate.trust.shards import ShardFinding
from quorate.trust.verdict import Verdict

_RUNNING = "running"


@dataclass(frozen=True, eq=False)
class StoredModel:
    """What a journal tells of a model, in place of the model: names, dims and coords.

    Parameters
    ----------
    names
        One name for each unconstrained coordinate.
    axes
        Dims and coords of variables.
    scales
        The natural scales of coordinates, as far as the journal tells them.
    draws, variables
        Draws that were saved on the natural scale, and their variables.
    """

    names: tuple[str, ...]
    axes: Axes
    scales: Sequence[Scale | None]
    draws: Array
    variables: Mapping[str, Array] | None
    is_stored: bool = field(default=True, init=False)

    @property
    def dim(self) -> int:
        return len(self.names)

    def constrain(self, draws: Array) -> dict[str, Array]:
        if draws is self.draws and self.variables is not None:
            return dict(self.variables)
        named = zip(self.names, self.scales, np.moveaxis(draws, -1, 0), strict=True)
        return {
            name if scale is None else scale.name: x if scale is None else scale.natural(x)
            for name, scale, x in named
        }

    def initial(self) -> Array:
        _refuse()

    def log_prior(self, x: Array) -> float:
        _refuse()

    def log_likelihood(self, x: Array, shard: Shard) -> float:
        _refuse()

    @property
    def levels(self) -> tuple[Any, ...]:
        """Levels of groups, which only the model knows."""
        _refuse()


def _refuse() -> NoReturn:
    raise BadInputError(
        "This run was loaded without its model, because to open the model executes its code. If "
        "you trust the run, use quorate.resume(RUN), which returns a result with the model."
    )


def load(run_dir: str | Path) -> Result:
    """Open a run, finished or not, without executing the model that is stored with it.

    The result has the draws so far, their summary, tree and plot, the verdict if the draws were
    checked, and the story of the run. What needs the model is refused: parameters of groups and
    predictions. Draws are on the natural scale. Only in a run that is under way, or was killed,
    coordinates that have no variable of their own, such as those of a simplex, stay unconstrained.

    Parameters
    ----------
    run_dir
        Folder of the run.
    """
    folder = Path(run_dir)
    with History(folder) as history:
        history.read()
        draws = history.global_draws()
        variables = _saved_variables(folder, history, len(draws))
        scales = kept_scales(history.configuration.get("scales"), history.dim)
        model = StoredModel(tuple(history.names), _axes(history), scales, draws, variables)
        result = _result(folder, history, model)
    if variables is not None:
        vars(result)["_summary"] = saved.load_summary(folder)
        if saved.load(folder, saved.CHAINS) is not None:
            vars(result)["chain_variables"] = saved.load_draws(folder, saved.CHAINS)
    return result


def _result(folder: Path, history: History, model: StoredModel) -> Result:
    settings, view, passes = history.settings, history.view, history.passes
    return Result(
        model=model,
        unconstrained=model.draws,
        shard_draws=view.shard_draws(),
        weights=view.weights() if len(model.draws) else None,
        timeline=_timeline(history, len(model.draws)),
        scheme=settings.scheme_options.name,
        workers=settings.workers,
        redundancy=settings.shards_per_worker,
        excluded=history.excluded,
        lost=frozenset(history.gone()),
        stopped=history.stopped or _RUNNING,
        run_dir=str(folder),
        verdict=_verdict(folder),
        method=settings.chosen_method,
        n_chains=history.scheme.received.n_chains,
        n_passes=history.n_passes,
        log_evidence=None if passes is None else passes.inquiry.evidence,
    )


def _axes(history: History) -> Axes:
    try:
        return Axes.from_json(history.configuration.get("axes"))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise BadInputError(
            f"The journal does not describe the variables of the run ({error}). Read it with the "
            "quorate that wrote it, or a later one."
        ) from None


def _saved_variables(folder: Path, history: History, n_draws: int) -> dict[str, Array] | None:
    """Draws by name, if they are saved and are those of the journal: it may have grown since."""
    if history.stopped is None or saved.load(folder, saved.DRAWS) is None:
        return None
    variables = saved.load_draws(folder)
    same = bool(variables) and all(len(values) == n_draws for values in variables.values())
    return variables if same else None


def _timeline(history: History, n_draws: int) -> Timeline:
    """When blocks arrived and draws were complete, as the journal tells."""
    blocks = history.blocks()
    timeline = Timeline(
        block_times=blocks.ends.tolist(),
        block_workers=blocks.workers.tolist(),
        block_sizes=blocks.n_draws.tolist(),
        spoken_for=set() if history.passes is None else set(history.passes.spoken_for),
        notes=[
            (event.time, Note(event.worker, event.what, event.text))
            for event in history.events
            if isinstance(event, WorkerEvent)
        ],
        finished=history.n_global >= history.settings.draws,
    )
    for time, n_global in zip(blocks.ends.tolist(), blocks.n_global.tolist(), strict=True):
        timeline.released(time, n_global)
    if n_draws and not timeline.release_times:
        timeline.released(history.seconds, n_draws)
    return timeline


def _verdict(folder: Path) -> Verdict | None:
    """The verdict that was saved; without the points, so draws cannot be corrected with it."""
    content = saved.load(folder, saved.VERDICT)
    if content is None:
        return None
    try:
        found = json.loads(content)
        known = {one.name for one in fields(Verdict)} - {"weighted", "shards"}
        shards = [ShardFinding(**one) for one in found.get("shards", [])]
        return Verdict(shards=shards, **{name: found[name] for name in known if name in found})
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        path = folder / saved.VERDICT
        raise BadInputError(f"{path} is not a verdict that a run writes ({error}).") from None
