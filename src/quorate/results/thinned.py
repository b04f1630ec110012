"""Draws of a result that are used to ask about rows: some of them, as many of every chain."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import require
from quorate.results.some_draws import require_whole, spaced

if TYPE_CHECKING:
    import xarray as xr

    from quorate.results.result import Result

N_DRAWS = 1000


@dataclass(frozen=True, eq=False)
class Thinned:
    """Some draws of a result, evenly spaced.

    Parameters
    ----------
    points
        The draws, unconstrained, (n, dim): one chain of `Result.chain_rows` after the other.
    numbers
        Which draws of `Result.laid_out` they are, (n,).
    steps
        Which draws of every chain they are, (n_steps,).
    """

    points: Array
    numbers: IntArray
    steps: IntArray

    @classmethod
    def of(cls, result: "Result", n: int) -> "Thinned":
        """About `n` draws of a result, at most; all of them if there are no more."""
        require_whole(n)
        rows = result.chain_rows
        n_chains, n_steps = rows.shape
        require(n_steps > 0, "The run has no draws yet. Resume it.")
        steps = spaced(n_steps, max(1, n // n_chains))
        numbers = rows[:, steps].ravel()
        return cls(result.laid_out[numbers], numbers, steps)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of chains, and of draws of each."""
        return len(self.numbers) // len(self.steps), len(self.steps)

    def posterior(self, result: "Result") -> "xr.Dataset":
        """The group `posterior` of the result, with these draws only."""
        whole = result.posterior["posterior"].to_dataset()
        some: xr.Dataset = whole.isel(draw=self.steps)
        return some

    def r_eff(self, result: "Result") -> float:
        """Mean over all scalars of their effective sample size, relative to these draws."""
        ess = np.array([row["ess"] for row in result.summary_rows().values()])
        known = ess[np.isfinite(ess)]
        if not len(known):
            return 1.0
        return float(np.minimum(known / len(self.numbers), 1.0).mean())
