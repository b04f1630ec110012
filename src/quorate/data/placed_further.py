"""Further shards of rows in place, for files that arrive later."""

from dataclasses import replace
from pathlib import Path

from quorate.data.addresses import addresses_of
from quorate.data.placed import Place, PlacedShards, places_of, sites_in
from quorate.data.row_groups import RowGroup, dealt, row_groups_of
from quorate.errors import BadInputError


def with_further(old: PlacedShards, data: object, n_new: int | None, folder: Path) -> PlacedShards:
    """The shards of `old`, and further ones of new files, which are read in the same way.

    Workers have yet to tell what is in the new ones.

    Parameters
    ----------
    old
        Shards that are there. They keep their numbers.
    data
        New files, as for `quorate.data.placed.places_of`.
    n_new
        Number of further shards; by default one for each new site, or so many that they are about
        as large as the old ones.
    folder
        Where `in-place.json` is to be.
    """
    is_whole = bool(old.group_columns)
    if sites := sites_in(data):
        places = places_of(data, n_new or len(sites), whole_files=is_whole)
    else:
        places = _dealt(old, data, n_new, is_whole)
    _require_new(old, places)
    return replace(
        old,
        folder=folder.resolve(),
        places=(*old.places, *places),
        arrays=(),
        n_rows=(),
        fingerprints=(),
        n_groups=(),
        label_digests=(),
    )


def _dealt(old: PlacedShards, data: object, n_new: int | None, is_whole: bool) -> tuple[Place, ...]:
    """Places of files that all workers reach; their rows are numbered after those of the run."""
    known = [group for place in old.places for group in place.row_groups]
    n_before = max((group.first_row + group.n_rows for group in known), default=0)
    groups = [_moved(group, n_before) for group in row_groups_of(addresses_of(data))]
    most = len({group.address for group in groups}) if is_whole else len(groups)
    n_rows = sum(group.n_rows for group in groups)
    number = max(1, min(most, round(n_rows * old.n_shards / sum(old.n_rows))))
    return tuple(map(Place, dealt(groups, n_new or number, whole_files=is_whole)))


def _moved(group: RowGroup, n_rows: int) -> RowGroup:
    return group._replace(first_row=group.first_row + n_rows)


def _require_new(old: PlacedShards, places: tuple[Place, ...]) -> None:
    known = {file for place in old.places for file in _files(place)}
    for site, file in (file for place in places for file in _files(place)):
        if (site, file) in known:
            at_site = f" of {site}" if site else ""
            raise BadInputError(
                f"{file}{at_site} is among the files of the run, and its rows would count twice. "
                "Give new files only."
            )


def _files(place: Place) -> set[tuple[str, str]]:
    """The files of a shard, each with the name of its site."""
    shared = {("", group.address) for group in place.row_groups}
    return shared | {(place.site, file) for file in place.files}
