"""`quorate sample`, `quorate resume` and `quorate summary`."""

import importlib.util
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
import cloudpickle

from quorate._extras import require_installed
from quorate._registry import option_names
from quorate.api import resume, sample
from quorate.cli.console import err, out
from quorate.cli.exporting import check_output, output_option, write_output
from quorate.cli.flags import WithFlags, as_typed
from quorate.cli.formulas import formula_options, regression_of_files
from quorate.cli.in_place import tell_of_sites
from quorate.cli.options import RUN, options_of, options_of_registry, taken, taken_of_registry
from quorate.cli.tables import show, summary_table
from quorate.cli.watching import tell_address
from quorate.data.complete import NA
from quorate.data.cut import COMMAND, Cut
from quorate.engines.faults import Faults
from quorate.engines.options import ENGINES
from quorate.errors import BadInputError, JournalError, LostShardError, SaveError, require
from quorate.live.beside import NEEDED, page_beside
from quorate.models.protocol import Model
from quorate.protocol.schemes import SCHEMES, chosen
from quorate.results.result import Result
from quorate.results.saved import load_story, load_summary
from quorate.run.folder import chosen_folder, dated_folder
from quorate.run.history import History
from quorate.run.progress import Listener
from quorate.run.progress_shown import json_lines
from quorate.run.settings import METHODS, Settings
from quorate.run.stopping import DONE, ENOUGH, Until
from quorate.samplers import SAMPLERS, make_sampler
from quorate.trust.verdict import GOOD

_STOPPED_EARLY = 3  # exit code of a run that has a result, but not all of it
_FAILED = 4  # exit code of a run that has none

# The settings that are options of the command line; `by`, `until` and `faults` are taken apart.
_PLAIN = (
    "method", "workers", "redundancy", "scheme", "draws", "seed", "engine", "sampler",
    "on_lost_shard",
)  # fmt: skip
_OF_ANY_SITTING = ("draws", "seed", "engine", "on_lost_shard")
METAVARS = {
    "method": "|".join(METHODS),
    "workers": "K",
    "redundancy": "R",
    "draws": "L",
    "scheme": "|".join(SCHEMES),
    "engine": "|".join(ENGINES),
    "sampler": "|".join(SAMPLERS),
    "on_lost_shard": "raise|exclude",
    "time": "SECONDS",
    "slow": "NxF",
    "dead": "N[@B]",
    "straggle": "TAIL",
    "by": "shuffle|files|stratify:COLUMN|group:COLUMN|in-place",
    "scratch": "DIR",
}
_OF_THE_POSTERIOR = ("formula", "family", "prior", "allow_python", "na", "columns", "by")
FLAGS = {"time": "max-time", "ess": "target-ess"}
WATCH = click.option("--watch", is_flag=True, help="Serve a live page, and print its address.")
JSON = click.option("--json", "as_json", is_flag=True, help="Report progress as JSON lines.")
CHECK = options_of(Settings, ["check", "every"])
OUTPUT = output_option()


@click.command("sample", cls=WithFlags)
@click.argument("what", nargs=-1, required=True, metavar="[MODEL.py:NAME] DATA...")
@formula_options
@options_of(Settings, _PLAIN, metavars=METAVARS)
@click.option("--thin", type=int, metavar="N", help="Keep every N-th step of the sampler.")
@options_of(Until, flags=FLAGS, metavars=METAVARS)
@options_of(Cut, ["by", "scratch"], metavars=METAVARS)
@click.option("--columns", metavar="A,B,…", help="Read only these columns of the data.")
@options_of_registry(SCHEMES, leave_out=["redundancy"])
@options_of_registry(ENGINES)
@options_of(Faults, metavars=METAVARS)
@options_of(Settings, ["run_dir"], metavars={"run_dir": "DIR"})
@OUTPUT
@CHECK
@WATCH
@JSON
def sample_command(
    what: tuple[str, ...],
    formula: str | None,
    family: str | None,
    prior: tuple[str, ...],
    allow_python: bool,
    na: NA,
    thin: int | None,
    columns: str | None,
    run_dir: str | None,
    output: Path | None,
    watch: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Draw from the posterior of a model on this machine, or on a Ray cluster."""
    check_output(output)
    settings, is_in_place = _settings(options, thin), Cut(options["by"]).is_in_place
    require_installed({**settings["engine"].needs, **(NEEDED if watch else {})})
    if formula is None:
        require(len(what) >= 2, "Give MODEL.py:NAME and then data, or a --formula and data.")
        model, files = _load(what[0]), list(what[1:])
        require(not (prior or family), "--prior and --family belong to a --formula.")
        cut = Cut(columns=columns.split(",") if columns else None, na=na)
    else:
        files, cut = list(what), Cut()
        where = {name: given for name, given in settings.items() if name in ("workers", "engine")}
        model = regression_of_files(
            formula,
            files,
            family,
            prior,
            in_place=where if is_in_place else None,
            allow_python=allow_python,
            na=na,
        )
    if is_in_place:
        tell_of_sites(files)
    command = as_typed(click.get_current_context(), what, _OF_THE_POSTERIOR)
    made_by = {**(cut.made_by or {}), COMMAND: command}
    settings["by"] = replace(cut, made_by=made_by, **taken(options, ["by", "scratch"]))
    with told(output) as tell, folder_of(run_dir, files) as folder:
        with page_beside(folder, tell_address) if watch else nullcontext():
            progress = progress_of(as_json)
            result = sample(model, files, run_dir=folder, progress=progress, **settings, **options)
        tell(result)


def folder_of(run_dir: str | None, files: Sequence[str]) -> AbstractContextManager[Path]:
    """The folder that is named, or one with today's date and the name of the data."""
    if run_dir is not None:
        return nullcontext(Path(run_dir))
    return chosen_folder(dated_folder(Path(files[0]).stem))


def _settings(options: dict[str, Any], thin: int | None) -> dict[str, Any]:
    """Settings as `sample` takes them, made from options that are removed from `options`."""
    named = taken(options, _PLAIN)
    if thin is not None:
        named["sampler"] = make_sampler(named.get("sampler", _default("sampler")), thin)
    scheme, engine = named.pop("scheme", _default("scheme")), named.pop("engine", None)
    of_scheme = taken_of_registry(options, SCHEMES) | taken(named, ["redundancy"])
    return {
        **named,
        "scheme": chosen(scheme, of_scheme),
        **of_sitting(options, engine or _default("engine")),
        "faults": Faults(**taken(options, option_names(Faults))),
        **taken(options, ["check", "every"]),
    }


def of_sitting(options: dict[str, Any], engine: str | None) -> dict[str, Any]:
    """The engine and the limits of a sitting; the engine stays None if nothing is said of it."""
    of_engine = taken_of_registry(options, ENGINES)
    if engine is None and of_engine:
        engine = _engine_with(of_engine)
    made = None if engine is None else ENGINES.chosen(engine, of_engine)
    return {"engine": made, "until": Until(**taken(options, option_names(Until)))}


def _engine_with(of_engine: Collection[str]) -> str:
    """The first engine that has these options, the default one before others, or if none has."""
    usual = str(_default("engine"))
    known = {name: option_names(ENGINES[name]) for name in (usual, *ENGINES)}
    return next((name for name in known if set(of_engine).issubset(known[name])), usual)


def _default(name: str) -> Any:
    return next(field.default for field in fields(Settings) if field.name == name)


@click.command("resume", cls=WithFlags)
@RUN
@options_of(Settings, _OF_ANY_SITTING, metavars=METAVARS, show_defaults=False)
@options_of(Until, flags=FLAGS, metavars=METAVARS)
@options_of_registry(ENGINES, show_defaults=False)
@OUTPUT
@CHECK
@WATCH
@JSON
def resume_command(
    run_dir: Path, output: Path | None, as_json: bool, watch: bool, **options: Any
) -> None:
    """Resume a run that was interrupted, killed or ran out of time.

    Options that are not given stay as they were. This executes the model that is stored with the
    run: resume only runs that you trust.
    """
    check_output(output)
    if watch:
        with History(run_dir):
            pass  # raises now what makes it unreadable
    engine = taken(options, ["engine"]).get("engine")
    changes = of_sitting(options, engine) | taken(options, list(options))
    with told(output) as tell:
        with page_beside(run_dir, tell_address) if watch else nullcontext():
            result = resume(run_dir, progress=progress_of(as_json), **changes)
        tell(result)


def progress_of(as_json: bool) -> bool | Listener:
    """What `sample` takes as `progress`."""
    return json_lines() if as_json else True


@contextmanager
def told(output: Path | None) -> Iterator[Callable[[Result], None]]:
    """Show and write the result of a run, or the error that ended it, and choose the exit code."""

    def tell(result: Result) -> None:
        write_output(result, output)
        _tell(result)

    try:
        yield tell
    except LostShardError as error:
        err.print(f"Error: {error}", soft_wrap=True)
        tell(error.result)
    except (JournalError, SaveError) as error:
        if error.result is None:
            raise
        err.print(f"Error: {error}", soft_wrap=True, markup=False)
        _tell_elsewhere(error.result)
        raise SystemExit(_FAILED) from None
    except KeyboardInterrupt as interrupt:
        if not interrupt.args:
            raise
        err.print(str(interrupt), soft_wrap=True)
        raise SystemExit(_FAILED) from None


def _tell_elsewhere(result: Result) -> None:
    """Show and save the draws of a run whose own folder fails."""
    show(summary_table(result.summary_rows().items()))
    folder = tempfile.mkdtemp(prefix="quorate-")
    replace(result, run_dir=folder).save()
    err.print(f"The draws so far are saved in {folder}", soft_wrap=True, markup=False)


def _tell(result: Result) -> None:
    how_to_go_on = f"Resume with: quorate resume {result.run_dir}"
    if not result.n_draws:
        err.print(f"No draws: {result.stopped} before every shard had one.")
        err.print(how_to_go_on, soft_wrap=True)
        raise SystemExit(_FAILED)
    show(summary_table(result.summary_rows().items()))
    out.print(repr(result)[1:-1], soft_wrap=True)
    if result.verdict is not None and result.verdict.in_short != GOOD:
        out.print(f"Verdict: {result.verdict}", soft_wrap=True, markup=False)
    err.print(f"Written: {result.run_dir}", soft_wrap=True)
    if result.stopped not in (DONE, ENOUGH):
        err.print(how_to_go_on, soft_wrap=True)
        raise SystemExit(_STOPPED_EARLY)


@click.command("summary")
@RUN
def summary_command(run_dir: Path) -> None:
    """Print the summary table of a run, and what happened in it."""
    show(summary_table(load_summary(run_dir).items()))
    if history := load_story(run_dir):
        out.print(f"Result: {history}", soft_wrap=True, markup=False)


def _load(spec: str) -> Model:
    """The object NAME of the file MODEL.py."""
    file, _, name = spec.rpartition(":")
    path = Path(file)
    require(path.is_file(), f"No file {file!r}. Write MODEL.py:NAME, a file and a name in it.")
    module_name = re.sub(r"\W", "_", f"model_file_{path.resolve()}")  # no library has this one
    found = importlib.util.spec_from_file_location(module_name, path)
    require(found is not None, f"{file!r} must end in .py.")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.path.append(str(path.parent.resolve()))  # last: a file there must not hide a library
    try:
        found.loader.exec_module(module)
    except Exception as error:
        raise BadInputError(
            f"{file!r} cannot be run ({type(error).__name__}: {error}). Mend the file."
        ) from None
    cloudpickle.register_pickle_by_value(sys.modules.setdefault(module.__name__, module))
    require(hasattr(module, name), f"{file!r} has no {name!r}. Write MODEL.py:NAME.")
    model: Model = getattr(module, name)
    return model
