"""Hierarchical models: CPU seconds to 1,000 effective draws, and for all groups, beside NUTS.

    python benchmarks/groups.py flights        # 4,037 planes; beside NumPyro's NUTS, non-centred
    python benchmarks/groups.py accuracy       # the same at K = 1, 4 and 8, compared with NUTS
    python benchmarks/groups.py slopes         # 20,000 groups with an intercept and a slope each
    python benchmarks/groups.py million        # a million groups with 5 million rows, out of core

CPU seconds are those of the coordinator and all workers, from the table or the file to the draws.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import quorate
from nuts_with_groups import flights as nuts_flights
from quorate.data.tables import open_table
from quorate.engines.options import Processes
from quorate.models import design, linear, logistic

FLIGHTS = "late ~ hour + {hour**2} + origin + (1 | tailnum)"
SLOPES = "y ~ x + (1 + x | g)"


class Spent:
    """CPU seconds of this process and of its children that have ended."""

    def __init__(self) -> None:
        self._start = self._now()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._now() - self._start

    @staticmethod
    def _now() -> float:
        who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        used = [resource.getrusage(each) for each in who]
        return sum(each.ru_utime + each.ru_stime for each in used)


def told(**found: object) -> None:
    """Print what was found as a line of JSON."""
    print(json.dumps(found), flush=True)


def measured(name: str, model, table, workers: int, *, groups: bool = True) -> None:
    """Draw until 1,000 draws are effective, then summarise all groups."""
    spent, start = Spent(), time.perf_counter()
    result = quorate.sample(
        model,
        table,
        workers=workers,
        engine=Processes(2),
        draws=5000,
        until="ess:1000",
        seed=1,
        progress=False,
    )
    cpu, wall = spent.seconds, time.perf_counter() - start
    ess = float(result.summary()["ess"].min())
    spent = Spent()
    n_groups = len(result.local.summary()) if groups else None
    told(
        what=name,
        workers=workers,
        cpu_s=round(cpu, 1),
        wall_s=round(wall, 1),
        least_ess=round(ess),
        cpu_s_per_1000_effective=round(1000 * cpu / ess, 1),
        summaries=n_groups,
        cpu_s_of_summaries=round(spent.seconds, 2) if groups else None,
        peak_mb_of_a_process=round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
        verdict=result.verdict.in_short if result.verdict else None,
    )


def of_nuts(path: Path | None, n_draws: int) -> dict[str, np.ndarray]:
    """What NUTS found on flights: read from a file, or drawn now, so many draws a chain."""
    with tempfile.TemporaryDirectory() as folder:
        if path is None:
            path = Path(folder) / "nuts.npz"
            script = Path(__file__).with_name("nuts_with_groups.py")
            command = [sys.executable, script, "--draws", str(n_draws), "-o", path]
            subprocess.run(command, check=True)  # noqa: S603
        with np.load(path) as saved:
            found = dict(saved)
    seconds, ess = float(found["seconds"]), float(found["ess"].min())
    told(
        what="NUTS",
        cpu_s=round(seconds),
        least_ess=round(ess),
        cpu_s_per_1000_effective=round(1000 * seconds / ess, 1),
    )
    return found


def table_of_flights() -> pd.DataFrame:
    """All flights that arrived."""
    columns, late, codes, labels = nuts_flights()
    origin = np.where(columns[:, 3] == 1, "JFK", np.where(columns[:, 4] == 1, "LGA", "EWR"))
    return pd.DataFrame(
        {"late": late, "hour": columns[:, 1], "tailnum": labels[codes], "origin": origin}
    )


def flights(nuts: Path | None) -> None:
    """Flights at K = 4 and 8, beside NUTS with about as many effective draws."""
    table = table_of_flights()
    for workers in (4, 8):
        measured("flights", logistic(design(FLIGHTS, table)), table, workers)
    of_nuts(nuts, n_draws=1400)  # at the end: its memory would count as that of a worker


def accuracy(nuts: Path | None) -> None:
    """Flights at K = 1, 4 and 8: how far means and standard deviations are from those of NUTS."""
    reference = of_nuts(nuts, n_draws=2000)
    phi = reference["phi"].reshape(-1, reference["phi"].shape[2])
    table = table_of_flights()
    model = logistic(design(FLIGHTS, table))
    for workers in (1, 4, 8):
        result = quorate.sample(
            model, table, workers=workers, engine=Processes(2), draws=5000, seed=1, progress=False
        )
        planes = result.local.summary()
        told(
            what="accuracy",
            workers=workers,
            least_ess=round(float(result.summary()["ess"].min())),
            **gaps("global", result.unconstrained, phi.mean(axis=0), phi.std(axis=0)),
            **gaps("planes", planes, reference["local_mean"], reference["local_sd"]),
        )


def gaps(of: str, found, means: np.ndarray, sds: np.ndarray) -> dict[str, object]:
    """Errors of means in standard deviations, and ratios of standard deviations."""
    if isinstance(found, pd.DataFrame):
        own_means, own_sds = found["mean"].to_numpy(), found["sd"].to_numpy()
    else:
        own_means, own_sds = found.mean(axis=0), found.std(axis=0)
    errors, ratios = (own_means - means) / sds, own_sds / sds
    return {
        f"rms_error_{of}": round(float(np.sqrt((errors**2).mean())), 3),
        f"largest_error_{of}": round(float(np.abs(errors).max()), 3),
        f"sds_{of}": [round(float(ratios.min()), 3), round(float(ratios.max()), 3)],
        f"sds_within_10_percent_{of}": round(float((np.abs(ratios - 1) <= 0.1).mean()), 4),
    }


def simulated(n_groups: int, rows: float, rng: np.random.Generator) -> Iterator[pd.DataFrame]:
    """Rows of groups with Pareto sizes, intercepts and slopes, some groups at a time."""
    for first in range(0, n_groups, 50_000):
        n = min(50_000, n_groups - first)
        sizes = np.minimum(np.ceil(rng.pareto(1.5, n) * rows / 2.0), 2000).astype(int)
        group = np.repeat(np.arange(first, first + n), np.maximum(sizes, 1))
        local = rng.normal(size=(n, 2)) * [0.8, 0.4]
        x = rng.normal(size=len(group))
        mean = 0.3 + 0.5 * x + local[group - first, 0] + local[group - first, 1] * x
        yield pd.DataFrame({"g": group, "x": x, "mean": mean})


def slopes() -> None:
    """20,000 groups of `(1 + x | g)`, logistic."""
    rng = np.random.default_rng(1)
    table = pd.concat(simulated(20_000, 4.5, rng))
    table["y"] = (rng.random(len(table)) < 1 / (1 + np.exp(-table.pop("mean")))).astype(float)
    told(what="slopes", rows=len(table), groups=int(table["g"].nunique()))
    measured("slopes", logistic(design(SLOPES, table)), table, 8)


def million() -> None:
    """A million groups in a Parquet file, linear and logistic, with an intercept each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "million.parquet"
        writer, n_rows = None, 0
        for part in simulated(1_000_000, 4.7, rng):
            mean = part.pop("mean")
            part["y"] = mean + rng.normal(size=len(part))
            part["b"] = (rng.random(len(part)) < 1 / (1 + np.exp(-mean))).astype(float)
            rows = pa.Table.from_pandas(part, preserve_index=False)
            writer = writer or pq.ParquetWriter(path, rows.schema)
            writer.write_table(rows)
            n_rows += len(part)
        assert writer is not None
        writer.close()
        told(what="million", rows=n_rows, groups=1_000_000)
        for name, family, formula in (
            ("million, linear", linear, "y ~ x + (1 | g)"),
            ("million, logistic", logistic, "b ~ x + (1 | g)"),
        ):
            table = open_table([str(path)])
            model = family(design(formula, table.batches(table.names)))
            measured(name, model, [str(path)], 8)


def main() -> None:
    """Run what is named, or flights and slopes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["flights", "slopes"])
    parser.add_argument("--nuts", type=Path, help="What nuts_with_groups.py wrote before.")
    options = parser.parse_args()
    for what in options.what:
        if what in ("flights", "accuracy"):
            {"flights": flights, "accuracy": accuracy}[what](options.nuts)
        else:
            {"slopes": slopes, "million": million}[what]()


if __name__ == "__main__":
    main()
