"""What the command line says of rows in place."""

from collections.abc import Sequence

from quorate.cli.console import err
from quorate.data.placed import sites_in
from quorate.run.in_place import about_sites


def tell_of_sites(files: Sequence[str]) -> None:
    """Say that rows of sites lie only there, if files are given as SITE=PATH."""
    sites = sites_in(list(files))
    if sites:
        err.print(f"Sites: {about_sites(list(sites))}.", soft_wrap=True, markup=False)
