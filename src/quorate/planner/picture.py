"""The picture of a plan: time against worker-hours and against storage."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from quorate.errors import BadInputError
from quorate.planner.options import Option, front

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_AXES = {"worker_hours": "worker-hours", "storage": "share of the data at a worker"}
_LARGE, _SMALL = 130.0, 50.0
_MOST_COLUMNS = 7  # of the legend
_STEP = 1.035  # by which points of different schemes lie apart where storage is equal


def save_picture(options: Sequence[Option], chosen: Option, n_draws: int, path: Path) -> None:
    """Draw all options that finish, in the format that `path` ends in."""
    from matplotlib.figure import Figure

    shown = [option for option in options if np.isfinite(option.p95)]
    figure = Figure(figsize=(10.0, 4.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, cost in zip(panels, _AXES, strict=True):
        _draw(panel, shown, chosen, cost)
    panels[0].set_ylabel(f"seconds to {n_draws} draws")
    ks = ", ".join(map(str, sorted({option.workers for option in options})))
    n_hidden = len(options) - len(shown)
    lacking = f"; {n_hidden} options that may never finish are not shown" if n_hidden else ""
    title = f"numbers are r; larger circles are more workers, of K = {ks}{lacking}"
    figure.suptitle(title, fontsize=10)
    handles = _legend(shown)
    n_columns = len(handles) if len(handles) <= _MOST_COLUMNS else -(-len(handles) // 2)
    figure.legend(handles=handles, loc="outside lower center", ncols=n_columns, frameon=False)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise BadInputError(
            f"Cannot write the picture {path} ({error}). Choose a file that ends in .png, .svg or "
            ".pdf, in a folder that you may write to."
        ) from None


def _legend(shown: Sequence[Option]) -> "list[Line2D]":
    from matplotlib.lines import Line2D

    colours = {option.chosen.label: option.chosen.colour for option in shown}
    return [
        *(_circle(label, colour, colour, 6) for label, colour in colours.items()),
        Line2D([], [], color="#999999", linewidth=1.2, label="median to 95 % of runs"),
        Line2D([], [], color="black", linewidth=0.9, linestyle=":", label="nothing beats these"),
        _circle("advised", "black", "none", 13),
    ]


def _circle(label: str, colour: str, filled: str, size: float) -> "Line2D":
    from matplotlib.lines import Line2D

    circle = Line2D([], [], color=colour, label=label, marker="o", linestyle="")
    circle.set_markerfacecolor(filled)
    circle.set_markersize(size)
    return circle


def _draw(panel: "Axes", shown: Sequence[Option], chosen: Option, cost: str) -> None:
    sizes, places = _sizes(shown), _places(shown, cost)
    for option, x in zip(shown, places, strict=True):
        colour = option.chosen.colour
        panel.plot([x, x], [option.median, option.p95], color=colour, linewidth=1.2, alpha=0.6)
        panel.scatter(x, option.p95, s=sizes[option.workers], color=colour, zorder=3)
        panel.annotate(
            f"{option.redundancy}",
            (x, option.p95),
            color="white",
            fontsize=7,
            ha="center",
            va="center",
            zorder=4,
        )
        if option is chosen:
            around = 3 * sizes[option.workers]
            panel.scatter(x, option.p95, s=around, facecolors="none", edgecolors="black", zorder=5)
    best = front(shown, ("p95", cost))
    steps = sorted((x, o.p95) for o, x in zip(shown, places, strict=True) if o in best)
    xs, ys = zip(*steps, strict=True) if steps else ((), ())
    panel.step(xs, ys, where="post", color="black", linewidth=0.9, linestyle=":", zorder=2)
    _scale(panel, as_percent=cost == "storage")
    panel.set_xlabel(_AXES[cost])
    panel.grid(which="both", linewidth=0.4, alpha=0.4)
    panel.spines[["top", "right"]].set_visible(False)


def _places(shown: Sequence[Option], cost: str) -> list[float]:
    """Where options lie on the axis of a cost; schemes of equal storage lie side by side."""
    values = [float(getattr(option, cost)) for option in shown]
    if cost != "storage":
        return values
    placed = []
    for option, value in zip(shown, values, strict=True):
        beside = list(dict.fromkeys(o.title for o in shown if o.storage == option.storage))
        placed.append(value * _STEP ** (beside.index(option.title) - (len(beside) - 1) / 2))
    return placed


def _scale(panel: "Axes", as_percent: bool) -> None:
    """Make both axes logarithmic, with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    panel.set_xscale("log")
    panel.set_yscale("log")
    numbers = FuncFormatter(lambda value, _: f"{value:g}")
    shares = FuncFormatter(lambda value, _: f"{100 * value:g} %")
    for axis, formatter in (
        (panel.xaxis, shares if as_percent else numbers),
        (panel.yaxis, numbers),
    ):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(formatter)
        axis.set_minor_formatter(NullFormatter())


def _sizes(options: Sequence[Option]) -> dict[int, float]:
    """Sizes of circles by K: larger ones for more workers."""
    most = max((option.workers for option in options), default=1)
    return {o.workers: _SMALL + (_LARGE - _SMALL) * o.workers / most for o in options}
