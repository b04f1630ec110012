"""How rows are cut into shards, as users choose it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quorate._types import Progress
from quorate.data.complete import NA
from quorate.data.write import ShardSet, Transform, write_shards
from quorate.errors import require

COMMAND = "command"  # in `made_by`: one that draws from the same posterior
_SHUFFLE, _FILES, _GROUP = "shuffle", "files", "group"
_IN_PLACE, _RANDOM = "in-place", "in-place-random"


@dataclass(frozen=True)
class Cut:
    """The cut of rows into shards; see `quorate.data.write.write_shards`.

    Parameters
    ----------
    by
        How rows are cut into shards: shuffle, files, stratify:COLUMN, group:COLUMN, or in-place. By
        default rows are shuffled; those of a model with groups stay together by group. Rows
        in-place are read by the workers themselves, as they lie in Parquet files; if these are
        random samples of the rows, in-place-random says so, and a merge is allowed.
    columns
        Columns of the data that the model reads; all by default.
    transform
        A function of the rows of a batch, applied before they are written.
    made_by
        What made the transform, as JSON values for the journal: a formula, whether it was allowed
        to run Python, and the command that draws from the same posterior.
    na
        What to do about rows with missing values in the columns that are read: raise, or drop them.
    scratch
        Folder on every node for copies of rows in place. By default that of temporary files. A
        copy has only the columns that are read.
    """

    by: str | None = None
    columns: Sequence[str] | None = None
    transform: Transform | None = None
    made_by: Mapping[str, Any] | None = None
    na: NA = "raise"
    scratch: str | None = None

    def __post_init__(self) -> None:
        require(
            self.by is None or isinstance(self.by, str),
            f"by must be text, such as 'shuffle', not {self.by!r}.",
        )

    @property
    def is_in_place(self) -> bool:
        """Whether workers read rows where they lie."""
        return self._way in (_IN_PLACE, _RANDOM)

    @property
    def _way(self) -> str:
        return (self.by or "").partition(":")[0]

    def require_mergeable(self, named: bool) -> None:
        """Refuse to merge draws of shards that nobody says are random samples of the rows.

        Parameters
        ----------
        named
            Whether the user asked for a merge by name.
        """
        require(
            not self.is_in_place or (named and self._way == _RANDOM),
            "A merge needs shards that are random samples of the rows, and rows in place are taken "
            "as they lie. Use method='exact'. If the files are random samples, use method='merge' "
            f"with by={_RANDOM!r}.",
        )

    @property
    def chosen(self) -> str:
        """How rows are cut into shards; shuffled by default, for a model without groups."""
        return _SHUFFLE if self.by is None else self.by

    def settled(self, groups: str = "") -> "Cut":
        """A copy of this cut with its default filled in, for a model whose groups must stay whole.

        Parameters
        ----------
        groups
            The columns that define groups, `county` or `state/county`; empty for models without.
        """
        if not groups:
            return replace(self, by=self.chosen)
        if self.by is None:
            return replace(self, by=f"{_GROUP}:{groups}")
        if self.is_in_place:  # workers tell the groups of their shards
            return replace(self, by=f"{self._way}:{groups}")
        proven = f"{_FILES}:{groups}"
        if self.by in (_FILES, proven):
            return replace(self, by=proven)
        require(
            self.by == f"{_GROUP}:{groups}",
            f"by={self.by!r} would put rows of one group into several shards. The model has "
            "parameters for each group, so its posterior would be wrong by several standard "
            f"deviations, and no check would show it. Leave out `by`, or use by='{_GROUP}:{groups}'"
            f". Use by='{_FILES}' if no group of `{groups}` has rows in two files.",
        )
        return self

    def write(
        self, data: object, n_shards: int, folder: Path, seed: int, progress: Progress | None = None
    ) -> ShardSet:
        """Cut `data` into shards in `folder`; for `progress` see `write_shards`."""
        return write_shards(
            data,
            n_shards,
            folder,
            seed=seed,
            by=self.chosen,
            columns=self.columns,
            transform=self.transform,
            na=self.na,
            progress=progress,
        )
