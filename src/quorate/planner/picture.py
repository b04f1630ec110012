"""The picture of a plan: what time costs in worker-hours and in storage."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from quorate.errors import BadInputError
from quorate.planner.options import Option, front

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

COLOURS = {"cmc": "#666666", "grouped": "#0072b2", "coded": "#d55e00", "adaptive": "#009e73"}
_AXES = {"worker_hours": "worker-hours", "storage": "share of the data at a worker"}
_LARGE, _SMALL = 130.0, 50.0
_APART = {"cmc": 1.0, "grouped": 0.965, "coded": 1.035, "adaptive": 1.0}  # where storage is equal


def save_picture(options: Sequence[Option], chosen: Option, n_draws: int, path: Path) -> None:
    """Draw all options that get there; the ending of `path` says in which format."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(10.0, 4.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, cost in zip(panels, _AXES, strict=True):
        _draw(panel, options, chosen, cost)
    panels[0].set_ylabel(f"seconds to {n_draws} draws")
    ks = ", ".join(map(str, sorted({option.workers for option in options})))
    hidden = [option for option in options if np.isinf(option.p95)]
    lacking = f"; {len(hidden)} options may never get there, not shown" if hidden else ""
    title = f"numbers are r; larger circles are more workers, of K = {ks}{lacking}"
    figure.suptitle(title, fontsize=10)
    schemes = [s for s in COLOURS if any(o.scheme == s and o not in hidden for o in options)]
    handles = [_circle(scheme, COLOURS[scheme], COLOURS[scheme], 6) for scheme in schemes]
    handles += [
        Line2D([], [], color="#999999", linewidth=1.2, label="median to 95 % of runs"),
        Line2D([], [], color="black", linewidth=0.9, linestyle=":", label="nothing beats these"),
        _circle("advised", "black", "none", 13),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise BadInputError("output", str(path), f"cannot be written ({error})") from None


def _circle(label: str, colour: str, filled: str, size: float) -> "Line2D":
    from matplotlib.lines import Line2D

    circle = Line2D([], [], color=colour, label=label, marker="o", linestyle="")
    circle.set_markerfacecolor(filled)
    circle.set_markersize(size)
    return circle


def _draw(panel: "Axes", options: Sequence[Option], chosen: Option, cost: str) -> None:
    shown = [option for option in options if np.isfinite(option.p95)]
    sizes = _sizes(shown)
    for option in shown:
        x, colour = _place(option, cost), COLOURS[option.scheme]
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
    if chosen in shown:
        panel.scatter(
            _place(chosen, cost),
            chosen.p95,
            s=3 * sizes[chosen.workers],
            facecolors="none",
            edgecolors="black",
            zorder=5,
        )
    best = sorted(front(shown, ("p95", cost)), key=lambda option: float(getattr(option, cost)))
    xs, ys = [_place(option, cost) for option in best], [option.p95 for option in best]
    panel.step(xs, ys, where="post", color="black", linewidth=0.9, linestyle=":", zorder=2)
    _scale(panel, as_percent=cost == "storage")
    panel.set_xlabel(_AXES[cost])
    panel.grid(which="both", linewidth=0.4, alpha=0.4)
    panel.spines[["top", "right"]].set_visible(False)


def _place(option: Option, cost: str) -> float:
    return float(getattr(option, cost)) * (_APART[option.scheme] if cost == "storage" else 1.0)


def _scale(panel: "Axes", as_percent: bool) -> None:
    """Logarithmic, with numbers as one writes them."""
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
    """A larger circle for more workers."""
    most = max((option.workers for option in options), default=1)
    return {o.workers: _SMALL + (_LARGE - _SMALL) * o.workers / most for o in options}
