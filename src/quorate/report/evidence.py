"""All that a report is made of, read from the folder of a run."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import BadInputError, require
from quorate.numerics.ess import mean_ess
from quorate.report.counterfactual import Pace, paces
from quorate.results.densities import Densities
from quorate.results.marginals import FEWEST, made_marginals, n_panels
from quorate.results.result import DENSITIES, load_summary
from quorate.results.summary import summary_row
from quorate.run.history import Blocks, History

COLUMNS = {"mean": "mean", "sd": "sd", "3%": "3 %", "97%": "97 %", "ess": "ESS", "mcse": "MCSE"}
_VERDICT = "verdict.json"
_MOST_POINTS = 200

Rows = dict[str, dict[str, float]]


@dataclass(frozen=True, eq=False)
class Evidence:
    """A run as it lies on disk.

    Parameters
    ----------
    folder
        Where it lies.
    history
        Its journal, read through.
    saved
        The summary that the run wrote at its end, on the natural scale; None if it has none.
    verdict
        What `quorate check` wrote, as it is; None if nobody checked; a string if it is unreadable.
    saved_densities
        Those of the saved summary's scalars; None if there are none.
    """

    folder: Path
    history: History
    saved: Rows | None
    verdict: dict[str, Any] | str | None
    saved_densities: Densities | None = None

    @cached_property
    def rows(self) -> Rows:
        """What is told of each parameter: as saved, or else of the unconstrained draws."""
        return self.saved if self.saved is not None else self.unconstrained_rows

    @cached_property
    def unconstrained_rows(self) -> Rows:
        """The same for the coordinates in which draws are merged."""
        draws = self.merged
        if len(draws) < FEWEST:
            return {}
        columns = zip(self.history.names, draws.T, strict=True)
        return {name: summary_row(column) for name, column in columns}

    @cached_property
    def merged(self) -> Array:
        """Global draws, unconstrained."""
        return self.history.global_draws()

    @cached_property
    def shards(self) -> list[Array]:
        """Draws of each shard, unconstrained."""
        return self.history.shard_draws()

    @cached_property
    def densities(self) -> Densities:
        """What is shown of each parameter: as saved, or else of the unconstrained draws."""
        if self.saved_densities is not None:
            return self.saved_densities
        history = self.history
        left = [shard for shard in range(history.n_workers) if shard not in history.excluded]
        shards = left if history.sends_draws else []
        columns = zip(history.names, self.merged.T, strict=True)
        scalars = list(columns) if len(self.merged) >= FEWEST else []
        shown = scalars[: n_panels(len(shards))]
        by_name = (dict(zip(history.names, self.shards[s].T, strict=True)) for s in shards)
        made = made_marginals(shown, by_name)
        return Densities(made, shards, len(scalars) - len(shown)).thinned()

    @cached_property
    def blocks(self) -> Blocks:
        """All of them."""
        return self.history.blocks()

    @cached_property
    def paces(self) -> list[Pace]:
        """Workers under CMC."""
        return paces(self.history)

    @cached_property
    def counts(self) -> IntArray:
        """Numbers of global draws from 1 to all of them, few enough to draw a line through."""
        n = self.history.n_global
        return np.unique(np.linspace(1, max(n, 1), _MOST_POINTS).round().astype(np.int64))

    def release_times(self, counts: IntArray) -> Array:
        """When there were so many global draws."""
        times, n_global = self.blocks.releases
        return times[np.searchsorted(n_global, counts)]

    def errors(self, counts: IntArray) -> tuple[Array, Array]:
        """How far the mean of the first draws may be off, and how far it is from that of all.

        Both in posterior standard deviations, as a root mean square over coordinates: by the
        effective number of all draws, spread evenly over them; and as it was.
        """
        draws = self.merged
        scale = draws.std(axis=0)
        moving = scale > 0
        draws, scale = draws[:, moving], scale[moving]
        upto = np.clip(counts * len(draws) // counts[-1], 1, len(draws))
        ess = mean_ess(draws[None])
        expected = np.sqrt(np.mean(len(draws) / ess) / upto)
        means = np.cumsum(draws, axis=0)[upto - 1] / upto[:, None]
        seen = np.sqrt(np.mean(((means - draws.mean(axis=0)) / scale) ** 2, axis=1))
        return np.asarray(expected), np.asarray(seen)


def gathered(history: History, folder: Path) -> Evidence:
    """All that is known of a run whose history has been read.

    A summary counts only if the run has ended: one under way may have one of an earlier sitting.
    """
    there = (folder / "summary.json").is_file() and history.stopped is not None
    saved = _saved(folder) if there else None
    densities = _densities(folder / DENSITIES) if saved else None
    return Evidence(folder, history, saved or None, _verdict(folder / _VERDICT), densities)


def _saved(folder: Path) -> Rows:
    """The summary, if it is one that a run writes."""
    rows: Rows = {}
    try:
        rows = load_summary(folder)
        numbers = [row[key] for row in rows.values() for key in COLUMNS]
        are_numbers = all(isinstance(value, int | float) for value in numbers)
    except (ValueError, TypeError, KeyError, AttributeError):
        are_numbers = False
    way_out = "it is not one that a run writes: remove the file"
    require(are_numbers, "summary", str(folder / "summary.json"), way_out)
    return rows


def _densities(path: Path) -> Densities | None:
    if not path.is_file():
        return None
    try:
        return Densities.load(path)
    except ValueError:
        way_out = "they are not what a run writes: remove the file"
        raise BadInputError("densities", str(path), way_out) from None


def _verdict(path: Path) -> dict[str, Any] | str | None:
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        return str(error)
    return found if isinstance(found, dict) else "it holds no verdict"
