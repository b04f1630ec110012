"""Writes the figure `exact`: curves, picture and summary."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from quorate.lab.exact_cases import Case
from quorate.lab.exact_figure import MOMENTS, ErrorCurve, ExactExperiment
from quorate.lab.output import write_files

COLUMNS = ("case", "method", "scheme", "redundancy", "time", "error", "share_defined", "floor")
TABLE_TIMES = (10.0, 32.0, 100.0, 316.0, 1000.0, 3162.0)
_EXACT = "#cc79a7"
_TICKS = (0.01, 0.03, 0.1, 0.3, 1, 3)
Panel = tuple[Case, Sequence[ErrorCurve]]


def write_exact(experiment: ExactExperiment, panels: Sequence[Panel], folder: Path) -> list[Path]:
    """Write `curves.csv`, `figure.png`, `figure.svg` and `summary.json` into `folder`."""
    return write_files(
        COLUMNS, _rows(panels), draw_exact(panels), exact_summary(experiment, panels), folder
    )


def _rows(panels: Sequence[Panel]) -> Iterator[list[object]]:
    for case, curves in panels:
        for curve in curves:
            line = curve.line
            start = [case.name, line.method, line.options.name, line.redundancy]
            for values in zip(MOMENTS, curve.errors, curve.shares, strict=True):
                if not np.isnan(values[1]):
                    yield [*start, *(f"{x:.6g}" for x in (*values, curve.floor))]


def exact_summary(experiment: ExactExperiment, panels: Sequence[Panel]) -> Mapping[str, object]:
    """The experiment, and by case the floor of merges and the errors of all curves."""
    return {
        "experiment": asdict(experiment),
        "cases": {
            case.name: {
                "floor": round(max(curve.floor for curve in curves), 4),
                "errors": {curve.line.label: _errors(curve) for curve in curves},
            }
            for case, curves in panels
        },
    }


def _errors(curve: ErrorCurve) -> dict[str, float | None]:
    found = {f"{time:g}": curve.error_at(time) for time in TABLE_TIMES}
    return {time: None if np.isnan(error) else round(error, 4) for time, error in found.items()}


def draw_exact(panels: Sequence[Panel]) -> Canvas:
    """Error against time, a panel for each case, with the floor of merges."""
    canvas = Canvas(figsize=(10, 5), layout="constrained")
    for axes, (case, curves) in zip(
        canvas.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True
    ):
        for curve in curves:
            _draw_curve(axes, curve)
        floor = max(curve.floor for curve in curves)
        axes.axhline(floor, ls=":", lw=1.2, color="black", label="merge of infinitely many draws")
        _dress(axes, case.title)
    names = axes.get_legend_handles_labels()
    canvas.legend(*names, frameon=False, ncols=3, loc="outside lower center")
    return canvas


def _draw_curve(axes: Axes, curve: ErrorCurve) -> None:
    line = curve.line
    is_exact = line.method == "exact"
    axes.plot(
        MOMENTS,
        curve.errors,
        "--" if is_exact and line.redundancy == 1 else "-",
        color=_EXACT if is_exact else line.options.colour,
        lw=2.4 if is_exact else 1.8,
        label=line.label,
    )


def _dress(axes: Axes, title: str) -> None:
    axes.set(
        title=title,
        xlabel="time",
        ylabel="error of the mean, in posterior sds",
        xscale="log",
        yscale="log",
        xlim=(MOMENTS[0], MOMENTS[-1]),
        ylim=(_TICKS[0], _TICKS[-1]),
    )
    axes.set_yticks(_TICKS, [f"{tick:g}" for tick in _TICKS], minor=False)
    times = (1, 10, 100, 1000)
    axes.set_xticks(times, [f"{time:,}" for time in times], minor=False)
    axes.minorticks_off()
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.label_outer()
