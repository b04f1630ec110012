"""`quorate report`."""

from pathlib import Path

import click

from quorate.cli.console import err
from quorate.cli.options import RUN


@click.command("report")
@RUN
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to this file.  [default: report.html in RUN]",
)
def report_command(run_dir: Path, output: Path | None) -> None:
    """Write a self-contained HTML report of a run, finished or not."""
    from quorate.report import write_report

    path = output or run_dir / "report.html"
    write_report(run_dir, path)
    err.print(f"Written: {path}", soft_wrap=True)
