"""`quorate reproduce exact`."""

from pathlib import Path

import numpy as np
from rich.table import Table

from quorate.cli.console import Patience
from quorate.cli.console import out as console
from quorate.lab.exact_cases import Case, cases
from quorate.lab.exact_figure import EXACT, ErrorCurve, ExactExperiment, exact_curves


def reproduce_exact(experiment: ExactExperiment, folder: Path) -> list[Path]:
    """Run the experiment, print errors and write the figure."""
    from quorate.lab.exact_output import write_exact  # matplotlib is slow to import
    from quorate.lab.output import make_folder

    make_folder(folder)
    panels = []
    for case in cases():
        with Patience(f"{EXACT}, {case.name}") as patience:
            panels.append((case, exact_curves(case, experiment, patience.report)))
    paths = write_exact(experiment, panels, folder)
    for panel in panels:
        console.print(_errors(experiment, *panel))
    return paths


def _errors(experiment: ExactExperiment, case: Case, curves: list[ErrorCurve]) -> Table:
    from quorate.lab.exact_output import TABLE_TIMES

    table = Table(
        title=case.title,
        caption="largest error of a mean, in posterior sds; floor: of infinite runs\n"
        "–: fewer than half of the runs have a draw, or more than half have ended\n"
        f"{experiment.realisations} realisations, seed {experiment.seed}",
        min_width=72,
        collapse_padding=True,
    )
    table.add_column("scheme", no_wrap=True)
    for moment in TABLE_TIMES:
        table.add_column(f"t={moment:g}", justify="right", no_wrap=True)
    table.add_column("floor", justify="right", no_wrap=True)
    for curve in curves:
        floor = f"{curve.floor:.3f}" if curve.floor else "none"
        errors = (curve.error_at(moment) for moment in TABLE_TIMES)
        table.add_row(curve.line.label, *map(_number, errors), floor)
    return table


def _number(error: float) -> str:
    return "–" if np.isnan(error) else f"{error:.3f}"
