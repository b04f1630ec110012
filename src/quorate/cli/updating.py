"""`quorate update`."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from quorate.cli.exporting import check_output
from quorate.cli.flags import WithFlags
from quorate.cli.options import options_of, options_of_registry, taken
from quorate.cli.sampling import (
    CHECK,
    FLAGS,
    JSON,
    METAVARS,
    OUTPUT,
    WATCH,
    folder_of,
    of_sitting,
    progress_of,
    told,
)
from quorate.cli.watching import tell_address
from quorate.data.cut import Cut
from quorate.engines.options import ENGINES
from quorate.live.beside import page_beside
from quorate.run.settings import Settings
from quorate.run.stopping import Until
from quorate.run.updating import update

_OF_RUN = ("draws", "seed", "engine")


@click.command("update", cls=WithFlags)
@click.argument("run", type=click.Path(path_type=Path, file_okay=False), metavar="RUN")
@click.argument("files", nargs=-1, required=True, metavar="NEW_ROWS...")
@click.option("--shards", type=int, metavar="N", help="Add N shards, and as many workers.")
@options_of(Settings, _OF_RUN, metavars=METAVARS, show_defaults=False)
@options_of(Until, flags=FLAGS, metavars=METAVARS)
@options_of(Cut, ["by"], metavars=METAVARS, show_defaults=False)
@options_of_registry(ENGINES, show_defaults=False)
@options_of(Settings, ["run_dir"], metavars={"run_dir": "DIR"})
@OUTPUT
@CHECK
@WATCH
@JSON
def update_command(
    run: Path,
    files: tuple[str, ...],
    shards: int | None,
    run_dir: str | None,
    output: Path | None,
    as_json: bool,
    watch: bool,
    **options: Any,
) -> None:
    """Add rows to an exact run, and draw from the posterior of all rows.

    RUN stays as it is; the new run has a folder of its own. Options that are not given are those of
    RUN. This executes the model that is stored with the run: update only runs that you trust.
    """
    check_output(output)
    engine = taken(options, ["engine"]).get("engine")
    changes = of_sitting(options, engine) | taken(options, list(options))
    with told(output) as tell, folder_of(run_dir, files) as folder:
        with page_beside(folder, tell_address) if watch else nullcontext():
            progress = progress_of(as_json)
            result = update(
                run, list(files), shards=shards, run_dir=folder, progress=progress, **changes
            )
        tell(result)
