"""Densities of the scalars of a run, of the merged draws and of each shard: computed, kept, drawn.

A run leaves them in a file, so that a report needs neither the model nor the draws.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.fft import dct, idct

from quorate._types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEWEST = 4  # draws that have a density, or a summary
_MOST_CURVES, _FEWEST_PANELS = 500, 4  # of all scalars together
_ENOUGH = 10_000  # draws of a shard for a density
_SHOWN = 0.99  # share of the draws, in the middle, that a curve covers
_REACH = (1 - _SHOWN) / 2, (1 + _SHOWN) / 2
_ROUNDING = 1e-9  # a relative spread that counts as none
_N_BINS = 256
_EVERY, _DIGITS = 6, 4  # points and digits that are kept of a curve
_COLUMNS = 4
_MERGED, _SHARD = "#0072b2", "#8c8c8c"


class Curve(NamedTuple):
    """A density at evenly spaced points from `low` to `high`.

    If all draws are equal, `low` and `high` are too. If there are too few draws, `heights` is
    empty.
    """

    low: float
    high: float
    heights: Array

    @classmethod
    def of(cls, values: Array) -> "Curve":
        """The density of `values` (n,)."""
        if len(values) < FEWEST:
            return cls(0.0, 0.0, np.empty(0))
        values = np.ascontiguousarray(values)
        low, high, *quartiles = np.quantile(values, [*_REACH, 0.25, 0.75]).tolist()
        if high - low <= _ROUNDING * max(abs(low), abs(high)):
            return cls(low, low, np.ones(1))
        points, heights = _density(values, low, high, quartiles[1] - quartiles[0])
        return cls(float(points[0]), float(points[-1]), heights)

    def thinned(self) -> "Curve":
        """The curve with only the points that are visible in a small picture."""
        heights = self.heights[::_EVERY]
        last = (len(heights) - 1) * _EVERY
        share = last / max(len(self.heights) - 1, 1)
        return Curve(self.low, self.low + share * (self.high - self.low), heights)

    def draw(self, axes: "Axes", color: str, linewidth: float) -> None:
        """Draw a line, upright if all draws are equal."""
        if not len(self.heights):
            return
        if self.low == self.high:
            axes.axvline(self.low, color=color, linewidth=linewidth)
            return
        points = np.linspace(self.low, self.high, len(self.heights))
        axes.plot(points, self.heights, color=color, linewidth=linewidth)

    def as_json(self) -> list[Any]:
        """The curve as JSON: both ends and the rounded heights."""
        return [self.low, self.high, [float(f"{h:.{_DIGITS}g}") for h in self.heights]]

    @classmethod
    def from_json(cls, row: Any) -> "Curve":
        """The curve that `as_json` wrote; ValueError or TypeError if it is none."""
        low, high, heights = row
        curve = cls(float(low), float(high), np.array(heights, dtype=np.float64).reshape(-1))
        if not np.isfinite([curve.low, curve.high, *curve.heights]).all():
            raise ValueError("a number is not finite")
        return curve


class Marginal(NamedTuple):
    """Densities of one scalar: of the merged draws, and of each shard whose draws were sent."""

    name: str
    merged: Curve
    shards: Sequence[Curve]


@dataclass(frozen=True)
class Densities:
    """Densities of the first scalars of a run.

    Parameters
    ----------
    marginals
        One for each scalar.
    shards
        `marginals[i].shards[j]` is of shard `shards[j]`.
    n_more
        Number of scalars that are not among them.
    """

    marginals: Sequence[Marginal]
    shards: Sequence[int]
    n_more: int = 0

    @classmethod
    def of(
        cls,
        scalars: Sequence[tuple[str, Array]],
        shard_draws: Iterable[tuple[int, Array]],
        named: Callable[[Array], Mapping[str, Array]],
        most: int | None = None,
    ) -> "Densities":
        """Densities of merged draws and of shards.

        Parameters
        ----------
        scalars
            Merged draws by name.
        shard_draws
            Numbers of shards with their unconstrained draws, (n, d) each.
        named
            Turns draws of a shard into draws of scalars by name.
        most
            Number of scalars, at most; by default as many as a report shows.
        """
        few = {
            shard: np.ascontiguousarray(draws[:: -(-len(draws) // _ENOUGH) or 1])
            for shard, draws in shard_draws
        }
        if most is None:
            most = max(_FEWEST_PANELS, _MOST_CURVES // (len(few) + 1))
        shown = scalars[:most]
        behind = []
        for draws in few.values():
            by_name = named(draws)
            behind.append({name: Curve.of(by_name[name]) for name, _ in shown})
        listed = [
            Marginal(name, Curve.of(values), [curves[name] for curves in behind])
            for name, values in shown
        ]
        return cls(listed, list(few), len(scalars) - len(shown))

    def thinned(self) -> "Densities":
        """Curves with as many points as the eye sees on a small picture."""
        fewer = [
            Marginal(m.name, m.merged.thinned(), [curve.thinned() for curve in m.shards])
            for m in self.marginals
        ]
        return replace(self, marginals=fewer)

    def as_json(self) -> dict[str, Any]:
        """The densities, thinned, as JSON values."""
        scalars = [
            {
                "name": m.name,
                "merged": m.merged.as_json(),
                "shards": [curve.as_json() for curve in m.shards],
            }
            for m in self.thinned().marginals
        ]
        return {"shards": list(self.shards), "n_more": self.n_more, "scalars": scalars}

    @classmethod
    def from_json(cls, content: bytes) -> "Densities":
        """The densities that `as_json` gave; ValueError if the content is anything else."""
        try:
            kept = json.loads(content)
            shards = [int(shard) for shard in kept["shards"]]
            listed = [
                Marginal(
                    str(row["name"]),
                    Curve.from_json(row["merged"]),
                    list(map(Curve.from_json, row["shards"])),
                )
                for row in kept["scalars"]
            ]
            found = cls(listed, shards, int(kept["n_more"]))
        except (TypeError, KeyError, RecursionError, OverflowError) as error:
            raise ValueError(str(error)) from None
        if any(len(marginal.shards) != len(shards) for marginal in listed):
            raise ValueError("a shard is missing")
        return found

    def figure(self, title: str) -> "Figure":
        """A panel for each scalar: the merged density, with those of shards in thin lines."""
        from quorate.results.figures import ShownFigure

        n_columns = min(len(self.marginals), _COLUMNS)
        n_rows = ceil(len(self.marginals) / n_columns)
        figure = ShownFigure(figsize=(3.0 * n_columns, 2.0 * n_rows + 0.5), layout="constrained")
        panels = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
        for panel, marginal in zip(panels, self.marginals, strict=False):
            _draw(panel, marginal)
        for panel in panels[len(self.marginals) :]:
            panel.set_axis_off()
        figure.suptitle(title, fontsize="medium", parse_math=False)
        return figure


def _density(
    values: Array, low: float, high: float, between_quartiles: float
) -> tuple[Array, Array]:
    """Points, and a smooth density of `values` (n,) there that does not leak over a bound.

    A Gaussian kernel of Silverman's width, mirrored at the ends, on a fine histogram.
    """
    heights, edges = np.histogram(values, _N_BINS, (low, high), density=True)
    spread = min(values.std(), between_quartiles / 1.34)
    width = 0.9 * spread * len(values) ** -0.2 / (high - low)
    waves = dct(heights) * np.exp(-0.5 * (np.pi * width * np.arange(_N_BINS)) ** 2)
    return (edges[1:] + edges[:-1]) / 2, np.asarray(_SHOWN * idct(waves))


def _draw(panel: "Axes", marginal: Marginal) -> None:
    for curve in marginal.shards:
        curve.draw(panel, color=_SHARD, linewidth=0.6)
    marginal.merged.draw(panel, color=_MERGED, linewidth=1.6)
    panel.set_title(marginal.name, fontsize="small", parse_math=False)
    panel.set_yticks([])
    panel.set_ylim(bottom=0)
    panel.tick_params(labelsize="x-small")
    panel.spines[["left", "right", "top"]].set_visible(False)
