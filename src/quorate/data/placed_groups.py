"""Groups of rows in place: each shard numbers its own, and the next shard goes on counting.

All rows of a group lie in one shard. Workers tell which groups they have found, and the folder of
the shards gets the labels of all of them. The codes of a level are in the order of the shards, and
within a shard in the order of the labels.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._files import Saving
from quorate._types import IntArray
from quorate.data.codes import LEVELS
from quorate.data.placed import PlacedShards, Shards
from quorate.data.store import StoredShard, labels_path
from quorate.errors import BadInputError, require

Labels = Mapping[str, NDArray[Any]]  # by the name of the array of codes


def with_groups(shards: PlacedShards, found: Sequence[Labels]) -> PlacedShards:
    """The shards with the groups that workers found in each; their labels are written.

    Raises
    ------
    BadInputError
        A group has rows in two shards, or shards have labels of different kinds.
    """
    names = [name for name in LEVELS if name in found[0]]
    if not names:
        return shards
    _require_whole(shards, [labels[LEVELS[0]] for labels in found])
    counts, digests = [], []
    shards.folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        each = [labels[name] for labels in found]
        kinds = {_kinds(labels) for labels in each}
        require(len(kinds) == 1, f"Groups are named by {' and '.join(sorted(kinds))}. Use one.")
        together = np.concatenate(each)
        counts.append((name, tuple(map(len, each))))
        with Saving() as saving:
            path = labels_path(shards.folder, name)
            digests.append((name, saving.write(path, _writer(together))))
    return replace(shards, n_groups=tuple(counts), label_digests=tuple(digests))


def labels_of_shards(shards: PlacedShards) -> list[Labels]:
    """The labels of the groups of each shard, as `with_groups` takes them."""
    parts = {
        name: np.split(shards.labels(name), np.cumsum(counts)[:-1])
        for name, counts in shards.n_groups
    }
    return [{name: of[i] for name, of in parts.items()} for i in range(shards.n_shards)]


def _writer(labels: NDArray[Any]) -> Any:
    return lambda file: np.save(file, labels, allow_pickle=False)


def _kinds(labels: NDArray[Any]) -> str:
    dtype = labels.dtype
    each = [dtype] if dtype.names is None else [dtype[name] for name in dtype.names]
    words = {"U": "text", "M": "dates", "f": "fractions", "b": "true and false"}
    return "/".join(words.get(one.kind, "whole numbers") for one in each)


def _require_whole(shards: PlacedShards, found: Sequence[NDArray[Any]]) -> None:
    holders: dict[Any, int] = {}
    for number, labels in enumerate(found):
        for label in labels.tolist():
            other = holders.setdefault(label, number)
            if other != number:
                one, two = (_where(shards, shard) for shard in (other, number))
                raise BadInputError(
                    f"Group {label!r} has rows in {one} and in {two}. All rows of a group must be "
                    "in one file, or at one site. Leave out `by`, so that rows are cut by group."
                )


def _where(shards: PlacedShards, number: int) -> str:
    place = shards.places[number]
    return place.site or " or ".join(dict.fromkeys(g.address for g in place.row_groups))


def first_codes(shards: PlacedShards, number: int) -> dict[str, int]:
    """The first code that a shard has of each level."""
    return {name: sum(counts[:number]) for name, counts in shards.n_groups}


def groups_held(shards: Shards, number: int) -> IntArray:
    """Codes of the groups of the outer level that have rows in a shard."""
    if isinstance(shards, PlacedShards):
        first = first_codes(shards, number)[LEVELS[0]]
        return first + np.arange(dict(shards.n_groups)[LEVELS[0]][number])
    return np.unique(shards.shard(number)[LEVELS[0]])


@dataclass(frozen=True)
class CountedOn(Mapping[str, NDArray[Any]]):
    """The rows of a shard, with codes of groups that go on from those of earlier shards."""

    rows: StoredShard
    first: Mapping[str, int]
    _codes: dict[str, NDArray[Any]] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self.first:
            return self.rows[name]
        if name not in self._codes:
            codes = self.rows[name] + self.first[name]
            codes.flags.writeable = False
            self._codes[name] = codes
        return self._codes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def packed_labels(labels: NDArray[Any]) -> NDArray[np.uint8]:
    """Labels as bytes, for their way to the coordinator."""
    file = BytesIO()
    np.save(file, labels, allow_pickle=False)
    return np.frombuffer(file.getvalue(), dtype=np.uint8)


def unpacked_labels(packed: NDArray[np.uint8]) -> NDArray[Any]:
    """What `packed_labels` packed. Nothing is executed."""
    return np.asarray(np.load(BytesIO(packed.tobytes()), allow_pickle=False))
