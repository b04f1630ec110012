"""`quorate reproduce` and `quorate simulate`."""

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from quorate.cli.console import Patience, err
from quorate.cli.console import out as console
from quorate.cli.exact_figure import reproduce_exact
from quorate.cli.flags import WithFlags
from quorate.cli.options import options_of_registry
from quorate.cli.scale_figure import reproduce_scale
from quorate.engines.latency import parse_cluster
from quorate.errors import require
from quorate.lab.exact_figure import EXACT, ExactExperiment
from quorate.lab.exact_figure import REALISATIONS as EXACT_REALISATIONS
from quorate.lab.reproduce import (
    TABLE_TIMES,
    AveragedCurve,
    best,
    reproduce,
    reproduce_all,
)
from quorate.lab.scale import MOST_WORKERS, SCALE, ScaleExperiment
from quorate.lab.simulate import SimulationSummary, simulate
from quorate.lab.specs import (
    BEYOND,
    BEYOND_RIDGE,
    FIGURES,
    READINGS,
    Experiment,
    beyond,
    experiment,
)
from quorate.protocol.schemes import COV_RIDGE, SCHEMES

_REALISATIONS = 50
_NEARLY_ALL = 0.985  # shares above are not worth a remark


@click.command("reproduce")
@click.argument("figure", type=click.Choice([*FIGURES, BEYOND, EXACT, SCALE]))
@click.option(
    "--reading",
    type=click.Choice(list(READINGS)),
    default="text",
    show_default=True,
    help="Do what the paper says, or what its authors' scripts do.",
)
@click.option(
    "--realisations",
    type=int,
    metavar="Z",
    help=f"Simulate Z runs.  [default: {_REALISATIONS}; {EXACT_REALISATIONS} for exact]",
)
@click.option(
    "--cov-ridge",
    type=float,
    metavar="X",
    help="Add the ridge σ² to every covariance estimate.  "
    f"[default: the scripts', {COV_RIDGE:g}; {BEYOND_RIDGE} for beyond]",
)
@click.option(
    "--precision-ridge",
    type=float,
    metavar="Y",
    help="Add the ridge σ² to D̂ of C-CMC.  [default: the scripts', 0.5 for fig3, 2 for fig4]",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, metavar="N", help="Set the random seed."
)
@click.option(
    "--scheme",
    "schemes",
    multiple=True,
    metavar="|".join(SCHEMES),
    help="Draw only the curves of this scheme; may be repeated.  [default: the paper's]",
)
@click.option(
    "--workers",
    type=int,
    metavar="K",
    help=f"Simulate at most K workers, for scale.  [default: {MOST_WORKERS:,}]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write to this folder.  [default: results/FIGURE-READING]",
)
def reproduce_command(
    figure: str,
    reading: str,
    realisations: int | None,
    cov_ridge: float | None,
    precision_ridge: float | None,
    seed: int,
    schemes: tuple[str, ...],
    workers: int | None,
    out: Path | None,
) -> None:
    """Reproduce a figure of the paper: fig3 has 5 workers, fig4 has 40.

    beyond draws both, with the adaptive scheme and its limit, the genie. exact compares
    merges with exact draws, on two posteriors that are not Gaussian. scale shows what runs cost on
    up to 100,000 processes.
    """
    is_ours = figure in (BEYOND, EXACT, SCALE)
    folder = out or Path("results") / (figure if is_ours else f"{figure}-{reading}")
    if is_ours:
        only_text = reading == "text" and not schemes and precision_ridge is None
        require(only_text, f"{figure} has schemes and a reading of its own. Leave out the options.")
    if figure == SCALE:
        only_seed = cov_ridge is None and realisations is None
        require(only_seed, "scale has one realisation and no ridge. Leave out the options.")
        most = MOST_WORKERS if workers is None else workers
        _tell(reproduce_scale(ScaleExperiment(seed=seed).up_to(most), folder))
        return
    require(workers is None, f"--workers is for scale: {figure} has its own. Leave it out.")
    if figure == EXACT:
        require(cov_ridge is None, "exact has no ridge. Leave out --cov-ridge.")
        n = EXACT_REALISATIONS if realisations is None else realisations
        _tell(reproduce_exact(ExactExperiment(n, seed), folder))
        return
    realisations = _REALISATIONS if realisations is None else realisations
    if figure == BEYOND:
        ridge = BEYOND_RIDGE if cov_ridge is None else cov_ridge
        _reproduce_beyond(beyond(realisations=realisations, seed=seed, cov_ridge=ridge), folder)
        return
    spec = experiment(
        figure,
        reading,
        realisations=realisations,
        seed=seed,
        cov_ridge=COV_RIDGE if cov_ridge is None else cov_ridge,
        precision_ridge=precision_ridge,
        schemes=schemes,
    )
    from quorate.lab.output import make_folder, write  # matplotlib is slow to import

    make_folder(folder)
    with Patience(f"{figure}, {reading}") as patience:
        curves = reproduce(spec, patience.report)
    paths = write(spec, curves, folder)
    console.print(_winners(spec, curves))
    _tell(paths)


def _reproduce_beyond(panels: list[list[Experiment]], folder: Path) -> None:
    from quorate.lab.output import make_folder, write_beyond

    make_folder(folder)
    specs = [spec for panel in panels for spec in panel]
    with Patience(BEYOND) as patience:
        found = iter(reproduce_all(specs, patience.report))
    results = [[(spec, next(found)) for spec in panel] for panel in panels]
    paths = write_beyond(results, folder)
    for panel in results:
        curves = [curve for _, curves in panel for curve in curves]
        console.print(_winners(panel[0][0], curves, coded=f" ({COV_RIDGE:g} for C-CMC)"))
    _tell(paths)


def _tell(paths: list[Path]) -> None:
    console.print("Written: " + ", ".join(str(path) for path in paths), soft_wrap=True)


@click.command("simulate", cls=WithFlags)
@click.option("--scheme", required=True, metavar="|".join(SCHEMES), help="Simulate this scheme.")
@click.option(
    "--method",
    type=click.Choice(["merge", "exact"]),
    default="merge",
    show_default=True,
    help="Merge draws of shards, or draw by passes over the posterior.",
)
@click.option("--workers", type=int, required=True, metavar="K", help="Simulate K workers.")
@click.option(
    "--redundancy", type=int, metavar="R", help="Give each shard R holders.  [default: 1]"
)
@click.option(
    "--draws",
    type=int,
    default=100,
    show_default=True,
    metavar="L",
    help="Stop after L global draws.",
)
@click.option(
    "--latency",
    default="pareto:0.1,1.2",
    show_default=True,
    metavar="MODEL:…",
    help="Take computing times of a draw from a model: pareto:MEAN,TAIL_INDEX, exponential:MEAN, "
    "shifted-exponential:SHIFT,MEAN or trace:FILE.",
)
@click.option("--slow", metavar="NxF", help="Make N random workers F times slower.")
@click.option("--dead", metavar="N[@T]", help="Let N workers be dead from the start, or from T on.")
@click.option(
    "--per-draw", is_flag=True, help="Give each draw a time of its own, not each batch of R draws."
)
@click.option(
    "--copy-cost",
    type=float,
    default=0.0,
    metavar="T",
    help="Let the copy to a spare slot take time T.",
)
@click.option(
    "--realisations", type=int, default=100, show_default=True, metavar="Z", help="Simulate Z runs."
)
@click.option(
    "--seed", type=int, default=0, show_default=True, metavar="N", help="Set the random seed."
)
@options_of_registry(SCHEMES, leave_out=["redundancy"], show_defaults=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate_command(
    scheme: str,
    workers: int,
    redundancy: int | None,
    latency: str,
    slow: str | None,
    dead: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Time a scheme in virtual time, over many realisations.

    Options of the scheme that are not given are those of the paper's experiments.
    """
    model = parse_cluster(latency, slow, dead)
    with Patience(f"{scheme}, {workers} workers") as patience:
        summary = simulate(
            scheme, workers, redundancy, latency=model, progress=patience.report, **options
        )
    if redundancy not in (None, summary.redundancy):
        err.print(f"note: {scheme} ignores --redundancy; it is {summary.redundancy} here")
    if as_json:
        click.echo(json.dumps(summary.as_json()))
    else:
        console.print(_described(summary))


_WASTED = {"merge": "draws no global draw uses", "exact": "points evaluated for nothing"}


def _described(summary: SimulationSummary) -> Table:
    table = Table(
        title=f"{summary.scheme}, {summary.workers} workers, redundancy "
        f"{summary.redundancy}, {summary.draws} draws",
        show_header=False,
    )
    rows = {
        "time to all draws, median": _time(summary.median),
        "90 % of runs": _time(summary.p90),
        "99 % of runs": _time(summary.p99),
        "runs that never finish": f"{summary.share_unfinished:.1%}",
        "error at the end, mean": "–" if summary.error is None else f"{summary.error:.3g}",
        _WASTED[summary.method]: f"{summary.wasted_share:.1%}",
        "floats sent for a global draw": f"{summary.floats_per_draw:.0f}",
    }
    if summary.passes is not None:
        rows["passes over the posterior"] = f"{summary.passes}"
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _winners(spec: Experiment, curves: list[AveragedCurve], coded: str = "") -> Table:
    """Errors at a few times, the smallest of each with a star.

    `coded` says where C-CMC was done in another way.
    """
    table = Table(
        title=f"{spec.figure.title}: who wins when, reading “{spec.reading.name}”",
        caption="mean error of eq. (3), * the smallest; in brackets the share of realisations "
        f"with a draw by then, if not all\n{spec.realisations} realisations, seed {spec.seed}, "
        f"ridges {spec.cov_ridge:g} on Ĉ{coded} and {spec.precision_ridge:g} on D̂",
        min_width=72,
        collapse_padding=True,
    )
    table.add_column("scheme", no_wrap=True)
    table.add_column("r", no_wrap=True)
    for moment in TABLE_TIMES:
        table.add_column(f"t = {moment:g}", justify="right", no_wrap=True)
    winners = {moment: best(curves, moment) for moment in TABLE_TIMES}
    for averaged in curves:
        cells = [_cell(averaged, t, smallest=averaged is winners[t]) for t in TABLE_TIMES]
        table.add_row(averaged.curve.label, str(averaged.curve.redundancy), *cells)
    return table


def _cell(averaged: AveragedCurve, moment: float, *, smallest: bool) -> str:
    error, share = averaged.error_at(moment), averaged.share_at(moment)
    if np.isnan(error):
        return "–"
    shown = f"[bold green]*{error:.2f}[/]" if smallest else f"{error:.2f}"
    return f"{shown} [dim]({share:.0%})[/]" if share < _NEARLY_ALL else shown


def _time(value: float) -> str:
    return "never" if np.isinf(value) else f"{value:.3g}"
