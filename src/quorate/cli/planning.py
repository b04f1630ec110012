"""`quorate plan`."""

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from quorate.cli.console import Patience, err, out
from quorate.cli.flags import WithFlags
from quorate.errors import BadInputError
from quorate.planner import Plan, plan
from quorate.planner.words import duration
from quorate.run.settings import METHODS


@click.command(
    "plan",
    cls=WithFlags,
    also={"redundancies": "--redundancy", "schemes": "--scheme"},
)
@click.option(
    "--from",
    "run",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="RUN",
    help="Plan by the measured times of this run.",
)
@click.option(
    "--latency",
    metavar="MODEL:…",
    help="Plan by a model of times, as in `quorate simulate`, such as pareto:MEAN,TAIL_INDEX.",
)
@click.option(
    "--method",
    type=click.Choice(METHODS),
    help="Plan for merged or exact draws.  [default: that of the run, or merge]",
)
@click.option("--slow", metavar="NxF", help="Make N workers F times slower; with --latency.")
@click.option("--dead", metavar="N[@T]", help="Let N workers die at time T; with --latency.")
@click.option(
    "--workers",
    metavar="K,K,…",
    help="Try these numbers of workers.  [default: that of the run and its half, or 8]",
)
@click.option(
    "--redundancy",
    metavar="R,R,…",
    help="Try these numbers of shards per worker.  [default: 2,3,4, up to the workers]",
)
@click.option("--scheme", metavar="S,S,…", help="Try these schemes.  [default: all]")
@click.option(
    "--draws",
    type=int,
    metavar="L",
    help="Plan for this number of draws.  [default: that of the run, or 1000]",
)
@click.option("--target-ess", type=float, metavar="N", help="Plan for N effective draws instead.")
@click.option(
    "--measured-at",
    type=int,
    metavar="K",
    help="Take the latency as that of K workers.  [default: the first of --workers]",
)
@click.option(
    "--rows-share",
    type=float,
    default=1.0,
    show_default=True,
    metavar="X",
    help="Let this share of a draw's time grow with the rows of a shard.",
)
@click.option(
    "--survive",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="Advise only an option that survives the loss of any N workers.",
)
@click.option(
    "--max-storage",
    type=float,
    default=1.0,
    show_default=True,
    metavar="X",
    help="Advise only an option with at most this share of the data at a worker.",
)
@click.option(
    "--dim",
    type=int,
    metavar="D",
    help="Count D floats in a draw.  [default: that of the run, or 1]",
)
@click.option(
    "--realisations",
    type=int,
    metavar="Z",
    help="Simulate each option Z times.  [default: 200, or 20 for exact draws]",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, metavar="N", help="Set the random seed."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw a picture: .png, .svg or .pdf.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan_command(
    workers: str | None,
    redundancy: str | None,
    scheme: str | None,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare schemes, workers and redundancies in virtual time, and advise one option."""
    with Patience("planning") as patience:
        found = plan(
            workers=_numbers("workers", workers),
            redundancies=_numbers("redundancy", redundancy),
            schemes=None if scheme is None else scheme.split(","),
            progress=patience.report,
            **options,
        )
    if output is not None:
        found.save_picture(output)
    if as_json:
        click.echo(json.dumps(found.as_json()))
    else:
        out.print(_table(found))
        for line in found.explanation:
            out.print(line, soft_wrap=True, highlight=False, markup=False)
        out.print()
        out.print(found.command, soft_wrap=True, highlight=False, markup=False)
    if output is not None:
        err.print(f"Written: {output}", soft_wrap=True)


def _numbers(name: str, listed: str | None) -> list[int] | None:
    if listed is None:
        return None
    try:
        return [int(number) for number in listed.split(",")]
    except ValueError:
        raise BadInputError(
            f"--{name} takes whole numbers with commas between, such as 10,20, not {listed!r}."
        ) from None


def _table(found: Plan) -> Table:
    table = Table(
        title=f"time to {found.draws} draws, and its price",
        caption="best first   → advised   * no other option is as good in p95, K and storage\n"
        "held: share of the data at a worker   can lose: workers, for sure and typically",
        collapse_padding=True,
    )
    for column in ("", "scheme"):
        table.add_column(column, no_wrap=True)
    for column in ("K", "r", "median", "p95", "worker-h", "held", "floats/draw", "can lose"):
        table.add_column(column, justify="right", no_wrap=True)
    good = found.front
    others = [option for option in found.options if option not in found.ranked]
    for option in (*found.ranked, *others):
        is_advised = option == found.recommended
        table.add_row(
            "→" if is_advised else "*" if option in good else "",
            option.title,
            str(option.workers),
            str(option.redundancy),
            duration(option.median),
            duration(option.p95),
            "–" if np.isinf(option.worker_hours) else f"{option.worker_hours:.2g}",
            f"{option.storage:.0%}",
            "–" if np.isinf(option.floats_per_draw) else f"{option.floats_per_draw:.0f}",
            f"{option.survives}, {option.survives_typically}",
            style="bold" if is_advised else None,
        )
    return table
