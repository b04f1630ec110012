"""`quorate salvage`."""

from pathlib import Path

import click

from quorate.cli.console import out
from quorate.cli.options import RUN
from quorate.journal.salvage import salvage


@click.command("salvage")
@RUN
def salvage_command(run_dir: Path) -> None:
    """Recover the readable rows of a damaged journal into a new journal.

    The damaged journal is kept in RUN/journal.damaged. Nothing is executed.
    """
    saved = salvage(run_dir)
    if saved is None:
        out.print("The journal is whole: there is nothing to salvage.")
        return
    out.print(str(saved), soft_wrap=True, markup=False, highlight=False)
    out.print(f"Resume with: quorate resume {run_dir}", soft_wrap=True, markup=False)
