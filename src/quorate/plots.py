"""Pictures of what was drawn."""

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.fft import dct, idct

from quorate._types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEWEST = 4  # draws that have a density
_SHOWN = 0.99  # share of the draws, in the middle, that curves reach over
_ROUNDING = 1e-9  # a relative spread that is none
_N_BINS = 256
_COLUMNS = 4
_MERGED, _SHARD = "#0072b2", "#8c8c8c"


class Marginal(NamedTuple):
    """Draws of one scalar: merged ones, and those of each shard where they were sent."""

    name: str
    merged: Array
    shards: Sequence[Array]


def density(values: Array) -> tuple[Array, Array]:
    """Points and a smooth density of `values` (n,) there; a bound is not smoothed over.

    A Gaussian kernel of Silverman's width, mirrored at the ends, on a fine histogram.
    """
    low, high = _reach(values)
    heights, edges = np.histogram(values, _N_BINS, (low, high), density=True)
    spread = min(values.std(), np.subtract(*np.quantile(values, [0.75, 0.25])) / 1.34)
    width = 0.9 * spread * len(values) ** -0.2 / (high - low)
    waves = dct(heights) * np.exp(-0.5 * (np.pi * width * np.arange(_N_BINS)) ** 2)
    return (edges[1:] + edges[:-1]) / 2, np.asarray(_SHOWN * idct(waves))


def _reach(values: Array) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - _SHOWN) / 2, (1 + _SHOWN) / 2])
    return float(low), float(high)


def marginals(listed: Sequence[Marginal], title: str) -> "Figure":
    """A panel for each scalar: the merged density, and those of shards in thin lines behind."""
    from matplotlib.figure import Figure

    n_columns = min(len(listed), _COLUMNS)
    n_rows = ceil(len(listed) / n_columns)
    figure = Figure(figsize=(3.0 * n_columns, 2.0 * n_rows + 0.5), layout="constrained")
    panels = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for panel, marginal in zip(panels, listed, strict=False):
        _draw(panel, marginal)
    for panel in panels[len(listed) :]:
        panel.set_axis_off()
    figure.suptitle(title, fontsize="medium", parse_math=False)
    return figure


def _draw(panel: "Axes", marginal: Marginal) -> None:
    for values in marginal.shards:
        _curve(panel, values, color=_SHARD, linewidth=0.6)
    _curve(panel, marginal.merged, color=_MERGED, linewidth=1.6)
    panel.set_title(marginal.name, fontsize="small", parse_math=False)
    panel.set_yticks([])
    panel.set_ylim(bottom=0)
    panel.tick_params(labelsize="x-small")
    panel.spines[["left", "right", "top"]].set_visible(False)


def _curve(panel: "Axes", values: Array, color: str, linewidth: float) -> None:
    """A density; a line where nothing moves, nothing where there is too little."""
    if len(values) < FEWEST:
        return
    low, high = _reach(values)
    if high - low > _ROUNDING * max(abs(low), abs(high)):
        panel.plot(*density(values), color=color, linewidth=linewidth)
    else:
        panel.axvline(low, color=color, linewidth=linewidth)
