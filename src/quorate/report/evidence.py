"""Everything a report is made of, read from the folder of a run."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import BadInputError, SingularCovarianceError, require
from quorate.numerics.ess import ess_of_chains, in_chains, nested_rhat
from quorate.report.counterfactual import Pace, cmc_releases, paces
from quorate.results.marginals import FEWEST, Densities
from quorate.results.saved import DENSITIES, SUMMARY, VERDICT, load, load_summary
from quorate.results.summary import INTERVAL, sds, settling, summary_row
from quorate.run.blocks import Blocks
from quorate.run.history import History

COLUMNS = {
    "mean": "mean",
    "sd": "sd",
    **{end: end.replace("%", " %") for end in INTERVAL},
    "ess": "ESS",
    "mcse": "MCSE",
}
_MOST_POINTS = 200

Rows = dict[str, dict[str, float]]


@dataclass(frozen=True, eq=False)
class Evidence:
    """A run as its folder holds it.

    Parameters
    ----------
    folder
        Folder of the run.
    history
        Its journal, read to the end.
    saved
        The summary that the run wrote at its end, on the natural scale; None if it wrote none.
    verdict
        What `quorate check` wrote; None if the run was not checked; a string if it is unreadable.
    saved_densities
        Densities of the scalars of the saved summary; None if there are none.
    """

    folder: Path
    history: History
    saved: Rows | None
    verdict: dict[str, Any] | str | None
    saved_densities: Densities | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the draws are of the posterior itself, and not merged."""
        return self.history.passes is not None

    @property
    def columns(self) -> dict[str, str]:
        """Keys of the columns of the table, with their titles."""
        return {**COLUMNS, "r_hat": "R-hat"} if self.is_exact else COLUMNS

    @cached_property
    def rows(self) -> Rows:
        """Rows of the table: as saved, or else those of the unconstrained draws."""
        if self.saved is not None:
            return self.saved
        columns = zip(self._columns, self.ess, self.r_hat, strict=False)
        return {
            name: {**summary_row(values, float(ess)), "r_hat": float(r_hat)}
            for (name, values), ess, r_hat in columns
        }

    @cached_property
    def _columns(self) -> list[tuple[str, Array]]:
        """Unconstrained draws by coordinate; none if there are too few."""
        columns = zip(self.history.names, self.merged.T, strict=True)
        return list(columns) if len(self.merged) >= FEWEST else []

    @cached_property
    def merged(self) -> Array:
        """Global draws, unconstrained."""
        return self.history.global_draws()

    @cached_property
    def ess(self) -> Array:
        """Effective sample size of each coordinate; NaN if it is unknown."""
        try:
            return self.history.view.ess() if self.saved is None else self._ess_beside(self.saved)
        except SingularCovarianceError:
            return np.full(self.history.dim, np.nan)

    def _ess_beside(self, saved: Rows) -> Array:
        """ESS of each coordinate: of an exact run, as saved for coordinates in the summary."""
        n_chains = self.history.scheme.received.n_chains
        if n_chains == 1:
            return self.history.view.ess()
        found = np.full(self.history.dim, np.nan)
        for j, (name, values) in enumerate(self._columns):
            if name in saved and _is_of(saved[name], values):
                found[j] = saved[name]["ess"]
        unknown = np.isnan(found)
        if unknown.any():
            found[unknown] = ess_of_chains(self.merged[:, unknown], n_chains)
        return found

    @cached_property
    def r_hat(self) -> Array:
        """Nested R-hat of each coordinate of an exact run; NaN if it is unknown."""
        n_chains = self.history.scheme.received.n_chains if self.is_exact else 1
        return nested_rhat(in_chains(self.merged, n_chains))

    @cached_property
    def densities(self) -> Densities:
        """Densities of the parameters: as saved, or else those of the unconstrained draws."""
        if self.saved_densities is not None:
            return self.saved_densities
        names = self.history.names

        def named(draws: Array) -> dict[str, Array]:
            return dict(zip(names, draws.T, strict=True))

        return Densities.of(self._columns, self.history.shard_draws(), named).thinned()

    @cached_property
    def blocks(self) -> Blocks:
        """All blocks."""
        return self.history.blocks()

    @cached_property
    def paces(self) -> list[Pace]:
        """How fast each worker would have been under CMC."""
        return paces(self.history)

    @cached_property
    def counts(self) -> IntArray:
        """Numbers of global draws from 1 to all of them, few enough for a line in a picture."""
        n = self.history.n_global
        return np.unique(np.linspace(1, max(n, 1), _MOST_POINTS).round().astype(np.int64))

    @cached_property
    def release_times(self) -> Array:
        """When `counts` global draws were complete."""
        times, n_global = self.blocks.releases
        return times[np.searchsorted(n_global, self.counts)]

    @cached_property
    def cmc_times(self) -> Array:
        """When `counts` global draws would have been complete under CMC; inf for never.

        Exact runs have no draws of shards to tell that from.
        """
        if self.is_exact:
            return np.full(len(self.counts), np.inf)
        return cmc_releases(self.paces, self.counts)

    def errors(self) -> tuple[Array, Array]:
        """Expected error of the mean of the first draws, and its distance from the mean of all.

        Both are in posterior standard deviations, as a root mean square over coordinates. The
        expected error is that of the effective sample size of all draws, spread evenly over them.
        """
        weights, shard_draws = self.history.view.weights(), self.history.view.shard_draws()
        # With weights, shards alone tell both: there is no need to merge their draws.
        draws = self.merged if weights is None else np.empty((0, self.history.dim))
        scale = sds(draws, weights, shard_draws)
        moving = (scale > 0) & np.isfinite(self.ess)
        shares = self.counts / self.counts[-1]
        expected = np.sqrt(np.mean(1 / self.ess[moving]) / shares)
        gaps = settling(draws, weights, shard_draws, shares)
        seen = np.sqrt(np.mean((gaps[:, moving] / scale[moving]) ** 2, axis=1))
        return np.asarray(expected), np.asarray(seen)


def _is_of(row: dict[str, float], values: Array) -> bool:
    """Whether a row of a summary is that of `values`, and not of a function of them."""
    found = [values.mean(), values.std(ddof=1)]
    return np.allclose(found, [row["mean"], row["sd"]], rtol=1e-9, atol=0)


def gathered(history: History, folder: Path) -> Evidence:
    """The evidence about a run whose history has been read.

    A summary counts only if the run has ended: during a run it may be that of an earlier sitting.
    """
    there = (folder / SUMMARY).is_file() and history.stopped is not None
    saved = _saved(folder) if there else None
    densities = _densities(folder) if saved else None
    return Evidence(folder, history, saved or None, _verdict(folder), densities)


def _saved(folder: Path) -> Rows:
    """The saved summary; an error if the file holds anything else."""
    rows = load_summary(folder)
    require(
        all(row.keys() >= COLUMNS.keys() for row in rows.values()), _unreadable(folder, SUMMARY)
    )
    return rows


def _densities(folder: Path) -> Densities | None:
    content = load(folder, DENSITIES)
    try:
        return None if content is None else Densities.from_json(content)
    except ValueError:
        raise BadInputError(_unreadable(folder, DENSITIES)) from None


def _unreadable(folder: Path, name: str) -> str:
    return f"{folder / name} is not a file that a run writes. Remove it."


def _verdict(folder: Path) -> dict[str, Any] | str | None:
    try:
        content = load(folder, VERDICT)
        found = None if content is None else json.loads(content)
    except (ValueError, RecursionError) as error:
        return str(error)
    return found if content is None or isinstance(found, dict) else "it holds no verdict"
