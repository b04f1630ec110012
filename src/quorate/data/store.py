"""Shards on disk: arrays that workers map into memory, and a manifest that describes them.

A folder of shards holds `manifest.json` and, for shard 3, `shard-00003/array-000.npy` and so on,
one file for each array in the manifest's order. Where groups stay whole, `labels-group.npy` says
what the codes in the array `group` stand for, and `labels-owners.npy` which shard each row of the
data went to. Processes that open the same shard share its pages.
Nothing is pickled, so opening a stranger's shards executes no code.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._files import save
from quorate.data.codes import LEVELS, OWNERS
from quorate.errors import BadInputError, require

SCHEMA = 1
MANIFEST = "manifest.json"
_KEYS = {"schema", "by", "seed", "arrays", "n_rows", "fingerprints"}
_LABELS = "labels"  # a key of the manifest, if there are any


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """One array of every shard: its name, dtype (little-endian) and the shape of one row."""

    name: str
    dtype: str
    row_shape: tuple[int, ...]

    def as_json(self) -> list[Any]:
        """Its fields, as manifests and workers tell them."""
        return [self.name, self.dtype, list(self.row_shape)]


@dataclass(frozen=True)
class StoredShard(Mapping[str, NDArray[Any]]):
    """The rows of one shard. Each array is mapped, read-only, at first access.

    It is a `quorate.models.protocol.Shard`. Pickling it sends its path, never its rows.
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
        """Read all of the shard and raise `BadInputError` if its content has changed."""
        digests = [content_digest(self[spec.name]) for spec in self.arrays]
        if fingerprint(self.arrays, self.n_rows, digests) != self.fingerprint:
            raise self._damaged("its content has changed since it was written")

    def _map(self, name: str) -> NDArray[Any]:
        position = {spec.name: i for i, spec in enumerate(self.arrays)}[name]
        spec = self.arrays[position]
        try:
            path = array_path(self.folder, self.number, position)
            array = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError, EOFError, SyntaxError, TokenError) as error:
            what = error.strerror if isinstance(error, OSError) else "it is no array of numpy"
            raise self._damaged(f"array {spec.name!r} cannot be opened ({what})") from error
        if (array.dtype.str, array.shape) != (spec.dtype, (self.n_rows, *spec.row_shape)):
            raise self._damaged(f"array {spec.name!r} is {array.dtype.str} of {array.shape}")
        return array

    def _damaged(self, what: str) -> BadInputError:
        return BadInputError(
            f"Shard {self.number} in {self.folder}, with {self.n_rows:,} rows, is damaged: {what}. "
            "Write the shards again, into a new folder."
        )


@dataclass(frozen=True)
class ShardSet:
    """All shards of a data set. None is opened until it is used.

    Parameters
    ----------
    by, seed
        How rows were dealt: see `quorate.data.write.write_shards`.
    n_rows
        Number of rows of each shard.
    fingerprints
        SHA-256 of each shard's names, dtypes, shapes and content. They depend neither on the
        machine nor on the kind of source nor on the order of the arrays.
    label_digests
        SHA-256 of the file of labels of each array of codes, by its name.
    """

    folder: Path
    by: str
    seed: int
    arrays: tuple[ArraySpec, ...]
    n_rows: tuple[int, ...]
    fingerprints: tuple[str, ...]
    label_digests: tuple[tuple[str, str], ...] = ()

    @classmethod
    def open(cls, folder: str | Path) -> "ShardSet":
        """Read the manifest and nothing else. Its checksum shows any change."""
        folder = Path(folder).resolve()
        path = folder / MANIFEST
        require(
            path.is_file(),
            f"{folder} holds no shards: it has no {MANIFEST}. Write shards there first, or, if it "
            "held some, put the file back.",
        )
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            checksum = content.pop("checksum")
            version = content["schema"]
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise _tampered(path) from error
        require(
            version == SCHEMA,
            f"{path} has schema {version!r}; this quorate reads schema {SCHEMA}. Write the shards "
            "again.",
        )
        if checksum != _sha256(content) or set(content) - {_LABELS} != _KEYS:
            raise _tampered(path)
        arrays = tuple(ArraySpec(name, d, tuple(shape)) for name, d, shape in content["arrays"])
        rows, prints = tuple(content["n_rows"]), tuple(content["fingerprints"])
        labels = tuple(content.get(_LABELS, {}).items())
        if not {name for name, _ in labels} <= {*LEVELS, OWNERS}:
            raise _tampered(path)
        return cls(folder, content["by"], content["seed"], arrays, rows, prints, labels)

    @property
    def n_shards(self) -> int:
        """Number of shards K."""
        return len(self.n_rows)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arrays of every shard."""
        return tuple(spec.name for spec in self.arrays)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the fingerprints of all shards, in order."""
        return fingerprint_of_all(self.fingerprints)

    def shard(self, number: int) -> StoredShard:
        """Shard `number`, counted from 0. Its arrays are mapped at first access."""
        known = 0 <= number < self.n_shards
        require(known, f"No shard {number}. There are {self.n_shards} shards, counted from 0.")
        n_rows, fingerprint = self.n_rows[number], self.fingerprints[number]
        return StoredShard(self.folder, number, self.arrays, n_rows, fingerprint)

    def labels(self, name: str) -> NDArray[Any]:
        """What the codes in an array stand for: `labels("group")[code]` is the value of a group.

        Shape (n_groups,), over all shards. Groups within groups, `labels("inner")`, are pairs of
        values: a structured array with a field for each column.
        """
        return read_labels(self.folder, name, dict(self.label_digests))

    def verify(self) -> None:
        """Read all shards and raise `BadInputError` for the first that has changed."""
        for name, _ in self.label_digests:
            self.labels(name)
        for number in range(self.n_shards):
            self.shard(number).verify()

    def save(self) -> None:
        """Write the manifest atomically."""
        content: dict[str, Any] = {
            "schema": SCHEMA,
            "by": self.by,
            "seed": self.seed,
            "arrays": [spec.as_json() for spec in self.arrays],
            "n_rows": list(self.n_rows),
            "fingerprints": list(self.fingerprints),
        }
        if self.label_digests:
            content[_LABELS] = dict(self.label_digests)
        content["checksum"] = _sha256(content)
        save(self.folder / MANIFEST, f"{json.dumps(content, indent=1)}\n".encode())


def array_path(folder: Path, shard: int, position: int) -> Path:
    """Path of an array, by its position in the manifest: names are never parts of paths."""
    return folder / f"shard-{shard:05d}" / f"array-{position:03d}.npy"


def labels_path(folder: Path, name: str) -> Path:
    """Path of the labels of the codes in an array, one of `quorate.data.codes.LEVELS`."""
    return folder / f"labels-{name}.npy"


def read_labels(folder: Path, name: str, digests: Mapping[str, str]) -> NDArray[Any]:
    """The labels of the codes in an array, if their file is the one with this SHA-256."""
    require(
        name in digests,
        f"The shards in {folder} have no labels of `{name}`. Cut the data by groups, with "
        "by='group:COLUMN'.",
    )
    path = labels_path(folder, name)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInputError(
            f"{path} cannot be read ({error.strerror}). It has the labels of groups: put it back, "
            "or write the shards again, into a new folder."
        ) from None
    if hashlib.sha256(content).hexdigest() != digests[name]:
        raise _tampered(path)
    try:
        return np.asarray(np.load(BytesIO(content), allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise _tampered(path) from error


def content_digest(array: NDArray[Any]) -> str:
    """SHA-256 of the bytes of a little-endian array, row by row."""
    return hashlib.sha256(raw(array)).hexdigest()


def raw(array: NDArray[Any]) -> memoryview:
    """The bytes of an array, row by row."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def fingerprint(arrays: tuple[ArraySpec, ...], n_rows: int, digests: list[str]) -> str:
    """Fingerprint of one shard, from the digests of its arrays' contents."""
    parts = [
        [spec.name, spec.dtype, [n_rows, *spec.row_shape], digest]
        for spec, digest in zip(arrays, digests, strict=True)
    ]
    return _sha256(sorted(parts))


def fingerprint_of_all(fingerprints: Sequence[str]) -> str:
    """SHA-256 of the fingerprints of all shards, in order."""
    return _sha256(list(fingerprints))


def _sha256(content: object) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _tampered(path: Path) -> BadInputError:
    n_shards = sum(1 for _ in path.parent.glob("shard-*"))
    return BadInputError(
        f"{path} has changed since it was written, and the {n_shards:,} shards beside it cannot be "
        "used without it. Write the shards again, into a new folder."
    )
