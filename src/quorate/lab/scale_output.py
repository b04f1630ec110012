"""Writes the figure `scale`: costs, picture and summary."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from quorate.lab.output import write_files
from quorate.lab.scale import (
    PROCESSES,
    Costs,
    Questions,
    ScaleExperiment,
    Simulated,
    ends,
    exact_costs,
    merge_costs,
)

COLUMNS = ("method", "source", "processes", "workers", "seconds", "coordinator", "bytes", "memory")
_COLOURS = {"exact": "#cc79a7", "merge": "#0072b2"}
_MARKS = {"mild": "o", "heavy": "^"}
Found = tuple[Questions, Sequence[Simulated]]


def write_scale(experiment: ScaleExperiment, found: Found, folder: Path) -> list[Path]:
    """Write `curves.csv`, `figure.png`, `figure.svg` and `summary.json` into `folder`."""
    rows = _rows(experiment, found)
    summary = scale_summary(experiment, found)
    return write_files(COLUMNS, rows, draw_scale(experiment, found), summary, folder)


def costs(experiment: ScaleExperiment, asked: Questions) -> dict[str, Costs]:
    """Costs by method, at `PROCESSES`."""
    processes = np.array(PROCESSES)
    return {
        "exact": exact_costs(experiment, asked, processes),
        "merge": merge_costs(experiment, processes),
    }


def _rows(experiment: ScaleExperiment, found: Found) -> Iterator[list[object]]:
    asked, runs = found
    for method, of in costs(experiment, asked).items():
        columns = (of.seconds, of.coordinator, of.n_bytes, of.memory)
        for n, *values in zip(PROCESSES, *columns, strict=True):
            yield [method, "model", n, n, *(f"{x:.6g}" for x in values)]
    for run in runs:
        seconds = f"{run.with_coordinator(experiment, asked):.6g}"
        yield ["exact", run.times, run.processes, run.workers, seconds, "", "", ""]


def scale_summary(experiment: ScaleExperiment, found: Found) -> Mapping[str, object]:
    """The experiment, what an exact run asks for, where methods end, and the simulated runs."""
    asked, runs = found
    return {
        "experiment": asdict(experiment),
        "asked": asked._asdict(),
        "ends": ends(experiment, asked),
        "simulated": [run._asdict() for run in runs],
    }


def draw_scale(experiment: ScaleExperiment, found: Found) -> Canvas:
    """Seconds of a run, and bytes at the coordinator, against the number of processes."""
    canvas = Canvas(figsize=(10, 5), layout="constrained")
    seconds, n_bytes = canvas.subplots(1, 2)
    asked, runs = found
    for method, of in costs(experiment, asked).items():
        colour = _COLOURS[method]
        seconds.plot(PROCESSES, of.seconds, color=colour, lw=2.2, label=f"{method}, model")
        seconds.plot(PROCESSES, of.coordinator, ":", color=colour, label=f"{method}, coordinator")
        n_bytes.plot(PROCESSES, of.n_bytes, "--", color=colour, label=f"{method}, sent")
        n_bytes.plot(PROCESSES, of.memory, color=colour, lw=2.2, label=f"{method}, memory")
    for times, mark in _MARKS.items():
        of_these = [run for run in runs if run.times == times]
        at = [run.processes for run in of_these]
        took = [run.with_coordinator(experiment, asked) for run in of_these]
        label = f"exact, simulated, {times} times"
        seconds.plot(at, took, mark, ms=5, mfc="none", color="black", label=label)
    _dress(seconds, f"{experiment.rows:,.0f} rows, {experiment.draws:,} draws", "seconds of a run")
    _dress(n_bytes, "at the coordinator", "bytes")
    return canvas


def _dress(axes: Axes, title: str, what: str) -> None:
    axes.set(title=title, xlabel="processes", ylabel=what, xscale="log", yscale="log")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
