"""`quorate reproduce scale`."""

from pathlib import Path

from rich.table import Table

from quorate.cli.console import Patience
from quorate.cli.console import out as console
from quorate.lab.scale import SCALE, Questions, ScaleExperiment, Simulated, ends, scaled

_WHAT = {
    "exact, coordinator": "exact: the coordinator takes as long as the processes",
    "exact, network": "exact: its link is as busy as they are",
    "merge, coordinator": "merge: the coordinator takes as long as the processes",
    "merge, network": "merge: its link is as busy as they are",
}


def reproduce_scale(experiment: ScaleExperiment, folder: Path) -> list[Path]:
    """Run the simulation, print where each method ends, and write the figure."""
    from quorate.lab.output import make_folder  # matplotlib is slow to import
    from quorate.lab.scale_output import write_scale

    make_folder(folder)
    with Patience(SCALE) as patience:
        asked, runs = scaled(experiment, patience.report)
    console.print(_simulated(experiment, asked, runs))
    console.print(_ends(experiment, asked))
    return write_scale(experiment, (asked, runs), folder)


def _simulated(experiment: ScaleExperiment, asked: Questions, runs: list[Simulated]) -> Table:
    size = f"{experiment.rows:,.0f} rows, {experiment.draws:,} draws"
    table = Table(
        title=f"Exact runs in virtual time, {size}",
        caption=f"{asked.n_blocks} blocks of points; with the time of the coordinator by the model",
    )
    for name in ("processes", "workers", "times", "messages", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for run in runs:
        seconds = run.with_coordinator(experiment, asked)
        cells = (f"{run.processes:,}", f"{run.workers:,}", run.times, f"{run.n_messages:,}")
        table.add_row(*cells, f"{seconds:,.3g}")
    return table


def _ends(experiment: ScaleExperiment, asked: Questions) -> Table:
    table = Table(title="What ends first")
    table.add_column("what")
    table.add_column("at processes", justify="right")
    for name, count in ends(experiment, asked).items():
        table.add_row(_WHAT[name], f"{count:,}" if count else "beyond 100,000")
    return table
