"""`quorate combine`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from quorate._extras import load
from quorate.cli.console import err, out
from quorate.cli.tables import show, summary_table
from quorate.errors import BadInputError, require
from quorate.merging import RULES, combine

if TYPE_CHECKING:
    import xarray as xr


@click.command("combine")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option(
    "--rule",
    default="consensus",
    show_default=True,
    metavar="|".join(RULES),
    help="Combine by this rule.",
)
@click.option(
    "-o",
    "--out",
    "target",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the draws to this NetCDF file.",
)
@click.option(
    "--weights",
    metavar="full|diagonal|uniform",
    help="Set the weights of consensus.  [default: full]",
)
@click.option(
    "--bandwidth",
    type=float,
    metavar="H",
    help="Set the bandwidth of semiparametric and weierstrass.",
)
@click.option(
    "--draws",
    "n_draws",
    type=int,
    metavar="L",
    help="Make L draws; consensus and swiss do not take this option.",
)
@click.option("--variables", metavar="A,B,…", help="Combine only these variables.  [default: all]")
@click.option(
    "--seed", type=int, default=1, show_default=True, metavar="N", help="Set the random seed."
)
def combine_command(
    files: tuple[Path, ...],
    rule: str,
    target: Path,
    variables: str | None,
    seed: int,
    **given: Any,
) -> None:
    """Combine draws of subposteriors into draws of the posterior.

    RUN... are NetCDF files of ArviZ with a group `posterior`, one for each shard, counted from 0.
    The prior of each must have been raised to the power 1/K for K shards. Variables are combined on
    the scale they are stored in: positive ones may come out negative.
    """
    options = {name: value for name, value in given.items() if value is not None}
    wanted = variables.split(",") if variables else None
    _check_target(target, files)
    trees = [_read(file) for file in files]
    combined = combine(trees, rule, seed=seed, variables=wanted, **options)
    try:
        combined.to_netcdf(str(target))
    except OSError as error:
        raise BadInputError(f"{target} cannot be written ({error}).") from None
    show(summary_table(combined.summary_rows().items()))
    out.print(repr(combined)[1:-1], soft_wrap=True)
    err.print(f"Written: {target}", soft_wrap=True)


def _check_target(target: Path, files: tuple[Path, ...]) -> None:
    parent = target.resolve().parent
    require(parent.is_dir(), f"The folder of {target} does not exist. Create it first.")
    is_input = target.resolve() in [file.resolve() for file in files]
    require(not is_input, f"{target} is one of the files to combine. Choose another output.")


def _read(file: Path) -> "xr.DataTree":
    load("h5netcdf", "netcdf")
    import xarray as xr

    require(file.is_file(), f"No file named {file}.")
    try:
        with xr.open_datatree(file, engine="h5netcdf") as tree:
            loaded = tree.load()
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInputError(f"{file} cannot be read as NetCDF 4 ({error}).") from None
    groups = list(loaded.children)
    require("posterior" in groups, f"{file} has no group `posterior`. Its groups are {groups}.")
    return loaded
