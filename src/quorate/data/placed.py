"""Shards whose rows stay where they lie: which worker reads what, and what it must find there.

A folder of such shards holds `in-place.json` and no rows. Row groups of files that all workers
reach are dealt by footers. Files of a site are known by name only, and the site's own worker looks
at them. Workers tell the numbers of rows and the fingerprints.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate._files import save
from quorate._types import IntArray
from quorate.data.addresses import addresses_of, require_no_secret
from quorate.data.complete import NA
from quorate.data.row_groups import RowGroup, dealt, row_groups_of
from quorate.data.store import (
    MANIFEST,
    ArraySpec,
    ShardSet,
    fingerprint_of_all,
    read_labels,
)
from quorate.errors import BadInputError, require

PLACED = "in-place.json"
_SCHEMA = 1
_SITE = "="  # between the name of a site and its files, on a command line


class Place(NamedTuple):
    """Where the rows of one shard lie.

    Parameters
    ----------
    row_groups
        Row groups of files that all workers reach.
    site
        Name of the only place that has the rows; empty if all workers reach them.
    files
        The files of a site, as the user gave them.
    part, n_parts
        Which part of the site's rows is meant.
    whole_files
        Whether no file of the site is divided between its parts.
    """

    row_groups: tuple[RowGroup, ...] = ()
    site: str = ""
    files: tuple[str, ...] = ()
    part: int = 0
    n_parts: int = 1
    whole_files: bool = False

    def found(self) -> tuple[RowGroup, ...]:
        """The row groups; at a site, from the footers of its files."""
        if not self.site:
            return self.row_groups
        row_groups = row_groups_of(addresses_of(self.files))
        return dealt(row_groups, self.n_parts, whole_files=self.whole_files)[self.part]


@dataclass(frozen=True)
class PlacedShards:
    """Shards that workers read in place. It stands where a `ShardSet` stands in other runs.

    Parameters
    ----------
    folder
        Where `in-place.json` is.
    by
        How rows were cut: `in-place` or `in-place-random`, and the columns of groups after a colon.
    places
        Where the rows of each shard lie.
    columns
        Columns that are read; all if None.
    na
        What to do about rows with missing values.
    transform
        A function of the rows, packed for workers; empty for none.
    scratch
        Folder on each worker's node for copies of the columns that are read; by default that of
        temporary files.
    arrays, n_rows, fingerprints
        As for `ShardSet`, from workers; empty before they were asked.
    n_groups
        Number of groups in each shard, by the name of their array.
    label_digests
        As for `ShardSet`.
    key
        Name of the copies of one sitting.
    """

    folder: Path
    by: str
    places: tuple[Place, ...]
    columns: tuple[str, ...] | None = None
    na: NA = "raise"
    transform: bytes = b""
    scratch: str | None = None
    arrays: tuple[ArraySpec, ...] = ()
    n_rows: tuple[int, ...] = ()
    fingerprints: tuple[str, ...] = ()
    n_groups: tuple[tuple[str, tuple[int, ...]], ...] = ()
    label_digests: tuple[tuple[str, str], ...] = ()
    key: str = field(default_factory=lambda: secrets.token_hex(8), compare=False)

    @classmethod
    def open(cls, folder: Path) -> "PlacedShards":
        """Read `in-place.json`, and neither a file of the data nor the transform."""
        path = folder / PLACED
        try:
            kept = _read(path)
            places = tuple(_place(each) for each in kept.pop("places"))
            arrays = tuple(ArraySpec(name, d, tuple(row)) for name, d, row in kept.pop("arrays"))
            columns, na = kept["columns"], kept["na"]
            opened = cls(
                folder,
                str(kept["by"]),
                places,
                None if columns is None else tuple(map(str, columns)),
                "drop" if na == "drop" else "raise",
                bytes.fromhex(kept["transform"]),
                kept["scratch"],
                arrays,
                tuple(map(int, kept["n_rows"])),
                tuple(map(str, kept["fingerprints"])),
                tuple((name, tuple(map(int, n))) for name, n in kept["n_groups"]),
                tuple((str(name), str(digest)) for name, digest in kept["labels"]),
            )
        except BadInputError:
            raise
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise BadInputError(
                f"{path} does not say where the rows of the run lie ({error}). Put the file back, "
                "or begin a new run."
            ) from None
        return opened

    def save(self) -> None:
        """Write `in-place.json` atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = {"schema": _SCHEMA, **self._content}
        save(self.folder / PLACED, f"{json.dumps(content, indent=1)}\n".encode())

    @property
    def checksum(self) -> str:
        """SHA-256 of everything that is read, and of what is done with it."""
        canonical = json.dumps(self._content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def n_shards(self) -> int:
        """Number of shards K."""
        return len(self.places)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the fingerprints of all shards, in order."""
        return fingerprint_of_all(self.fingerprints)

    @property
    def group_columns(self) -> str:
        """The columns that define groups, `county` or `state/county`; empty for none."""
        return self.by.partition(":")[2]

    def labels(self, name: str) -> NDArray[Any]:
        """What the codes in an array stand for; see `ShardSet.labels`."""
        return read_labels(self.folder, name, dict(self.label_digests))

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, each once; empty if all workers reach all rows."""
        return tuple(dict.fromkeys(place.site for place in self.places if place.site))

    def rows_of_data(self) -> list[IntArray] | None:
        """For each shard, the numbers of its rows in the data; None for sites, or dropped rows."""
        if self.sites or self.na == "drop":
            return None
        return [
            np.concatenate([g.first_row + np.arange(g.n_rows) for g in place.row_groups])
            for place in self.places
        ]

    @cached_property
    def _content(self) -> dict[str, Any]:
        return {
            "by": self.by,
            "places": [_as_json(place) for place in self.places],
            "columns": None if self.columns is None else list(self.columns),
            "na": self.na,
            "transform": self.transform.hex(),
            "scratch": self.scratch,
            "arrays": [spec.as_json() for spec in self.arrays],
            "n_rows": list(self.n_rows),
            "fingerprints": list(self.fingerprints),
            "n_groups": [[name, list(counts)] for name, counts in self.n_groups],
            "labels": [list(each) for each in self.label_digests],
        }


Shards = ShardSet | PlacedShards


def open_shards(folder: Path) -> Shards:
    """The shards in a folder: rows that were written there, or word of where they lie."""
    is_placed = (folder / PLACED).exists() and not (folder / MANIFEST).exists()
    return PlacedShards.open(folder) if is_placed else ShardSet.open(folder)


def places_of(
    data: object, n_shards: int, *, fewer_will_do: bool = False, whole_files: bool = False
) -> tuple[Place, ...]:
    """Where the rows of each shard lie. Only footers are read, and none of a site.

    Parameters
    ----------
    data
        Parquet files that all workers reach: a path, a folder, a pattern, a URL, or a list of them.
        Or such files by the name of the only site that has them.
    n_shards
        K. It must be a multiple of the number of sites, if there are any.
    fewer_will_do
        Whether to make fewer shards if there are not enough row groups.
    whole_files
        Whether no file is divided between shards.
    """
    sites = sites_in(data)
    if not sites:
        groups = row_groups_of(addresses_of(data))
        n_shards = min(n_shards, len(groups)) if fewer_will_do else n_shards
        shards = dealt(groups, n_shards, whole_files=whole_files)
        return tuple(Place(row_groups) for row_groups in shards)
    n_parts, left = divmod(n_shards, len(sites))
    require(
        n_parts > 0 and not left,
        f"{len(sites)} sites cannot share {n_shards} workers evenly. Use workers={len(sites)}, or "
        "a multiple of it.",
    )
    return tuple(
        Place((), site, files, part, n_parts, whole_files)
        for site, files in sites.items()
        for part in range(n_parts)
    )


def sites_in(data: object) -> dict[str, tuple[str, ...]]:
    """The files of each site by its name; empty if data are no mapping of sites."""
    if isinstance(data, list | tuple) and data and all(map(_names_a_site, data)):
        parts = [str(each).partition(_SITE) for each in data]
        return {
            site: _texts(site, [files for name, _, files in parts if name == site])
            for site in dict.fromkeys(name for name, _, _ in parts)
        }
    if not isinstance(data, Mapping):
        return {}
    return {str(site): _texts(site, files) for site, files in data.items()}


def _names_a_site(given: object) -> bool:
    """Whether a text is `SITE=PATH`, as on a command line.

    A path may look like that too: `year=2026/1.parquet`, where there is a folder `year=2026`.
    """
    if not isinstance(given, str) or _SITE not in given or "/" in given.partition(_SITE)[0]:
        return False
    return not Path(Path(given).parts[0]).exists()


def _texts(site: object, files: object) -> tuple[str, ...]:
    listed: Sequence[Any] = files if isinstance(files, list | tuple) else [files]
    for file in listed:
        require_no_secret(str(file))
    right = bool(listed) and all(isinstance(each, str | Path) for each in listed)
    require(
        right,
        f"data[{site!r}] is a {type(files).__name__}. Rows that stay in place are Parquet files: "
        "give a path for each site.",
    )
    return tuple(map(str, listed))


def _read(path: Path) -> dict[str, Any]:
    """What `in-place.json` says, if it is of a schema that can be read."""
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    version = kept.pop("schema")
    require(version == _SCHEMA, f"{path} has schema {version!r}; this quorate reads {_SCHEMA}.")
    return kept


def _as_json(place: Place) -> dict[str, Any]:
    groups = [list(group) for group in place.row_groups]
    return {**place._asdict(), "row_groups": groups, "files": list(place.files)}


def _place(kept: Mapping[str, Any]) -> Place:
    groups = tuple(RowGroup(str(a), int(i), int(n), int(j)) for a, i, n, j in kept["row_groups"])
    files = tuple(map(str, kept["files"]))
    part, n_parts, whole = int(kept["part"]), int(kept["n_parts"]), bool(kept["whole_files"])
    return Place(groups, str(kept["site"]), files, part, n_parts, whole)


def told(shards: PlacedShards, facts: Sequence[Mapping[str, Any]]) -> PlacedShards:
    """The shards with what workers found in each: arrays, number of rows and fingerprint."""
    specs = [[ArraySpec(n, d, tuple(row)) for n, d, row in fact["arrays"]] for fact in facts]
    for number, (place, found) in enumerate(zip(shards.places, specs, strict=True)):
        require(
            found == specs[0],
            f"Shard {number} has {_listed(found)}, and shard 0 has {_listed(specs[0])}. Write "
            f"{place.site or place.row_groups[0].address} with the columns and types of the "
            "others.",
        )
    return replace(
        shards,
        arrays=tuple(specs[0]),
        n_rows=tuple(int(fact["n_rows"]) for fact in facts),
        fingerprints=tuple(str(fact["fingerprint"]) for fact in facts),
    )


def facts_of(shards: PlacedShards) -> list[Mapping[str, Any]]:
    """What workers have told of each shard, as `told` takes it."""
    arrays = [spec.as_json() for spec in shards.arrays]
    known = zip(shards.n_rows, shards.fingerprints, strict=True)
    return [{"arrays": arrays, "n_rows": n, "fingerprint": each} for n, each in known]


def _listed(arrays: Sequence[ArraySpec]) -> str:
    return ", ".join(f"{spec.name} ({spec.dtype})" for spec in arrays)
