"""What people call to draw from a posterior: `sample`, `stream`, `resume` and `check`."""

import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from quorate.data.write import ShardSet, Transform, write_shards
from quorate.engines.packing import code_print, packed, unpacked
from quorate.errors import ChangedModelWarning, LostShardError, named_shards, require
from quorate.journal import Journal, JournalReader, run_event
from quorate.models.protocol import Model
from quorate.protocol.coding.agreement import check_determinism
from quorate.results.result import Result
from quorate.run.history import Story
from quorate.run.progress import Listener, LiveTable, Progress, plain_lines
from quorate.run.run import N_POINTS, Run
from quorate.run.settings import OnLostShard, Settings
from quorate.run.stopping import Stopping
from quorate.samplers import make_sampler
from quorate.samplers.own import Draws
from quorate.samplers.protocol import Sampler
from quorate.trust.verdict import Verdict

_SHARDS, _JOB = "shards", "model.pkl"
_RUNNING = "running"
_PYTHON = ".".join(map(str, sys.version_info[:3]))
_AS_THEY_ARE: dict[str, Any] = {"slow": None, "dead": None, "straggle": None}  # no more delays


def sample(
    model: Model,
    data: object,
    *,
    workers: int = 8,
    redundancy: int | None = None,
    scheme: str = "grouped",
    draws: int = 2000,
    seed: int = 1,
    sampler: str | Draws | Sampler = "auto",
    thin: int = 1,
    engine: str = "process",
    processes: int | None = None,
    ray_address: str | None = None,
    max_time: float | None = None,
    target_ess: float | None = None,
    run_dir: str | Path | None = None,
    progress: bool | Listener = True,
    check: bool = True,
    on_lost_shard: OnLostShard = "raise",
    restarts: int = 5,
    by: str = "shuffle",
    columns: Sequence[str] | None = None,
    transform: Transform | None = None,
    pairing: str | None = None,
    weights: str | None = None,
    cov_ridge: float = 0.0,
    precision: str = "exact",
    precision_ridge: float | None = None,
    code: str = "grouped",
    checked: bool = True,
    gap: int | None = None,
    slow: str | None = None,
    dead: str | None = None,
    straggle: float | None = None,
) -> Result:
    """Draw from the posterior of a model.

    The run ends with the number of draws asked for, enough effective draws, the end of its time or
    Ctrl-C, whichever is first, and gives what was drawn by then.

    Parameters
    ----------
    model
        Whose posterior to draw from.
    data
        Arrays by name, a pandas, polars or Arrow table, or Parquet files; rows are cut into as many
        shards as there are workers.
    workers, redundancy, scheme
        K, r and one of `quorate.protocol.schemes.SCHEMES`. r is 2 by default, 1 where there is one
        worker.
        There may be more workers than cores.
    draws
        Global draws to get.
    sampler, thin
        One of `quorate.samplers`, or one of your own, and how many of its steps make a draw.
    engine, processes, ray_address
        Where workers live: `process`, of this machine, or `ray`. Fewer processes than workers: they
        share them. More: the others stand by for those that are lost. With Ray a cluster is
        started on this machine unless the address of one is given.
    max_time, target_ess
        Seconds after which to stop; effective draws of every parameter that are enough.
    run_dir
        Folder for shards, journal and logs, a temporary one by default.
    progress
        Whether to show how far the run is; or what to call with a `quorate.run.progress.Progress`.
    check
        Whether to hold the merge against the posterior in the end, for `Result.verdict`. Takes a
        quarter of the time of the run at most, or ten seconds if that is more.
    on_lost_shard, restarts
        What to do when nobody alive holds a shard: `raise`, or `exclude` its rows from the
        posterior; and how often in a row a worker is started again.
    by, columns, transform
        How rows are given to shards, and what of them; see `quorate.data.write.write_shards`.
    pairing, weights, cov_ridge, precision, precision_ridge, code, checked, gap
        Of the scheme; see `quorate.protocol.schemes.scheme_maker`. By default every draw is used,
        weights
        are shrunk towards what warm-up found, and coded sums are exact and checked.
    slow, dead, straggle
        Delays put in on purpose: `1x10` makes worker 0 ten times slower, `2@5` ends two workers
        after five blocks, and a tail index draws a Pareto factor for every block.
    """
    settings = Settings(
        workers=workers,
        redundancy=redundancy,
        scheme=scheme,
        draws=draws,
        seed=seed,
        max_time=max_time,
        target_ess=target_ess,
        engine=engine,
        processes=processes,
        restarts=restarts,
        on_lost_shard=on_lost_shard,
        pairing=pairing,
        weights=weights,
        cov_ridge=cov_ridge,
        precision=precision,
        precision_ridge=precision_ridge,
        code=code,
        checked=checked,
        gap=gap,
        slow=slow,
        dead=dead,
        straggle=straggle,
        ray_address=ray_address,
    )
    rows = {"by": by, "columns": columns, "transform": transform}
    method, n_points = make_sampler(sampler, thin), N_POINTS if check else 0
    with _new_run(model, data, method, settings, run_dir, rows, n_points) as run:
        return _finish(run, progress)


def stream(
    model: Model,
    data: object,
    *,
    every: float = 0.5,
    sampler: str | Draws | Sampler = "auto",
    thin: int = 1,
    run_dir: str | Path | None = None,
    by: str = "shuffle",
    columns: Sequence[str] | None = None,
    transform: Transform | None = None,
    **settings: Any,
) -> Iterator[Result]:
    """Draw from a posterior, and look at it while it grows.

    Yields a `Result` of all draws released so far whenever there are more, but at most one in
    `every` seconds, and at the end the last one. Closing the iterator ends the run. All other
    words are those of `sample`.
    """
    rows = {"by": by, "columns": columns, "transform": transform}
    method, asked = make_sampler(sampler, thin), Settings(**settings)
    with _new_run(model, data, method, asked, run_dir, rows) as run:
        n_shown, next_look = 0, 0.0
        for n_draws in run.steps(_silence):
            if n_draws > n_shown and run.seconds >= next_look:
                n_shown, next_look = n_draws, run.seconds + every
                yield run.result(_RUNNING)
        yield run.final_result()


def resume(
    run_dir: str | Path,
    model: Model | None = None,
    *,
    draws: int | None = None,
    seed: int | None = None,
    engine: str | None = None,
    processes: int | None = None,
    ray_address: str | None = None,
    max_time: float | None = None,
    target_ess: float | None = None,
    progress: bool | Listener = True,
    check: bool = True,
    on_lost_shard: OnLostShard | None = None,
) -> Result:
    """Go on with a run that was interrupted, killed or ran out of time.

    All draws in its journal count. Where no model is given, the one that was kept with the run is
    loaded, which executes its code: resume only runs that you trust.

    Parameters
    ----------
    model
        Has to have the parameters of the one before; a warning is given if its code differs.
    draws
        More of them than were asked for before, if wanted.
    seed
        To be sure: has to be that of the run.
    engine, ray_address, on_lost_shard
        As for `sample`, from now on; what they were before, if not given.
    processes, max_time, target_ess, progress, check
        As for `sample`, from now on.
    """
    folder, n_points = Path(run_dir), N_POINTS if check else 0
    with Journal.open(folder) as journal, JournalReader(folder) as reader:
        kept = reader.configuration()
        before = Settings(**kept["settings"])
        require(seed in (None, before.seed), "seed", seed, f"the run was made with {before.seed}")
        settings = replace(
            before,
            draws=before.draws if draws is None else draws,
            engine=engine or before.engine,
            processes=processes,
            ray_address=ray_address or (None if engine else before.ray_address),
            max_time=max_time,
            target_ess=target_ess,
            on_lost_shard=on_lost_shard or before.on_lost_shard,
            **_AS_THEY_ARE,
        )
        settings.check_engine()
        things = unpacked((folder / _JOB).read_bytes())
        if model is not None:
            _check_same_model(model, kept)
            things["model"] = model
        stopping = Stopping(max_time, target_ess)
        shards = _same_shards(folder, kept)
        made_of = things["model"], things["sampler"], shards
        run = Run(*made_of, settings, folder, journal, stopping, n_points)
        run.replay(reader)
        journal.append([run_event(run.seconds, "resumed", settings=asdict(settings))])
        with stopping.on_signals():
            return _finish(run, progress)


def check(
    run: str | Path | Result,
    *,
    points: int = N_POINTS,
    processes: int | None = None,
    max_time: float | None = None,
) -> Verdict:
    """Hold the merged draws of a run against its posterior, and say whether to trust them.

    Workers evaluate the log density of their shards at points around the merge. The model that was
    kept with the run is loaded, which executes its code: check only runs that you trust. The
    verdict is written to the run's folder, too.

    Parameters
    ----------
    run
        Its folder, or its result. It must have ended.
    points
        At which to evaluate the posterior.
    processes, max_time
        As for `sample`.
    """
    require(points >= 1, "points", points, "use some hundreds")
    folder = Path(run.run_dir if isinstance(run, Result) else run)
    with Journal.open(folder) as journal, JournalReader(folder) as reader:
        kept = reader.configuration()
        with Story(folder) as story:
            story.read()
        lacking = f"its draws are without the rows of {named_shards(story.excluded)}: resume "
        lacking += "it, to have them back, and then check"
        require(not story.excluded, "run", str(folder), lacking)
        settings = replace(story.settings, processes=processes, **_AS_THEY_ARE)
        things = unpacked((folder / _JOB).read_bytes())
        stopping = Stopping(None, None)
        made_of = things["model"], things["sampler"], _same_shards(folder, kept)
        checked = Run(*made_of, settings, folder, journal, stopping, points)
        checked.replay(reader)
        with stopping.on_signals():
            return checked.check(max_time)


@contextmanager
def _new_run(
    model: Model,
    data: object,
    sampler: Sampler,
    settings: Settings,
    run_dir: str | Path | None,
    rows: dict[str, Any],
    n_points: int = 0,
) -> Iterator[Run]:
    """A run with all its files, and what becomes of signals while it is there."""
    _check_model(model)
    settings.make_scheme(model.dim)  # what is wrong with it is said before rows are read
    settings.handicaps()
    if settings.scheme == "coded":
        check_determinism(sampler)
    settings.check_engine()
    things = packed({"model": model, "sampler": sampler})
    stopping = Stopping(settings.max_time, settings.target_ess)
    with stopping.on_signals(), _folder(run_dir) as folder:
        shards = write_shards(data, settings.workers, folder / _SHARDS, seed=settings.seed, **rows)
        (folder / _JOB).write_bytes(things)
        with Journal.create(folder, _configuration(model, sampler, settings, shards)) as journal:
            journal.append([run_event(0.0, "started")])
            yield Run(model, sampler, shards, settings, folder, journal, stopping, n_points)


def _finish(run: Run, progress: bool | Listener) -> Result:
    """Go on to the end, and let people watch."""
    with _watched(progress) as listen:
        for _ in run.steps(listen):
            pass
    return run.final_result()


@contextmanager
def _watched(progress: bool | Listener) -> Iterator[Listener]:
    if callable(progress):
        yield progress
    elif not progress:
        yield _silence
    elif sys.stderr.isatty():
        with LiveTable() as listen:
            yield listen
    else:
        yield plain_lines()


def _silence(progress: Progress) -> None:
    """Nobody watches."""


def _configuration(
    model: Model, sampler: Sampler, settings: Settings, shards: ShardSet
) -> dict[str, Any]:
    """What is kept in the journal about a run: enough to say what it is, and whether it fits."""
    return {
        "settings": asdict(settings),
        "sampler": sampler.name,
        "dim": model.dim,
        "names": list(model.names),
        "code": code_print(model),
        "shards": list(shards.fingerprints),
        "rows": list(shards.n_rows),
        "versions": {"quorate": version("quorate"), "numpy": version("numpy"), "python": _PYTHON},
    }


def _check_model(model: Model) -> None:
    needed = ("dim", "names", "initial", "log_prior", "log_likelihood", "constrain")
    lacking = [name for name in needed if not hasattr(model, name)]
    require(
        not lacking,
        "model",
        type(model).__name__,
        f"it has no {', '.join(lacking)}: get one from quorate.models",
    )


def _check_same_model(model: Model, kept: dict[str, Any]) -> None:
    _check_model(model)
    names = list(model.names)
    require(names == kept["names"], "model", names, f"the run has parameters {kept['names']}")
    if code_print(model) != kept["code"]:
        warnings.warn(
            "the code of the model is not what it was when the run began: draws of both are mixed "
            "if its density has changed",
            ChangedModelWarning,
            stacklevel=3,
        )


def _same_shards(folder: Path, kept: dict[str, Any]) -> ShardSet:
    shards = ShardSet.open(folder / _SHARDS)
    require(
        list(shards.fingerprints) == kept["shards"],
        "data",
        str(shards.folder),
        "the shards are not those that the run began with",
    )
    for number in range(len(kept["shards"])):
        shards.shard(number).verify()
    return shards


@contextmanager
def _folder(run_dir: str | Path | None) -> Iterator[Path]:
    """The run's folder; one of our own making goes again if a run breaks that was worth nothing."""
    if run_dir is not None:
        yield Path(run_dir)
        return
    folder = Path(tempfile.mkdtemp(prefix="quorate-"))
    try:
        yield folder
    except (LostShardError, KeyboardInterrupt):
        raise  # it can be gone on with
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
