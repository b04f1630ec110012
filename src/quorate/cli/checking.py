"""`quorate check`."""

from collections.abc import Iterator
from pathlib import Path

import click
from rich.table import Table

from quorate.api import check
from quorate.cli.console import out
from quorate.cli.options import RUN, options_of
from quorate.cli.tables import show, summary_table
from quorate.engines.options import Processes
from quorate.run.run import N_POINTS
from quorate.trust.shards import ShardFinding
from quorate.trust.verdict import GOOD, USABLE, Verdict

_NOT_TRUSTED = 3  # exit code of a merge that should not be trusted, or could not be checked


@click.command("check")
@RUN
@click.option(
    "--points",
    type=int,
    default=N_POINTS,
    show_default=True,
    metavar="M",
    help="Evaluate the posterior at M points.",
)
@options_of(Processes, ["processes"])
@click.option("--max-time", type=float, metavar="SECONDS", help="Stop after this many seconds.")
def check_command(
    run_dir: Path, points: int, processes: int | None, max_time: float | None
) -> None:
    """Check the draws of a run against the posterior density.

    This executes the model that is stored with the run: check only runs that you trust.
    """
    engine = None if processes is None else Processes(processes)
    verdict = check(run_dir, points=points, engine=engine, max_time=max_time)
    _show(verdict)
    if verdict.verdict not in (GOOD, USABLE):
        raise SystemExit(_NOT_TRUSTED)


def _show(verdict: Verdict) -> None:
    if verdict.raw:
        show(summary_table(_raw_and_corrected(verdict)))
    if verdict.shards:
        out.print(_shards(verdict.shards))
    if verdict.importance_ess is not None:
        worth = f"{verdict.n_points} points, worth {verdict.importance_ess:.0f} draws"
        out.print(f"Evaluated at {worth}.", soft_wrap=True)
    out.print(f"Verdict: {verdict}", soft_wrap=True, markup=False)


def _raw_and_corrected(verdict: Verdict) -> Iterator[tuple[str, dict[str, float]]]:
    for name, raw in verdict.raw.items():
        yield name, raw
        if name in verdict.corrected:
            yield "  corrected", verdict.corrected[name]


_COLUMNS = ("draws", "ess", "r_hat", "divergences", "faults", "distance", "p_value")


def _shards(findings: list[ShardFinding]) -> Table:
    """One row for each shard; without columns in which no shard has anything."""
    told = {column: [getattr(found, column) for found in findings] for column in _COLUMNS}
    used = {column: values for column, values in told.items() if any(values)}
    used = {"shard": [found.shard for found in findings], **used}
    table = Table()
    for column in used:
        table.add_column(column, justify="right")
    for found, *values in zip(findings, *used.values(), strict=True):
        table.add_row(*map(_shown, values), style="red" if found.disagrees else "")
    return table


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.3g}"
