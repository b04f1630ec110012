"""Writes what `quorate reproduce` computes: curves, figure and summary."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from quorate.errors import BadInputError
from quorate.lab.reproduce import ENOUGH, TABLE_TIMES, AveragedCurve, best
from quorate.lab.specs import Experiment

COLUMNS = (
    "figure",
    "reading",
    "scheme",
    "redundancy",
    "index",
    "time",
    "error",
    "band_low",
    "band_high",
    "share_defined",
)
_DASHED_FROM = 4  # redundancy
Result = tuple[Experiment, list[AveragedCurve]]


def write(experiment: Experiment, curves: list[AveragedCurve], folder: Path) -> list[Path]:
    """Write `curves.csv`, `figure.png`, `figure.svg` and `summary.json` into `folder`."""
    canvas = draw(experiment, curves)
    told = summary(experiment, curves)
    return write_files(COLUMNS, _rows(experiment, curves), canvas, told, folder)


def write_beyond(panels: list[list[Result]], folder: Path) -> list[Path]:
    """Write the files of `beyond`, whose curves come from several experiments."""
    results = [result for panel in panels for result in panel]
    rows = chain.from_iterable(_rows(*result) for result in results)
    told = [summary(*result) for result in results]
    return write_files(COLUMNS, rows, draw_beyond(panels), told, folder)


def write_files(
    columns: Sequence[str],
    rows: Iterable[list[object]],
    canvas: Canvas,
    told: object,
    folder: Path,
) -> list[Path]:
    """Write the four files of a figure: a table of its curves, two pictures, and a summary."""
    paths = [folder / name for name in ("curves.csv", "figure.png", "figure.svg", "summary.json")]
    with paths[0].open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    canvas.savefig(paths[1], dpi=150)
    with rc_context({"svg.hashsalt": "quorate"}):  # the same file for the same curves
        canvas.savefig(paths[2], metadata={"Date": None})
    paths[3].write_text(json.dumps(told, indent=2, allow_nan=False) + "\n")
    return paths


def _rows(experiment: Experiment, curves: list[AveragedCurve]) -> Iterator[list[object]]:
    for averaged in curves:
        start = [
            experiment.figure.name,
            experiment.reading.name,
            averaged.curve.label,
            averaged.curve.redundancy,
        ]
        columns = (
            averaged.times,
            averaged.errors,
            averaged.band_low,
            averaged.band_high,
            averaged.share_defined,
        )
        for i, values in enumerate(zip(*columns, strict=True)):
            index = i + 1 if experiment.reading.by_index else ""
            yield [*start, index, *("" if np.isnan(x) else f"{x:.6g}" for x in values)]


def summary(experiment: Experiment, curves: list[AveragedCurve]) -> dict[str, object]:
    """The spec of the experiment, and the errors of all curves at a few times."""
    return {
        "experiment": _without_infinity(asdict(experiment)),
        "errors": {
            f"{averaged.curve.label} r={averaged.curve.redundancy}": {
                str(time): _or_none(averaged.error_at(time)) for time in TABLE_TIMES
            }
            for averaged in curves
        },
        "best": {str(time): _best_name(curves, time) for time in TABLE_TIMES},
    }


def _best_name(curves: list[AveragedCurve], time: float) -> str | None:
    winner = best(curves, time)
    return None if winner is None else f"{winner.curve.label} r={winner.curve.redundancy}"


def _without_infinity(fields: dict[str, Any]) -> dict[str, Any]:
    """`fields` with None for infinity, which JSON does not have."""
    return {
        key: _without_infinity(value)
        if isinstance(value, dict)
        else None
        if value == np.inf
        else value
        for key, value in fields.items()
    }


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 4)


def make_folder(folder: Path) -> None:
    """Create the folder to write to, before hours of work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"The folder {folder} cannot be created ({error.strerror}).") from None


def published_curves(figure: str) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """Points (time, error) of the published figure, by (scheme, redundancy)."""
    file = resources.files("quorate.lab") / "data" / "published_curves.csv"
    curves: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for row in csv.DictReader(file.read_text().splitlines()):
        if row["figure"] == figure:
            key = row["scheme"], int(row["redundancy"])
            curves.setdefault(key, []).append((float(row["time"]), float(row["error"])))
    return curves


def draw(experiment: Experiment, curves: list[AveragedCurve]) -> Canvas:
    """The figure, with the published curves as thin dotted lines."""
    canvas = Canvas(figsize=(7, 4.6), layout="constrained")
    axes = canvas.add_subplot()
    published = published_curves(experiment.figure.name)
    for averaged in curves:
        _draw_curve(axes, averaged)
        points = published.get((averaged.curve.label, averaged.curve.redundancy))
        if points is not None:
            axes.plot(*zip(*points, strict=True), ":", lw=0.9, color=averaged.curve.colour)
    axes.plot([], [], ":", lw=0.9, color="black", label="as published")
    _dress(axes, f"{experiment.figure.title}, {_source(experiment)}", lowest=0.25)
    axes.legend(frameon=False, ncols=2)
    return canvas


def draw_beyond(panels: list[list[Result]]) -> Canvas:
    """Error against time for each number of workers, side by side."""
    canvas = Canvas(figsize=(10, 5), layout="constrained")
    for axes, panel in zip(canvas.subplots(1, len(panels), sharey=True), panels, strict=True):
        for averaged in (averaged for _, curves in panel for averaged in curves):
            _draw_curve(axes, averaged)
        _dress(axes, f"K = {panel[0][0].figure.n_workers} workers", lowest=0.12)
        axes.label_outer()
    names = axes.get_legend_handles_labels()  # the last panel has all there are
    canvas.legend(*names, frameon=False, ncols=4, loc="outside lower center")
    return canvas


def _dress(axes: Axes, title: str, lowest: float) -> None:
    axes.set(
        title=title,
        xlabel="time",
        ylabel="error of eq. (3)",
        yscale="log",
        xlim=(0, 5),
        ylim=(lowest, 12),
    )
    ticks = [tick for tick in (0.15, 0.3, 0.5, 1, 2, 5, 10) if tick > lowest]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
    axes.minorticks_off()
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _source(experiment: Experiment) -> str:
    return {"text": "as in the text", "published": "as in the authors' scripts"}[
        experiment.reading.name
    ]


def _draw_curve(axes: Axes, averaged: AveragedCurve) -> None:
    """Draw a curve from where half of the realisations have a draw.

    Before that, the average is over the lucky ones only.
    """
    shown = averaged.share_defined >= ENOUGH
    curve = averaged.curve
    colour, redundancy = curve.colour, curve.redundancy
    style = "-." if curve.is_limit else "--" if redundancy >= _DASHED_FROM else "-"
    plain = redundancy == 1 or curve.is_limit
    label = curve.label if plain else f"{curve.label}, r = {redundancy}"
    times = averaged.times[shown]
    width = 1.2 if curve.is_limit else 1.8
    axes.plot(times, averaged.errors[shown], style, color=colour, lw=width, label=label)
    low, high = averaged.band_low[shown], averaged.band_high[shown]
    axes.fill_between(times, low, high, color=colour, alpha=0.15, lw=0)
