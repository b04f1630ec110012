"""`quorate sample` and `quorate summary`."""

import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click
import cloudpickle
from rich.table import Table
from rich.text import Text

from quorate.api import resume, sample
from quorate.cli.console import err, out
from quorate.cli.watching import tell_address
from quorate.data.tables import open_table
from quorate.errors import BadInputError, LostShardError, require
from quorate.live.beside import page_beside
from quorate.models import linear, logistic, negative_binomial, poisson
from quorate.models.formula import design
from quorate.models.protocol import Model
from quorate.protocol.coding.code import CODES
from quorate.protocol.schemes import SCHEMES
from quorate.results.result import Result, load_story, load_summary
from quorate.run.history import History
from quorate.run.progress import Listener, json_lines
from quorate.run.settings import ENGINES
from quorate.run.stopping import DONE, ENOUGH
from quorate.samplers import SAMPLERS
from quorate.trust.verdict import GOOD

_STOPPED_EARLY = 3  # exit code of a run that has a result, but not all of it
_FAILED = 4  # exit code of a run that has none


@click.command("sample")
@click.argument("what", nargs=-1, required=True, metavar="[MODEL.py:NAME] DATA...")
@click.option("--formula", help="Such as 'late ~ hour + origin', in place of a model.")
@click.option(
    "--family",
    default="linear",
    show_default=True,
    metavar="linear|logistic|poisson|negative_binomial",
    help="With --formula.",
)
@click.option("--workers", type=int, default=8, show_default=True, metavar="K")
@click.option("--redundancy", type=int, metavar="R", help="[default: 2, or 1 for one worker]")
@click.option("--scheme", default="grouped", show_default=True, metavar="|".join(SCHEMES))
@click.option("--draws", type=int, default=2000, show_default=True, metavar="L")
@click.option("--sampler", default="auto", show_default=True, metavar="|".join(SAMPLERS))
@click.option("--thin", type=int, default=1, show_default=True, metavar="N")
@click.option("--max-time", type=float, metavar="SECONDS", help="Stop after this time.")
@click.option("--target-ess", type=float, metavar="N", help="Stop at so many effective draws.")
@click.option("--seed", type=int, default=1, show_default=True, metavar="N")
@click.option("--by", default="shuffle", show_default=True, metavar="shuffle|files|stratify:COLUMN")
@click.option("--columns", metavar="A,B,…", help="Columns of the data that the model reads.")
@click.option("--pairing", metavar="paper|all", help="[default: all, paper for coded]")
@click.option("--weights", metavar="shrunk|draws", help="[default: shrunk, draws with a ridge]")
@click.option("--cov-ridge", type=float, default=0.0, show_default=True, metavar="X")
@click.option("--precision", default="exact", show_default=True, metavar="exact|estimated")
@click.option("--precision-ridge", type=float, metavar="Y", help="Of estimated precisions.")
@click.option("--gap", type=int, metavar="N", help="Of the adaptive scheme: use spare slots.")
@click.option("--code", default="grouped", show_default=True, metavar="|".join(CODES))
@click.option("--engine", default="process", show_default=True, metavar="|".join(ENGINES))
@click.option("--ray-address", metavar="HOST:PORT", help="Of a Ray cluster that runs, or auto.")
@click.option("--run-dir", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.option("--processes", type=int, metavar="N", help="Fewer or more than workers.")
@click.option("--restarts", type=int, default=5, show_default=True, metavar="N")
@click.option("--on-lost-shard", default="raise", show_default=True, metavar="raise|exclude")
@click.option("--slow", metavar="NxF", help="Make N workers F times slower, on purpose.")
@click.option("--dead", metavar="N[@B]", help="End N workers, after B blocks, on purpose.")
@click.option("--json", "as_json", is_flag=True, help="Tell the progress as lines of JSON.")
@click.option("--straggle", metavar="pareto:TAIL", help="Delay blocks by random factors.")
@click.option("--watch", is_flag=True, help="Serve a live page, and print its address.")
@click.option("--check/--no-check", default=True, help="Hold the merge against the posterior.")
def sample_command(
    what: tuple[str, ...],
    formula: str | None,
    family: str,
    straggle: str | None,
    columns: str | None,
    as_json: bool,
    run_dir: Path | None,
    watch: bool,
    **options: Any,
) -> None:
    """Draw from the posterior of a model on this machine, or on a Ray cluster."""
    tail = _tail_index(straggle)
    reading: dict[str, Any] = {"columns": columns.split(",") if columns else None}
    if formula is None:
        require(len(what) >= 2, "arguments", " ".join(what), "give MODEL.py:NAME and then data")
        model, files = _load(what[0]), list(what[1:])
    else:
        files = list(what)
        model, reading = _regression(formula, family, files)
    options |= {"straggle": tail, "progress": _progress(as_json)}
    with _told() as tell:
        with page_beside(run_dir, tell_address) if watch else nullcontext(run_dir) as folder:
            result = sample(model, files, run_dir=folder, **reading, **options)
        tell(result)


@click.command("resume")
@click.argument("run_dir", type=click.Path(path_type=Path, file_okay=False), metavar="RUN")
@click.option("--draws", type=int, metavar="L", help="More than were asked for before.")
@click.option("--engine", metavar="|".join(ENGINES), help="[default: as before]")
@click.option("--ray-address", metavar="HOST:PORT", help="[default: as before]")
@click.option("--processes", type=int, metavar="N", help="Fewer or more than workers.")
@click.option("--max-time", type=float, metavar="SECONDS", help="Stop after this time.")
@click.option("--target-ess", type=float, metavar="N", help="Stop at so many effective draws.")
@click.option("--seed", type=int, metavar="N", help="To be sure that it is the right run.")
@click.option("--on-lost-shard", metavar="raise|exclude")
@click.option("--watch", is_flag=True, help="Serve a live page, and print its address.")
@click.option("--check/--no-check", default=True, help="Hold the merge against the posterior.")
@click.option("--json", "as_json", is_flag=True, help="Tell the progress as lines of JSON.")
def resume_command(run_dir: Path, as_json: bool, watch: bool, **options: Any) -> None:
    """Go on with a run that was interrupted, killed or ran out of time.

    Executes the model that is kept with the run: resume only runs that you trust.
    """
    if watch:
        with History(run_dir):
            pass  # what cannot be read is told now
    with _told() as tell:
        with page_beside(run_dir, tell_address) if watch else nullcontext():
            result = resume(run_dir, progress=_progress(as_json), **options)
        tell(result)


def _progress(as_json: bool) -> bool | Listener:
    return json_lines() if as_json else True


@contextmanager
def _told() -> Iterator[Callable[[Result], None]]:
    """What becomes of a run, in words and exit codes."""
    try:
        yield _tell
    except LostShardError as error:
        err.print(f"Error: {error}", soft_wrap=True)
        _tell(error.result)


def _tell(result: Result) -> None:
    how_to_go_on = f"Go on with: quorate resume {result.run_dir}"
    if not result.n_draws:
        err.print(f"No draws: {result.stopped} before there was one of every shard.")
        err.print(how_to_go_on, soft_wrap=True)
        raise SystemExit(_FAILED)
    out.print(summary_table(result.summary_rows().items()))
    out.print(repr(result)[1:-1], soft_wrap=True)
    if result.verdict is not None and result.verdict.in_short != GOOD:
        out.print(f"Verdict: {result.verdict}", soft_wrap=True, markup=False)
    err.print(f"Written: {result.run_dir}", soft_wrap=True)
    if result.stopped not in (DONE, ENOUGH):
        err.print(how_to_go_on, soft_wrap=True)
        raise SystemExit(_STOPPED_EARLY)


@click.command("summary")
@click.argument("run_dir", type=click.Path(path_type=Path, file_okay=False), metavar="RUN")
def summary_command(run_dir: Path) -> None:
    """Print the parameters of a run again, and what happened in it."""
    out.print(summary_table(load_summary(run_dir).items()))
    if history := load_story(run_dir):
        out.print(f"Result: {history}", soft_wrap=True, markup=False)


def _tail_index(straggle: str | None) -> float | None:
    if straggle is None:
        return None
    name, _, value = straggle.partition(":")
    try:
        require(name == "pareto", "straggle", straggle, "write pareto:TAIL")
        return float(value)
    except ValueError:
        raise BadInputError("straggle", straggle, "write pareto:TAIL, such as pareto:1.2") from None


def _load(spec: str) -> Model:
    """The object NAME of the file MODEL.py."""
    file, _, name = spec.rpartition(":")
    path = Path(file)
    require(path.is_file(), "model", spec, "write MODEL.py:NAME, a file and a name in it")
    module_name = re.sub(r"\W", "_", f"model_file_{path.resolve()}")  # no library has this one
    found = importlib.util.spec_from_file_location(module_name, path)
    require(found is not None, "model", spec, "the file must end in .py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.path.append(str(path.parent.resolve()))  # last: a file there must not hide a library
    try:
        found.loader.exec_module(module)
    except Exception as error:
        way_out = f"the file cannot be run ({type(error).__name__}: {error})"
        raise BadInputError("model", spec, way_out) from None
    cloudpickle.register_pickle_by_value(sys.modules.setdefault(module.__name__, module))
    require(hasattr(module, name), "model", spec, f"{file} has no {name}")
    model: Model = getattr(module, name)
    return model


def _regression(formula: str, family: str, files: list[str]) -> tuple[Model, dict[str, Any]]:
    """A generalised linear model, and how its rows are made while files stream past."""
    families = {
        "linear": linear,
        "logistic": logistic,
        "poisson": poisson,
        "negative_binomial": negative_binomial,
    }
    require(family in families, "family", family, f"choose one of {', '.join(families)}")
    table = open_table(files)
    learned = design(formula, table.batches(table.names))
    reading = {"columns": learned.variables, "transform": learned.arrays}
    return families[family](learned.names), reading


def summary_table(rows: Iterable[tuple[str, dict[str, float]]]) -> Table:
    """A line for each scalar, with its name; a column for each thing said of it."""
    table, rows = Table(), list(rows)
    table.add_column("parameter", no_wrap=True)
    columns = list(rows[0][1]) if rows else []
    for column in columns:
        table.add_column(column, justify="right")
    for name, row in rows:
        table.add_row(Text(name), *(_shown(column, row[column]) for column in columns))
    return table


def _shown(column: str, value: float) -> str:
    return f"{value:.0f}" if column == "ess" else f"{value:.3f}"
