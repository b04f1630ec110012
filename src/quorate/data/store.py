"""Shards on disk: arrays that workers map into memory, and a manifest that says what they are.

A folder of shards holds `manifest.json` and, for shard 3, `shard-00003/array-000.npy` and so on,
one file for each array in the manifest's order. Processes that open the same shard share its
pages. Nothing is pickled: to open a stranger's shards executes nothing.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.errors import BadInputError, require

SCHEMA = 1
MANIFEST = "manifest.json"
_KEYS = {"schema", "by", "seed", "arrays", "n_rows", "fingerprints"}


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """One array of every shard: its name, dtype (little-endian) and the shape of one row."""

    name: str
    dtype: str
    row_shape: tuple[int, ...]


@dataclass(frozen=True)
class StoredShard(Mapping[str, NDArray[Any]]):
    """The rows of one shard: each array is mapped, read-only, when it is first asked for.

    Fills in `quorate.models.protocol.Shard`. Pickling it sends its path, never its rows.
    """

    folder: Path
    number: int
    arrays: tuple[ArraySpec, ...]
    n_rows: int
    fingerprint: str
    _mapped: dict[str, NDArray[Any]] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._mapped:
            self._mapped[name] = self._map(name)
        return self._mapped[name]

    def __contains__(self, name: object) -> bool:
        return any(spec.name == name for spec in self.arrays)

    def __iter__(self) -> Iterator[str]:
        return (spec.name for spec in self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.folder, self.number, self.arrays, self.n_rows, self.fingerprint)
        return (StoredShard, parts)

    def verify(self) -> None:
        """Read all of it and raise `BadInputError` unless it is what was written."""
        digests = [content_digest(self[spec.name]) for spec in self.arrays]
        if fingerprint(self.arrays, self.n_rows, digests) != self.fingerprint:
            raise self._damaged("its content is not what was written")

    def _map(self, name: str) -> NDArray[Any]:
        position = {spec.name: i for i, spec in enumerate(self.arrays)}[name]
        spec = self.arrays[position]
        try:
            path = array_path(self.folder, self.number, position)
            array = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError) as error:
            raise self._damaged(f"array {spec.name!r} cannot be opened ({error})") from error
        if (array.dtype.str, array.shape) != (spec.dtype, (self.n_rows, *spec.row_shape)):
            raise self._damaged(f"array {spec.name!r} is {array.dtype.str} of {array.shape}")
        return array

    def _damaged(self, what: str) -> BadInputError:
        way_out = f"{what}: write the shards again, into a new folder"
        return BadInputError(f"shard {self.number}", str(self.folder), way_out)


@dataclass(frozen=True)
class ShardSet:
    """All shards of a data set, none of them opened.

    Parameters
    ----------
    by, seed
        How rows were dealt: see `quorate.data.write.write_shards`.
    n_rows
        Of each shard.
    fingerprints
        Of each shard: SHA-256 of names, dtypes, shapes and content. They depend neither on the
        machine nor on the kind of source nor on the order of the arrays.
    """

    folder: Path
    by: str
    seed: int
    arrays: tuple[ArraySpec, ...]
    n_rows: tuple[int, ...]
    fingerprints: tuple[str, ...]

    @classmethod
    def open(cls, folder: str | Path) -> "ShardSet":
        """Read the manifest and nothing else; it says if it was changed since it was written."""
        folder = Path(folder).resolve()
        path = folder / MANIFEST
        require(path.is_file(), "folder", str(folder), "holds no shards: write them first")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            checksum = content.pop("checksum")
            version = content["schema"]
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise _tampered(path) from error
        way_out = f"this quorate reads schema {SCHEMA}: write the shards again"
        require(version == SCHEMA, "manifest", f"schema {version}", way_out)
        if checksum != _sha256(content) or set(content) != _KEYS:
            raise _tampered(path)
        arrays = tuple(ArraySpec(name, d, tuple(shape)) for name, d, shape in content["arrays"])
        rows, prints = tuple(content["n_rows"]), tuple(content["fingerprints"])
        return cls(folder, content["by"], content["seed"], arrays, rows, prints)

    @property
    def n_shards(self) -> int:
        """K."""
        return len(self.n_rows)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the arrays of every shard."""
        return tuple(spec.name for spec in self.arrays)

    @property
    def fingerprint(self) -> str:
        """Of the whole: SHA-256 of those of the shards, in order."""
        return _sha256(list(self.fingerprints))

    def shard(self, number: int) -> StoredShard:
        """Shard `number`, from 0, its arrays to be mapped when they are asked for."""
        way_out = f"there are {self.n_shards} shards, the first being 0"
        require(0 <= number < self.n_shards, "shard", number, way_out)
        n_rows, fingerprint = self.n_rows[number], self.fingerprints[number]
        return StoredShard(self.folder, number, self.arrays, n_rows, fingerprint)

    def verify(self) -> None:
        """Read all shards and raise `BadInputError` for the first that has been changed."""
        for number in range(self.n_shards):
            self.shard(number).verify()

    def save(self) -> None:
        """Write the manifest, whole or not at all."""
        content: dict[str, Any] = {
            "schema": SCHEMA,
            "by": self.by,
            "seed": self.seed,
            "arrays": [[spec.name, spec.dtype, list(spec.row_shape)] for spec in self.arrays],
            "n_rows": list(self.n_rows),
            "fingerprints": list(self.fingerprints),
        }
        content["checksum"] = _sha256(content)
        partial = self.folder / f"{MANIFEST}.partial"
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.folder / MANIFEST)


def array_path(folder: Path, shard: int, position: int) -> Path:
    """Where the array with that position in the manifest lies: names are never parts of paths."""
    return folder / f"shard-{shard:05d}" / f"array-{position:03d}.npy"


def content_digest(array: NDArray[Any]) -> str:
    """SHA-256 of the bytes of a little-endian array, row by row."""
    return hashlib.sha256(raw(array)).hexdigest()


def raw(array: NDArray[Any]) -> memoryview:
    """The bytes of an array, row by row."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def fingerprint(arrays: tuple[ArraySpec, ...], n_rows: int, digests: list[str]) -> str:
    """Of one shard, from the digests of its arrays' contents."""
    parts = [
        [spec.name, spec.dtype, [n_rows, *spec.row_shape], digest]
        for spec, digest in zip(arrays, digests, strict=True)
    ]
    return _sha256(sorted(parts))


def _sha256(content: object) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _tampered(path: Path) -> BadInputError:
    way_out = "it is not as it was written: write the shards again, into a new folder"
    return BadInputError("manifest", str(path), way_out)
