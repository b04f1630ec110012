"""`quorate watch`."""

from contextlib import suppress
from pathlib import Path

import click

from quorate.cli.console import err
from quorate.live.beside import require_extra
from quorate.run.history import History


def tell_address(address: str) -> None:
    """Say where the page is."""
    err.print(f"Watch it: {address}", soft_wrap=True, highlight=False, markup=False)


@click.command("watch")
@click.argument("run_dir", type=click.Path(path_type=Path, file_okay=False), metavar="RUN")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="[default: one that is free]",
)
def watch_command(run_dir: Path, port: int) -> None:
    """Show a run on a page of this machine, while it goes on; Ctrl-C ends the page.

    Who has the address can look at the run, and stop it.
    """
    require_extra()
    with History(run_dir):
        pass  # what cannot be read is told now
    from quorate.live.server import serve

    with suppress(KeyboardInterrupt):
        serve(run_dir, port, tell_address)
