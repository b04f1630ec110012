"""How rows are cut into shards, as users choose it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quorate.data.write import ShardSet, Transform, write_shards


@dataclass(frozen=True)
class Cut:
    """The cut of rows into shards; see `quorate.data.write.write_shards`.

    Parameters
    ----------
    by
        Which rows go together: shuffle, files, stratify:COLUMN, or group:COLUMN.
    columns
        Columns of the data that the model reads; all by default.
    transform
        A function of the rows of a batch, applied before they are written.
    made_by
        What made the transform, as JSON values for the journal: a formula, and whether it was
        allowed to run Python.
    """

    by: str = "shuffle"
    columns: Sequence[str] | None = None
    transform: Transform | None = None
    made_by: Mapping[str, Any] | None = None

    def write(self, data: object, n_shards: int, folder: Path, seed: int) -> ShardSet:
        """Cut `data` into shards in `folder`."""
        return write_shards(
            data,
            n_shards,
            folder,
            seed=seed,
            by=self.by,
            columns=self.columns,
            transform=self.transform,
        )
