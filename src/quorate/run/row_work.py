"""Questions about rows after a run: what is asked of its workers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._types import IntArray
from quorate.data.codes import LEVELS
from quorate.data.order import rows_of_data
from quorate.data.placed_groups import groups_held
from quorate.models.protocol import Model
from quorate.protocol.after import Answers
from quorate.protocol.row_questions import BLOCK, RowQuestion
from quorate.run.after import AfterRun
from quorate.run.local import labels_of_level


@dataclass(frozen=True, eq=False)
class RowRun:
    """A run whose workers are asked about single rows; see `quorate.run.after.AfterRun`."""

    folder: Path
    model: Model
    excluded: tuple[int, ...] = ()

    def ask(self, question: RowQuestion, answers: Answers, **options: Any) -> None:
        block: int = getattr(self.model, "rows_at_once", BLOCK)
        self._run.ask(replace(question, sizes=self.sizes, block=block), answers, **options)

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self._run.settings.seed

    @property
    def sizes(self) -> Mapping[int, int]:
        """Number of rows of each shard that has a part in the draws."""
        n_rows = self._run.shards.n_rows
        return {shard: n_rows[shard] for shard in self._run.included}

    @cached_property
    def rows(self) -> tuple[dict[int, IntArray], IntArray]:
        """For each shard the places of its rows in a result, and the number of each row.

        Rows are in the order of the data, with their numbers there. Where that order is not known,
        they are in the order of the shards.
        """
        known, included = rows_of_data(self._run.shards), self._run.included
        if known is None:
            ends = np.cumsum(list(self.sizes.values()))
            counted = np.split(np.arange(ends[-1]), ends[:-1])
            return dict(zip(included, counted, strict=True)), np.arange(ends[-1])
        if not self.excluded:
            return dict(enumerate(known)), np.arange(sum(map(len, known)))
        numbers = np.sort(np.concatenate([known[shard] for shard in included]))
        return {shard: np.searchsorted(numbers, known[shard]) for shard in included}, numbers

    def groups(self) -> tuple[IntArray, NDArray[Any]]:
        """Codes of the groups of the outer level that are asked about, and their labels."""
        shards = self._run.shards
        held = [groups_held(shards, shard) for shard in self._run.included]
        codes = np.sort(np.concatenate(held))
        return codes, labels_of_level(shards, LEVELS[0], self.model)[codes]

    @cached_property
    def _run(self) -> AfterRun:
        return AfterRun(self.folder, self.model, self.excluded)
