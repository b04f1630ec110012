"""What a run gives: draws by name, how far they go, and what happened on the way."""

import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from quorate._types import Array
from quorate.engines.timeline import Timeline
from quorate.errors import named_workers, require
from quorate.extras import load
from quorate.model import Model
from quorate.summaries import summary_row

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


_SUMMARY = "summary.json"
_FEWEST = 4
_TELLING = 10  # blocks of the others before one is called slow


def load_summary(run_dir: Path) -> dict[str, dict[str, float]]:
    """The summary of a run that was saved."""
    path = run_dir / _SUMMARY
    require(path.is_file(), "run", str(run_dir), "there is no finished run in this folder")
    rows: dict[str, dict[str, float]] = json.loads(path.read_text())
    return rows


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
    timeline
        When blocks arrived and draws were released, in seconds.
    scheme, workers, redundancy
        What ran.
    lost
        Workers that were lost on the way.
    stopped
        Why the run ended: `done`, `time is up`, `enough effective draws`, `interrupted` or
        `workers lost`.
    run_dir
        Where its files are.
    """

    model: Model
    unconstrained: Array
    shard_draws: tuple[Array, ...]
    timeline: Timeline
    scheme: str
    workers: int
    redundancy: int
    lost: frozenset[int]
    stopped: str
    run_dir: str

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

    def seconds_alone(self) -> list[float]:
        """How long each worker would take for as many draws of one shard, at the speed it had.

        Plain CMC would have waited for the longest of them: for ever, if a worker was lost.
        """
        draws = np.zeros(self.workers)
        last = np.full(self.workers, np.inf)
        story = self.timeline
        for worker, n, time in zip(
            story.block_workers, story.block_sizes, story.block_times, strict=True
        ):
            draws[worker] += n * self.redundancy
            last[worker] = time
        seconds = last * self.n_draws / np.maximum(draws, 1)
        return [np.inf if k in self.lost else float(s) for k, s in enumerate(seconds)]

    @cached_property
    def posterior(self) -> "xr.DataTree":
        """The draws in ArviZ's form: one chain, groups `posterior` and `sample_stats`."""
        import xarray as xr

        named = {
            name: (
                ("chain", "draw", *(f"{name}_dim_{i}" for i in range(values.ndim - 1))),
                values[None],
            )
            for name, values in self.variables.items()
        }
        times = np.array(self.timeline.release_times[: self.n_draws])
        coords = {"chain": [0], "draw": np.arange(self.n_draws)}
        stats = {"release_time": (("chain", "draw"), times[None])}
        return xr.DataTree.from_dict(
            {
                "posterior": xr.Dataset(named, coords, self._attributes()),
                "sample_stats": xr.Dataset(stats, coords),
            }
        )

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
        if self.n_draws < _FEWEST:
            return {}
        return {name: self._row(values) for name, values in self.scalars()}

    def save(self) -> None:
        """Put the draws by name, and their summary, into the run's folder."""
        folder = Path(self.run_dir)
        np.savez(folder / "draws.npz", **self.variables)  # type: ignore[arg-type]
        (folder / _SUMMARY).write_text(json.dumps(self.summary_rows(), indent=2))

    def scalars(self) -> list[tuple[str, Array]]:
        """Each scalar of each variable, named like `beta[2]`, with its draws."""
        listed = []
        for name, values in self.variables.items():
            for index in np.ndindex(values.shape[1:]):
                label = f"{name}[{','.join(map(str, index))}]" if index else name
                listed.append((label, values[(slice(None), *index)]))
        return listed

    @staticmethod
    def _row(values: Array) -> dict[str, float]:
        return summary_row(values)

    def to_netcdf(self, path: str) -> None:
        """Write `posterior` to a NetCDF file that ArviZ reads."""
        load("h5netcdf", "netcdf")
        self.posterior.to_netcdf(path)

    def __repr__(self) -> str:
        seconds = self.timeline.release_times[-1] if self.timeline.release_times else 0.0
        story = f"{self.n_draws} draws by {self.scheme} on {self.workers} workers"
        story += f" (redundancy {self.redundancy}) in {seconds:.1f} s: {self.stopped}"
        if self.lost:
            story += f"; lost {named_workers(self.lost)}"
        blocks = self.blocks_of_workers()
        slowest = int(np.argmin(blocks))
        others = np.median(np.delete(blocks, slowest)) if self.workers > 1 else 0
        if others >= _TELLING and blocks[slowest] < others / 4:
            story += f"; worker {slowest} was slow: {blocks[slowest]} blocks"
            story += f", where others sent {others:.0f}"
        return f"<Result: {story}>"
