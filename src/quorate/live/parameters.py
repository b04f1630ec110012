"""The posterior so far: a summary of each parameter, and how its mean settled."""

from typing import Any

import numpy as np

from quorate._types import Array
from quorate.merging.ess import fewest_draws
from quorate.models.scales import Scale, kept_scales
from quorate.results.summary import settling, summary_row
from quorate.run.blocks import Blocks
from quorate.run.history import History

_MOST_SHOWN = 40
_MOMENTS = 40  # at which the page shows a mean


def parameters(history: History, blocks: Blocks) -> dict[str, Any]:
    """Summaries of the first parameters, and the smallest ESS of all.

    A coordinate that has a variable of its own is shown as that. Others are `unconstrained`.
    `means[i]` is the mean at `times[i]`, when the share `shares[i]` of the draws was complete.
    """
    draws = history.global_draws()
    found: dict[str, Any] = {"parameters": [], "n_parameters": history.dim, "ess": None}
    if len(draws) < fewest_draws(history.dim):
        return found
    view = history.view
    ess = view.ess()
    shares = np.linspace(1 / _MOMENTS, 1, _MOMENTS)
    gaps = settling(draws, view.weights(), view.shard_draws(), shares)
    scales = kept_scales(history.configuration.get("scales"), history.dim)
    shown = zip(history.names[:_MOST_SHOWN], scales, draws.T, ess, gaps.T, strict=False)
    return found | {
        "ess": _number(np.min(ess)),
        "shares": shares.tolist(),
        "times": [round(time, 3) for time in _release_times(blocks, shares)],
        "parameters": [_parameter(*one) for one in shown],
    }


def _parameter(
    name: str, scale: Scale | None, draws: Array, ess: float, gaps: Array
) -> dict[str, Any]:
    """One parameter on its natural scale, if it has one."""
    values = draws if scale is None else scale.natural(draws)
    spread = np.var(draws)
    slope = np.mean((draws - draws.mean()) * values) / spread if spread else 0.0
    return {
        "name": name if scale is None else scale.name,
        "unconstrained": scale is None,
        **{key: _number(value) for key, value in summary_row(values, ess).items()},
        "means": [_number(mean) for mean in values.mean() + slope * gaps],
    }


def _release_times(blocks: Blocks, shares: Array) -> list[float]:
    """When these shares of the global draws were complete."""
    times, totals = blocks.releases
    found: list[float] = times[np.searchsorted(totals, shares * totals[-1])].tolist()
    return found


def _number(value: float) -> float | None:
    """A number as JSON allows it; None if it is not finite."""
    return float(value) if np.isfinite(value) else None
