"""Pictures of the posterior: densities of shards and of merged draws, and intervals."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quorate._types import Array
from quorate.report.evidence import Rows
from quorate.report.svg import ACCENT, BAD, FAINT, INK, MUTED, bare, canvas, drawing, shard_colour
from quorate.results.html import shortened, without_middle
from quorate.results.marginals import Marginal
from quorate.results.summary import INTERVAL

_ALIKE = 30.0  # ratio of magnitudes up to which intervals share an axis
_MOST_AXES = 4
_ROW_HEIGHT = 21.0
_LONGEST_LABEL = 24  # characters


def marginal(shown: Marginal, shards: Sequence[int]) -> Figure:
    """The densities of one scalar: each shard in its colour, the merged draws in ink."""
    with drawing():
        figure = canvas(250, 130)
        axes = figure.add_subplot()
        for shard, curve in zip(shards, shown.shards, strict=True):
            curve.draw(axes, color=shard_colour(shard), linewidth=0.7)
        shown.merged.draw(axes, color=INK, linewidth=1.8)
        axes.set_ylim(bottom=0)
        axes.locator_params(axis="x", nbins=4)
        bare(axes)
    return figure


def forest(rows: Rows) -> Figure:
    """Means and 94 % intervals; intervals of other magnitudes have their own axis."""
    groups = _alike(rows)
    with drawing():
        height = _ROW_HEIGHT * len(rows) + 48 * len(groups)
        figure = canvas(440, height)
        ratios = [len(group) + 1 for group in groups]
        panels = figure.subplots(len(groups), 1, squeeze=False, height_ratios=ratios)[:, 0]
        for axes, names in zip(panels, groups, strict=True):
            _intervals(axes, [rows[name] for name in names], list(map(_label, names)))
    return figure


def caterpillar(rows: Rows) -> Figure:
    """Means and 94 % intervals of groups on one axis, which includes 0."""
    with drawing():
        figure = canvas(440, _ROW_HEIGHT * len(rows) + 48)
        axes = figure.add_subplot()
        labels = [without_middle(group, _LONGEST_LABEL) for group in rows]
        _intervals(axes, list(rows.values()), labels)
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, 0.0), max(high, 0.0))
    return figure


def _intervals(axes: Axes, rows: list[dict[str, float]], labels: list[str]) -> None:
    places = np.arange(len(rows))
    means, lows, highs = (np.array([row[key] for row in rows]) for key in ("mean", *INTERVAL))
    axes.axvline(0.0, color=FAINT, linewidth=1.0)
    axes.hlines(places, lows, highs, color=ACCENT, linewidth=2.0)
    axes.plot(means, places, "o", color=INK, markersize=3.5)
    if lows.min() > 0 or highs.max() < 0:  # leave zero out if no interval includes it
        axes.set_xlim(_widened(lows.min(), highs.max()))
    axes.set_yticks(places, labels, parse_math=False)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="x", color=MUTED)


def beside(names: Sequence[str], exact: Array, merged: Array) -> Figure:
    """Intervals of exact draws and of a merge, (n, 2) each, in posterior standard deviations."""
    places = np.arange(len(names))
    with drawing():
        figure = canvas(440, _ROW_HEIGHT * len(names) + 78)
        axes = figure.add_subplot()
        axes.axvline(0.0, color=FAINT, linewidth=1.0)
        for shift, (low, high), colour, label in (
            (-0.16, exact.T, ACCENT, "exact draws"),
            (0.16, merged.T, BAD, "merge of the fits"),
        ):
            axes.hlines(places + shift, low, high, color=colour, linewidth=2.0, label=label)
        axes.plot(merged.mean(axis=1), places + 0.16, "o", color=BAD, markersize=3.5)
        axes.set_yticks(places, list(map(_label, names)), parse_math=False)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("posterior sds")
        figure.legend(loc="outside upper left", ncols=2, fontsize=9, borderpad=0)
    return figure


def _label(name: str) -> str:
    """A name beside an axis. A long one loses its function, as in `…(sd_day)`, or its end."""
    _, bracket, inside = name.partition("(")
    without = f"…({inside}"
    is_enough = bracket and name.endswith(")") and len(without) <= _LONGEST_LABEL < len(name)
    return without if is_enough else shortened(name, _LONGEST_LABEL)


def _widened(low: float, high: float) -> tuple[float, float]:
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def _alike(rows: Rows) -> list[list[str]]:
    """Names of rows in groups of about the same magnitude, the largest first."""
    sizes = {name: max(abs(row[end]) for end in INTERVAL) for name, row in rows.items()}
    largest, axis_of = np.inf, {}
    n_axes = 0
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if sizes[name] * _ALIKE < largest and n_axes < _MOST_AXES:
            largest, n_axes = sizes[name], n_axes + 1
        axis_of[name] = n_axes
    return [[name for name in rows if axis_of[name] == n] for n in range(1, n_axes + 1)]
