"""`quorate plan`."""

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from quorate.cli.console import Patience, err, out
from quorate.errors import BadInputError
from quorate.planner import Plan, plan
from quorate.planner.words import duration
from quorate.protocol.schemes import SCHEMES


@click.command("plan")
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
    help="Plan by a model, as in `quorate simulate`: pareto:MEAN,TAIL_INDEX and others.",
)
@click.option("--slow", metavar="NxF", help="N workers are F times slower. With --latency.")
@click.option("--dead", metavar="N[@T]", help="N workers die, from time T on. With --latency.")
@click.option("--workers", metavar="K,K,…", help="[default: those of the run, and half; 8]")
@click.option("--redundancy", metavar="R,R,…", help="[default: 2,3,4, as far as workers go]")
@click.option("--scheme", default=",".join(SCHEMES), show_default=True, metavar="S,S,…")
@click.option("--draws", type=int, metavar="L", help="[default: those of the run; 1000]")
@click.option("--target-ess", type=float, metavar="N", help="Effective draws, in place of draws.")
@click.option("--measured-at", type=int, metavar="K", help="Workers that --latency is for.")
@click.option(
    "--rows-share",
    type=float,
    default=1.0,
    show_default=True,
    metavar="X",
    help="Share of a draw's time that goes with the rows of a shard.",
)
@click.option(
    "--survive",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="Advise only what survives the loss of any N workers.",
)
@click.option(
    "--max-storage",
    type=float,
    default=1.0,
    show_default=True,
    metavar="X",
    help="Advise only what keeps at most this share of the data at a worker.",
)
@click.option("--dim", type=int, metavar="D", help="Floats in a draw.  [default: of the run; 1]")
@click.option("--realisations", type=int, default=200, show_default=True, metavar="Z")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N")
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
    scheme: str,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Which K, r and scheme? Compare them in virtual time, and advise one."""
    with Patience("planning") as patience:
        found = plan(
            workers=_numbers("workers", workers),
            redundancies=_numbers("redundancy", redundancy),
            schemes=scheme.split(","),
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
        way_out = "write whole numbers with commas between, such as 10,20"
        raise BadInputError(name, listed, way_out) from None


def _table(found: Plan) -> Table:
    table = Table(
        title=f"time to {found.draws} draws, and its price",
        caption="→ advised   * not beaten in p95, K and storage at once\n"
        "held: share of the data at a worker   can lose: workers, for sure, typically",
        collapse_padding=True,
    )
    for column in ("", "scheme"):
        table.add_column(column, no_wrap=True)
    for column in ("K", "r", "median", "p95", "worker-h", "held", "floats/draw", "can lose"):
        table.add_column(column, justify="right", no_wrap=True)
    good = found.front
    for option in found.options:
        is_advised = option == found.recommended
        table.add_row(
            "→" if is_advised else "*" if option in good else "",
            option.scheme,
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
