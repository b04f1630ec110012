"""`quorate local`."""

import csv
import io
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from quorate._extras import load
from quorate._files import save
from quorate.cli.console import Patience, err, out
from quorate.cli.options import RUN, options_of
from quorate.data.label_text import text_of
from quorate.engines.options import Processes
from quorate.errors import BadInputError, require
from quorate.results.level_summary import LevelSummary
from quorate.results.local import INTERVAL, N_POINTS
from quorate.results.local_tree import long_table
from quorate.run.local import opened

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

_MOST_SHOWN = 20
_FORMATS = (".nc", ".parquet", ".csv")


@click.command("local")
@RUN
@click.option(
    "--groups",
    metavar="A,B,…",
    help="Draw the parameters of these groups. Quote a name with a comma: '\"A, Inc.\",B'.",
)
@click.option("--level", metavar="L", help="Summarise this level of groups.  [default: the outer]")
@click.option(
    "--points",
    type=int,
    default=N_POINTS,
    show_default=True,
    metavar="M",
    help="Average over M draws of the global parameters.",
)
@options_of(Processes, ["processes"])
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to a file: .nc, .parquet or .csv.",
)
def local_command(
    run_dir: Path,
    groups: str | None,
    level: str | None,
    points: int,
    processes: int | None,
    output: Path | None,
) -> None:
    """Summarise the parameters of all groups of a run, or draw those of some groups.

    Without an output, it prints the groups that stand out most. This executes the model that is
    stored with the run: use it only for runs that you trust.
    """
    if output is not None:
        _check_output(output)
    require(
        groups is None or (level is None and points == N_POINTS),
        "--level and --points are for summaries. Leave them out, or leave out --groups.",
    )
    require(
        groups is None or output is not None,
        "Draws need a file to go to. Add -o FILE.nc, .parquet or .csv.",
    )
    local = opened(run_dir)
    engine = None if processes is None else Processes(processes)
    with Patience("asking workers") as patience:
        if groups is not None:
            found = local.draws(_names_in(groups), engine=engine, progress=patience.report)
        else:
            summary = local.level_summary(level, points, engine=engine, progress=patience.report)
    if output is None:
        _show(summary)
        return
    content = (
        _of_summary(summary, output.suffix) if groups is None else _of_draws(found, output.suffix)
    )
    save(output, content)
    err.print(f"Written: {output}", soft_wrap=True)


def _names_in(groups: str) -> list[str]:
    try:
        return next(csv.reader([groups], skipinitialspace=True), [])
    except csv.Error as error:
        raise BadInputError(f"--groups cannot be read as names with commas: {error}.") from error


def _check_output(output: Path) -> None:
    require(
        output.suffix in _FORMATS,
        f"{output} must end in {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}.",
    )
    require(
        output.resolve().parent.is_dir(),
        f"The folder of {output} does not exist. Create it first.",
    )


def _of_summary(summary: LevelSummary, suffix: str) -> bytes:
    """A file of this kind with a row for each parameter of each group."""
    if suffix == ".nc":
        return _netcdf(summary.dataset(INTERVAL))
    return _table(summary.frame(INTERVAL).reset_index(), suffix)


def _of_draws(draws: "xr.Dataset", suffix: str) -> bytes:
    """A file of this kind with all draws; in a table, a row for each number."""
    return _netcdf(draws) if suffix == ".nc" else _table(long_table(draws), suffix)


def _table(frame: "pd.DataFrame", suffix: str) -> bytes:
    if suffix == ".csv":
        return bytes(frame.to_csv(index=False).encode())
    load("pyarrow", "data")
    file = io.BytesIO()
    frame.to_parquet(file, engine="pyarrow", index=False)
    return file.getvalue()


def _netcdf(dataset: "xr.Dataset") -> bytes:
    load("h5netcdf", "netcdf")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "local.nc"
        dataset.to_netcdf(path, engine="h5netcdf")
        return path.read_bytes()


def _show(summary: LevelSummary) -> None:
    """A table of the groups with the largest |mean|/sd."""
    table = Table()
    columns = summary.table(INTERVAL)
    for name in (summary.name, "parameter"):
        table.add_column(name, no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    for group, parameter in zip(*summary.standing_out(_MOST_SHOWN), strict=True):
        names = text_of(summary.labels[group]), summary.parameters[parameter]
        numbers = (f"{values[group, parameter]:.3f}" for values in columns.values())
        table.add_row(*map(Text, names), *numbers)
    out.print(table)
    n_all = summary.means.size
    if n_all > _MOST_SHOWN:
        out.print(
            f"The {_MOST_SHOWN} of {n_all:,} that are furthest from 0, in units of their sds. All: "
            "add -o FILE.parquet, .csv or .nc.",
            soft_wrap=True,
        )
