"""`quorate watch`."""

from contextlib import suppress
from pathlib import Path

import click

from quorate.cli.console import err
from quorate.cli.options import RUN
from quorate.live.beside import require_extra
from quorate.run.history import History


def tell_address(address: str) -> None:
    """Print the address of the page."""
    err.print(f"Watch it: {address}", soft_wrap=True, highlight=False, markup=False)


@click.command("watch")
@RUN
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Listen on this port.  [default: a free one]",
)
def watch_command(run_dir: Path, port: int) -> None:
    """Show a run on a live web page. Ctrl-C ends the page, not the run.

    Anyone with the address can view and stop the run. The server listens on this machine only.
    """
    require_extra()
    with History(run_dir):
        pass  # raise now what is wrong with the journal
    from quorate.live.server import serve

    with suppress(KeyboardInterrupt):
        serve(run_dir, port, tell_address)
