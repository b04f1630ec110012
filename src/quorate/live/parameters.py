"""The posterior so far: a summary of each unconstrained coordinate, and how its mean settled."""

from typing import Any

import numpy as np

from quorate._types import Array
from quorate.merging.ess import fewest_draws
from quorate.results.summary import settling, summary_row
from quorate.run.blocks import Blocks
from quorate.run.history import History

_MOST_SHOWN = 40
_MOMENTS = 40  # at which the page shows a mean


def parameters(history: History, blocks: Blocks) -> dict[str, Any]:
    """Summaries of the first parameters, and the smallest ESS of all.

    `means[i]` is the mean at `times[i]`, when the share `shares[i]` of the draws was complete.
    """
    draws = history.global_draws()
    found: dict[str, Any] = {"parameters": [], "n_parameters": history.dim, "ess": None}
    if len(draws) <= fewest_draws(history.dim):
        return found
    view = history.view
    ess = view.ess()
    shares = np.linspace(1 / _MOMENTS, 1, _MOMENTS)
    gaps = settling(draws, view.weights(), view.shard_draws(), shares)
    shown = zip(history.names[:_MOST_SHOWN], draws.T, ess, gaps.T, strict=False)
    return found | {
        "ess": _number(np.min(ess)),
        "shares": shares.tolist(),
        "times": [round(time, 3) for time in _release_times(blocks, shares)],
        "parameters": [
            {
                "name": name,
                **{key: _number(value) for key, value in summary_row(values, of).items()},
                "means": [_number(mean) for mean in values.mean() + gap],
            }
            for name, values, of, gap in shown
        ],
    }


def _release_times(blocks: Blocks, shares: Array) -> list[float]:
    """When these shares of the global draws were complete."""
    times, totals = blocks.releases
    found: list[float] = times[np.searchsorted(totals, shares * totals[-1])].tolist()
    return found


def _number(value: float) -> float | None:
    """A number as JSON allows it; None if it is not finite."""
    return float(value) if np.isfinite(value) else None
