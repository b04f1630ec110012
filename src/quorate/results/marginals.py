"""Pictures of what was drawn."""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.fft import dct, idct

from quorate._types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEWEST = 4  # draws that have a density
MOST_CURVES, FEWEST_PANELS = 500, 4  # that are worth a look, of all scalars together
_SHOWN = 0.99  # share of the draws, in the middle, that curves reach over
_ROUNDING = 1e-9  # a relative spread that is none
_N_BINS = 256
_COLUMNS = 4
_MERGED, _SHARD = "#0072b2", "#8c8c8c"


class Curve(NamedTuple):
    """A density at evenly spaced points from `low` to `high`.

    They are the same where nothing moves; there are no heights of too few draws.
    """

    low: float
    high: float
    heights: Array

    @classmethod
    def of(cls, values: Array) -> "Curve":
        """Of `values` (n,)."""
        if len(values) < FEWEST:
            return cls(0.0, 0.0, np.empty(0))
        low, high = _reach(values)
        if high - low <= _ROUNDING * max(abs(low), abs(high)):
            return cls(low, low, np.ones(1))
        points, heights = density(values)
        return cls(float(points[0]), float(points[-1]), heights)

    def thinned(self, every: int) -> "Curve":
        """Some of the points."""
        heights = self.heights[::every]
        last = (len(heights) - 1) * every
        share = last / max(len(self.heights) - 1, 1)
        return Curve(self.low, self.low + share * (self.high - self.low), heights)

    def draw(self, axes: "Axes", color: str, linewidth: float) -> None:
        """A line, upright where nothing moves."""
        if not len(self.heights):
            return
        if self.low == self.high:
            axes.axvline(self.low, color=color, linewidth=linewidth)
            return
        points = np.linspace(self.low, self.high, len(self.heights))
        axes.plot(points, self.heights, color=color, linewidth=linewidth)


class Marginal(NamedTuple):
    """Densities of one scalar: of the merge, and of each shard whose draws were sent."""

    name: str
    merged: Curve
    shards: Sequence[Curve]


def n_panels(n_shards: int) -> int:
    """How many scalars are shown, so that curves do not get too many."""
    return max(FEWEST_PANELS, MOST_CURVES // (n_shards + 1))


def made_marginals(
    merged: Sequence[tuple[str, Array]], shards: Iterator[dict[str, Array]]
) -> list[Marginal]:
    """Of merged draws by name, and of those of one shard after the other."""
    behind = [{name: Curve.of(draws[name]) for name, _ in merged} for draws in shards]
    return [
        Marginal(name, Curve.of(values), [curves[name] for curves in behind])
        for name, values in merged
    ]


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
    for curve in marginal.shards:
        curve.draw(panel, color=_SHARD, linewidth=0.6)
    marginal.merged.draw(panel, color=_MERGED, linewidth=1.6)
    panel.set_title(marginal.name, fontsize="small", parse_math=False)
    panel.set_yticks([])
    panel.set_ylim(bottom=0)
    panel.tick_params(labelsize="x-small")
    panel.spines[["left", "right", "top"]].set_visible(False)
