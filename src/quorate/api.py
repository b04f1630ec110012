"""What people call to draw from a posterior: `sample`, `stream`, `resume` and `check`."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from quorate._extras import require_installed
from quorate._warnings import warn
from quorate.engines.options import EngineOptions
from quorate.engines.packing import code_print, packed
from quorate.errors import ChangedModelWarning, named_shards, require
from quorate.journal import Journal, JournalReader, Resumed
from quorate.models.checks import require_model
from quorate.models.protocol import Model
from quorate.models.understood import understood
from quorate.protocol.coding.agreement import check_determinism
from quorate.results.result import Result
from quorate.run import kept_model
from quorate.run.beginning import KINDS, begun, finished, run_folder
from quorate.run.configuration import SHARDS, configuration_of, same_shards
from quorate.run.few_groups import warn_of_few_groups
from quorate.run.history import History
from quorate.run.in_place import cut_into_shards, settled_for
from quorate.run.progress import Listener, cutting, silence
from quorate.run.progress_shown import shown
from quorate.run.run import N_POINTS, Run
from quorate.run.settings import OnLostShard, Settings
from quorate.run.stopping import Stopping, Until
from quorate.trust.verdict import Verdict

_RUNNING = "running"
P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class _TakesSettings(Protocol, Generic[P, R_co]):
    """A function of a model, data, and the settings of a run by name."""

    def __call__(
        self, model: object, data: object = None, *args: P.args, **settings: P.kwargs
    ) -> R_co: ...


def _with_settings(
    made_of: Callable[P, Settings],
) -> Callable[[Callable[[object, object, Settings], R]], _TakesSettings[P, R]]:
    """Let a function take the fields of `Settings` by name, for people and for editors."""

    def decorate(function: Callable[[object, object, Settings], R]) -> _TakesSettings[P, R]:
        @wraps(function)
        def taking(model: object, data: object = None, *args: P.args, **settings: P.kwargs) -> R:
            unknown = [name for name in settings if name not in listed]
            if unknown:
                raise TypeError(
                    f"{function.__name__} has no setting {' or '.join(unknown)}. Its settings are "
                    f"{', '.join(listed)}."
                )
            return function(model, data, made_of(*args, **settings))

        parameters = inspect.signature(function).parameters
        own = [parameters["model"], parameters["data"].replace(default=None)]
        listed = inspect.signature(made_of).parameters
        whole = inspect.Signature([*own, *listed.values()])
        taking.__signature__ = whole  # type: ignore[attr-defined]
        taking.__doc__ = f"{inspect.getdoc(function)}\n\n{_section(inspect.getdoc(Settings) or '')}"
        return taking

    return decorate


def _section(doc: str) -> str:
    """The parameters of a docstring in numpydoc's form, after those of model and data."""
    _, _, listed = doc.partition("Parameters\n----------\n")
    return (
        "Parameters\n----------\nmodel\n    The model whose posterior to draw from; or a PyMC or "
        "bambi model, or a NumPyro program.\ndata\n    Arrays by name, a pandas, polars or Arrow "
        "table, or Parquet or CSV files. Models of\n    PyMC and bambi hold their own. With "
        "by='in-place', Parquet files that workers read\n    themselves, or such files by the name "
        "of the only site that has them.\n" + listed
    )


@_with_settings(Settings)
def sample(model: object, data: object, settings: Settings) -> Result:
    """Draw from the posterior of a model.

    The run ends with the number of draws asked for, enough effective draws, the end of its time or
    Ctrl-C, whichever is first, and returns the draws so far.
    """
    n_points = N_POINTS if settings.check else 0
    with (
        shown(settings.progress) as listen,
        _new_run(model, data, settings, n_points, listen) as run,
    ):
        return finished(run, listen)


@_with_settings(Settings)
def stream(model: object, data: object, settings: Settings) -> Iterator[Result]:
    """Draw from a posterior, and look at it while it grows.

    Yields a `Result` of all draws released so far whenever there are more, but at most one in
    `every` seconds, and at the end the last one. Closing the iterator ends the run. The results
    have no verdict: `check` the run afterwards.
    """
    listen = settings.progress if callable(settings.progress) else silence
    with _new_run(model, data, settings, 0, listen) as run:
        n_shown, next_look = 0, 0.0
        for n_draws in run.steps(listen):
            if n_draws > n_shown and run.seconds >= next_look:
                n_shown, next_look = n_draws, run.seconds + settings.every
                yield run.result(_RUNNING)
        yield run.final_result()


def resume(
    run_dir: str | Path,
    model: Model | None = None,
    *,
    draws: int | None = None,
    seed: int | None = None,
    engine: str | EngineOptions | None = None,
    until: str | Until | None = None,
    on_lost_shard: OnLostShard | None = None,
    progress: bool | Listener = True,
    every: float = 0.5,
    check: bool = True,
) -> Result:
    """Resume a run that was interrupted, killed or ran out of time.

    All draws in its journal count. Without `model`, the one that is stored with the run is loaded,
    which executes its code: resume only runs that you trust. A stored model that the run did not
    begin with is refused.

    Parameters
    ----------
    run_dir
        Folder of the run.
    model
        Must have the parameters of the one before; a warning is given if its code differs.
    draws
        Number of global draws, if it should be larger than before.
    seed
        A precaution: must be that of the run.
    engine, on_lost_shard
        As for `sample`, from now on; as before, if not given.
    until, progress, every, check
        As for `sample`, from now on.
    """
    folder, n_points = Path(run_dir), N_POINTS if check else 0
    with Journal.open(folder) as journal, JournalReader(folder) as reader:
        kept = configuration_of(reader)
        before = Settings.from_json(kept["settings"])
        require(
            seed in (None, before.seed), f"The run was made with seed {before.seed}, not {seed}."
        )
        settings = before.without_faults(
            draws=before.draws if draws is None else draws,
            engine=engine or before.engine,
            until=until,
            on_lost_shard=on_lost_shard or before.on_lost_shard,
            every=every,
        )
        require_installed(settings.engine_options.needs)
        run = _reopened(folder, kept, settings, journal, n_points, model)
        run.replay(reader)
        journal.append([Resumed(run.seconds, settings.as_json())])
        with run.stopping.on_signals(), shown(progress) as listen:
            return finished(run, listen)


def check(
    run: str | Path | Result,
    model: Model | None = None,
    *,
    points: int = N_POINTS,
    engine: str | EngineOptions | None = None,
    max_time: float | None = None,
) -> Verdict:
    """Check merged draws against the exact posterior density, and say whether to trust them.

    Workers evaluate the log density of their shards at points around the merge. The model that is
    stored with the run is loaded, which executes its code: check only runs that you trust. The
    verdict is also written to the run's folder.

    Parameters
    ----------
    run
        Folder of the run, or its result. The run must have ended.
    model
        As for `resume`.
    points
        Number of points at which to evaluate the posterior.
    engine
        As for `sample`; that of the run by default.
    max_time
        Seconds after which to stop.
    """
    require(points >= 1, f"points must be at least 1, not {points}. Use some hundreds.")
    folder = Path(run.run_dir if isinstance(run, Result) else run)
    with Journal.open(folder) as journal, JournalReader(folder) as reader:
        kept = configuration_of(reader)
        with History(folder) as history:
            history.read()
        require(
            not history.excluded,
            f"The draws of {folder} are without the rows of {named_shards(history.excluded)}. "
            "Resume the run to get them back, and then check it.",
        )
        settings = history.settings.without_faults(engine=engine or history.settings.engine)
        checked = _reopened(folder, kept, replace(settings, until=None), journal, points, model)
        checked.replay(reader)
        with checked.stopping.on_signals():
            return checked.check(max_time)


@contextmanager
def _new_run(
    given: object, data: object, settings: Settings, n_points: int, listen: Listener
) -> Iterator[Run]:
    """A run with all its files, which hears signals while it lives."""
    model, data = understood(given, data, in_place=settings.cut.is_in_place)
    settings = settled_for(data, settings.for_model(model))
    settings.make_scheme(model.dim)  # raises what is wrong with it before rows are read
    sampler = settings.chosen_sampler
    if settings.chosen_method == "merge" and settings.scheme_options.needs_common_randomness:
        check_determinism(sampler)
    require_installed(settings.engine_options.needs)
    packed({"model": model, "sampler": sampler})  # raises now if that cannot be
    stopping = Stopping(settings.chosen_until)
    in_place = settings.cut.is_in_place
    tell = cutting(settings.workers, settings.draws, listen, in_place=in_place)
    with (
        stopping.on_signals(),
        run_folder(settings.run_dir) as folder,
        cut_into_shards(model, data, settings, folder / SHARDS, tell) as shards,
    ):
        if settings.chosen_method == "merge":
            warn_of_few_groups(model, shards)
        with begun(model, sampler, shards, settings, folder, stopping, n_points) as run:
            yield run


def _reopened(
    folder: Path,
    kept: dict[str, Any],
    settings: Settings,
    journal: Journal,
    n_points: int,
    model: Model | None = None,
) -> Run:
    """A run of an earlier sitting, with the model stored with it unless another is given."""
    if model is not None:
        _check_same_model(model, kept)
    stopping, shards = Stopping(settings.chosen_until), same_shards(folder, kept)
    made_of = *kept_model.opened(folder, kept, model), shards
    return KINDS[settings.chosen_method](*made_of, settings, folder, journal, stopping, n_points)


def _check_same_model(model: Model, kept: dict[str, Any]) -> None:
    require_model(model)
    names = list(model.names)
    require(
        names == kept["names"],
        f"The model has parameters {names}, but the run has parameters {kept['names']}.",
    )
    if code_print(model) != kept["code"]:
        warn(
            "The run is being resumed with a model whose code has changed. If its density has "
            "changed too, the draws mix two posteriors.",
            ChangedModelWarning,
        )
