"""The posterior so far: a summary of each unconstrained coordinate, and how it settled."""

from typing import Any

import numpy as np

from quorate._types import Array, IntArray
from quorate.numerics.ess import bulk_ess
from quorate.run.history import Blocks, History

_MOST_SHOWN = 40
_MOMENTS = 40  # of the history


def parameters(history: History, blocks: Blocks) -> dict[str, Any]:
    """`parameters`, how many there are, and the least ESS if the run has to reach one."""
    draws = history.global_draws()
    found: dict[str, Any] = {"parameters": [], "n_parameters": history.dim, "ess": None}
    if len(draws) <= 2 * history.dim + 8:  # too few for weights that mean anything
        return found
    if history.settings.target_ess is not None:
        found["ess"] = _number(np.min(bulk_ess(draws[None])))
    shown = draws[:, :_MOST_SHOWN]
    ess = bulk_ess(shown[None])
    means, sds = shown.mean(axis=0), shown.std(axis=0, ddof=1)
    lows, highs = np.quantile(shown, [0.03, 0.97], axis=0)
    errors = sds / np.sqrt(ess)
    times, history_means, history_errors = _history(shown, ess, blocks)
    found["times"] = times
    found["parameters"] = [
        {
            "name": name,
            "mean": _number(means[i]),
            "sd": _number(sds[i]),
            "low": _number(lows[i]),
            "high": _number(highs[i]),
            "ess": _number(ess[i]),
            "mcse": _number(errors[i]),
            "means": [_number(mean) for mean in history_means[:, i]],
            "errors": [_number(error) for error in history_errors[:, i]],
        }
        for i, name in enumerate(history.names[:_MOST_SHOWN])
    ]
    return found


def _history(draws: Array, ess: Array, blocks: Blocks) -> tuple[list[float], Array, Array]:
    """Moments, and means and their standard errors from the draws there were by then.

    Draws are merged with the weights of now, and each is taken to be worth as much.
    """
    n = len(draws)
    counts = np.unique(np.linspace(max(n / _MOMENTS, 8), n, _MOMENTS).astype(int))
    centre = draws.mean(axis=0)
    means = _running_means(draws - centre, counts)
    variances = _running_means((draws - centre) ** 2, counts) - means**2
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = np.sqrt(np.maximum(variances, 0) / (counts[:, None] * ess / n))
    times, totals = blocks.releases
    when = times[np.minimum(np.searchsorted(totals, counts), len(times) - 1)]
    return [round(float(moment), 3) for moment in when], centre + means, errors


def _running_means(values: Array, counts: IntArray) -> Array:
    means: Array = np.cumsum(values, axis=0)[counts - 1] / counts[:, None]
    return means


def _number(value: float) -> float | None:
    """As JSON has it: there, a number is finite."""
    return float(value) if np.isfinite(value) else None
