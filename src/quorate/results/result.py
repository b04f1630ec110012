"""What a run gives: draws by name, how far they go, and what happened on the way."""

import json
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate.results import marginals as plots
from quorate.results import notebook
from quorate._types import Array
from quorate.results.arviz import (
    inference_data,
    posterior_group,
    run_group,
    shards_group,
    stats_group,
)
from quorate.results.densities import Densities
from quorate.protocol.timeline import Timeline
from quorate.errors import BadInputError, named_shards, named_workers, require
from quorate._extras import load
from quorate.merging.ess import ess_and_rhat
from quorate.models.protocol import Model
from quorate.numerics.names import named_scalars
from quorate.numerics.streams import Streams
from quorate.results.summary import summary_row
from quorate.trust.verdict import Verdict

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.figure import Figure


_SUMMARY, _VERDICT, _STORY = "summary.json", "verdict.json", "story.txt"
DENSITIES = "densities.json"
_MOST_PANELS = 40
_TELLING = 10  # blocks of the others before one is called slow
_ENOUGH = 10_000  # draws of a shard for a density


def load_summary(run_dir: Path) -> dict[str, dict[str, float]]:
    """The summary of a run that was saved."""
    path = run_dir / _SUMMARY
    require(path.is_file(), "run", str(run_dir), "there is no finished run in this folder")
    rows: dict[str, dict[str, float]] = json.loads(path.read_text())
    return rows


def load_story(run_dir: Path) -> str:
    """What happened in a run that was saved, in a sentence."""
    path = run_dir / _STORY
    return path.read_text().strip() if path.is_file() else ""


@dataclass(frozen=True, eq=False)
class Result:
    """Draws of the posterior, and the story of the run.

    Parameters
    ----------
    model
        Whose posterior it is.
    unconstrained
        Global draws, shape (n_draws, dim).
    shard_draws
        All draws received of each shard, unconstrained, shape (n_received, dim) each; empty for
        coded runs, in which single draws are never sent.
    weights
        W_s of the shards, shape (n_shards, dim, dim); None for coded runs.
    timeline
        When blocks arrived and draws were released, in seconds.
    scheme, workers, redundancy
        What ran.
    excluded
        Shards whose rows have no part in the draws: nobody was left who held them.
    lost
        Workers that were lost on the way.
    stopped
        Why the run ended: `done`, `time is up`, `enough effective draws`, `interrupted` or
        `workers lost`.
    run_dir
        Where its files are.
    verdict
        On the merge; None where nobody asked for one.
    """

    model: Model
    unconstrained: Array
    shard_draws: tuple[Array, ...]
    weights: Array | None
    timeline: Timeline
    scheme: str
    workers: int
    redundancy: int
    excluded: tuple[int, ...]
    lost: frozenset[int]
    stopped: str
    run_dir: str
    verdict: Verdict | None = None

    @cached_property
    def variables(self) -> dict[str, Array]:
        """Draws on the natural scale, by name: (n_draws, *shape) each."""
        return self.model.constrain(self.unconstrained)

    @property
    def n_draws(self) -> int:
        """Number of global draws."""
        return len(self.unconstrained)

    def blocks_of_workers(self) -> list[int]:
        """How many blocks each worker sent."""
        counts = Counter(self.timeline.block_workers)
        return [counts[worker] for worker in range(self.workers)]

    @cached_property
    def shard_variables(self) -> tuple[dict[str, Array], ...]:
        """The draws of each shard on the natural scale, by name; empty for coded runs."""
        return tuple(self.model.constrain(draws) for draws in self.shard_draws)

    @cached_property
    def posterior(self) -> "xr.DataTree":
        """The draws in ArviZ's form, in groups.

        `posterior`: one chain of global draws. `sample_stats`: when each of them was there, in
        seconds. `shard_posterior`: draws of the shards, filled up with NaN where a shard has fewer
        than another; not for coded runs. `run`: when blocks came, from which worker, of how many
        draws, and how many draws there are of each shard.
        """
        import xarray as xr

        groups = {
            "posterior": posterior_group(self.variables, self.n_draws, self._attributes()),
            "sample_stats": stats_group(self._release_times()),
            "run": run_group(self.timeline, [len(draws) for draws in self.shard_draws]),
        }
        if self.shard_draws:
            groups["shard_posterior"] = shards_group(self.shard_variables)
        return xr.DataTree.from_dict(groups)

    def _release_times(self) -> list[float]:
        """Of each draw; those that a run which ended early has beyond its promise came last."""
        times = self.timeline.release_times[: self.n_draws]
        return times + times[-1:] * (self.n_draws - len(times))

    def to_inference_data(self) -> Any:
        """`posterior` for the ArviZ that is installed: InferenceData before 1.0, else itself."""
        return inference_data(self.posterior)

    def _attributes(self) -> dict[str, str | int]:
        return {
            "inference_library": "quorate",
            "scheme": self.scheme,
            "workers": self.workers,
            "redundancy": self.redundancy,
            "stopped": self.stopped,
        }

    def summary(self) -> "pd.DataFrame":
        """Mean, sd, 94 % interval, ESS, MCSE and split R-hat of every scalar."""
        import pandas as pd

        return pd.DataFrame.from_dict(self.summary_rows(), orient="index")

    def summary_rows(self) -> dict[str, dict[str, float]]:
        """What `summary` tells, by name; nothing of fewer draws than have a spread."""
        return self._summary

    @cached_property
    def _summary(self) -> dict[str, dict[str, float]]:
        """Draws that were paired at random look independent: how far they go, shards tell."""
        if self.n_draws < plots.FEWEST:
            return {}
        scalars = self.scalars()
        if self.weights is None or min(map(len, self.shard_draws)) < plots.FEWEST:
            return {name: summary_row(values) for name, values in scalars}
        values = np.stack([values for _, values in scalars], axis=1)
        told = ess_and_rhat(values, self.unconstrained, self.weights, self.shard_draws)
        return {
            name: summary_row(values, float(ess), float(r_hat))
            for (name, values), ess, r_hat in zip(scalars, *told, strict=True)
        }

    def save(self) -> None:
        """Put draws by name, their summary, densities, story and verdict into the run's folder."""
        folder = Path(self.run_dir)
        self._densities().save(folder / DENSITIES)
        _write_arrays(folder / "draws.npz", self.variables)
        (folder / _SUMMARY).write_text(json.dumps(self.summary_rows(), indent=2))
        (folder / _STORY).write_text(f"{'; '.join(self._story())}\n")
        if self.verdict is None:
            (folder / _VERDICT).unlink(missing_ok=True)
        else:
            (folder / _VERDICT).write_text(json.dumps(self.verdict.as_json(), indent=2))

    def corrected(self) -> "Result":
        """Draws of the posterior itself: points of the check, resampled by their weights.

        As many as the weights are worth, so that the ESS of `summary` is not more than there is.
        They are as good as the weights are: look at `verdict.k_hat`.
        """
        weighted = None if self.verdict is None else self.verdict.weighted
        if weighted is None:
            way_out = "only a merge that was checked can be corrected: sample with check=True"
            raise BadInputError("verdict", self.verdict, way_out)
        n_draws = min(max(round(weighted.ess), 1), self.n_draws)
        draws = weighted.points[weighted.resampled(Streams(1), n_draws)]
        return replace(self, unconstrained=draws, scheme=f"{self.scheme}, corrected")

    def scalars(self) -> list[tuple[str, Array]]:
        """Each scalar of each variable, named like `beta[2]`, with its draws."""
        return named_scalars(self.variables)

    def plot(self, names: Sequence[str] | None = None) -> "Figure":
        """Densities of the merged draws, those of the shards in thin lines behind.

        Parameters
        ----------
        names
            Variables such as `beta`, or scalars such as `beta[2]`; all by default, the first 40
            where there are more.
        """
        require(self.n_draws >= plots.FEWEST, "draws", self.n_draws, "too few for a density")
        chosen = self._chosen(names)
        n_hidden = max(len(chosen) - _MOST_PANELS, 0)
        title = self._story()[0] + (f"; {n_hidden} more scalars" if n_hidden else "")
        return plots.marginals(self._marginals(chosen[:_MOST_PANELS]), title)

    def _marginals(self, scalars: Sequence[tuple[str, Array]]) -> list[plots.Marginal]:
        """Behind the merge are shards, and not the share of the prior of those left out."""
        shards = self.shard_draws[: len(self._included)]
        some = (draws[:: -(-len(draws) // _ENOUGH) or 1] for draws in shards)
        by_name = (dict(named_scalars(self.model.constrain(draws))) for draws in some)
        return plots.made_marginals(scalars, by_name)

    def _densities(self) -> Densities:
        """Of as many scalars as a report shows; of none where there are too few draws."""
        scalars = self.scalars() if self.n_draws >= plots.FEWEST else []
        shards = self._included if self.shard_draws else []
        shown = scalars[: plots.n_panels(len(shards))]
        return Densities(self._marginals(shown), shards, len(scalars) - len(shown))

    @property
    def _included(self) -> list[int]:
        return [shard for shard in range(self.workers) if shard not in self.excluded]

    def _chosen(self, names: Sequence[str] | None) -> list[tuple[str, Array]]:
        if names is None:
            return self.scalars()
        wanted = (names,) if isinstance(names, str) else names
        found = []
        for name in wanted:
            variable = named_scalars({name: self.variables[name]} if name in self.variables else {})
            scalars = variable or [scalar for scalar in self.scalars() if scalar[0] == name]
            known = ", ".join(self.variables)
            require(bool(scalars), "names", name, f"the variables are {known}")
            found += scalars
        return found

    def to_netcdf(self, path: str) -> None:
        """Write `posterior` to a NetCDF file that ArviZ reads."""
        load("h5netcdf", "netcdf")
        self.posterior.to_netcdf(path)

    def __repr__(self) -> str:
        return f"<Result: {'; '.join(self._story())}>"

    def _repr_html_(self) -> str:
        return notebook.page(self._story(), self.summary_rows())

    def _story(self) -> list[str]:
        """What happened."""
        seconds = self.timeline.release_times[-1] if self.timeline.release_times else 0.0
        ran = f"{self.n_draws} draws by {self.scheme} on {self.workers} workers"
        ran += f" (redundancy {self.redundancy}) in {seconds:.1f} s: {self.stopped}"
        lost = [f"lost {named_workers(self.lost)}"] if self.lost else []
        if self.excluded:
            lost.append(f"WITHOUT THE ROWS OF {named_shards(self.excluded).upper()}")
        checked = [] if self.verdict is None else [f"verdict: {self.verdict.in_short}"]
        return [ran, *lost, *self._who_was_slow(), *checked]

    def _who_was_slow(self) -> list[str]:
        blocks = self.blocks_of_workers()
        slowest = int(np.argmin(blocks))
        others = np.median(np.delete(blocks, slowest)) if self.workers > 1 else 0
        if others < _TELLING or blocks[slowest] >= others / 4:
            return []
        told = (
            f"worker {slowest} was slow: {blocks[slowest]} blocks, where others sent {others:.0f}"
        )
        return [told]


def _write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """An .npz file of arrays of any names; `np.savez` takes some for its own arguments."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
