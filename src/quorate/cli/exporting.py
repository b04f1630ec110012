"""`quorate export`, and the files that `sample` and `resume` write."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from quorate.cli.console import err
from quorate.cli.options import RUN
from quorate.errors import require
from quorate.results.export import FORMATS, export, require_target
from quorate.results.result import Result
from quorate.run.opened import load

_ENDINGS = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"


def output_option(*, required: bool = False) -> Callable[[Any], Any]:
    """The option `-o`, a file for the draws."""
    return click.option(
        "-o",
        "--output",
        required=required,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=f"Write the draws to a file: {_ENDINGS}.",
    )


def check_output(output: Path | None) -> None:
    """Refuse a file that cannot be written, before a run begins."""
    if output is not None:
        require_target(output)


def write_output(result: Result, output: Path | None) -> None:
    """Write the draws of a result, if a file was named."""
    if output is not None and result.n_draws:
        export(result.posterior, output)
        err.print(f"Written: {output}", soft_wrap=True)


@click.command("export")
@RUN
@output_option(required=True)
def export_command(run_dir: Path, output: Path) -> None:
    """Write the draws of a run, finished or not, to a file for other programs.

    NetCDF (.nc) and Zarr hold all that ArviZ reads; Parquet and CSV hold a table of the draws. The
    model of the run is not executed.
    """
    check_output(output)
    result = load(run_dir)
    require(result.n_draws > 0, f"The run in {run_dir} has no draws yet. Resume it.")
    write_output(result, output)
