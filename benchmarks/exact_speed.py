"""CPU seconds of exact runs beside merges at equal K, everything counted.

Until every coefficient has an ESS of 1,000, without a check; and for a logistic regression on
100,000 rows and 20 continuous columns, 3,000 draws with the check. Also what the coordinator
spends on each block of points while chains draw.
"""

import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import quorate
from flights_to_ess import regression
from quorate.models import logistic
from quorate.run.progress import Progress

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.cases import FOLDER, MODELS

WANTED, WORKERS = 1000, 4
Rows = dict[str, Any]


def spent(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """CPU seconds of this process and of all, and what came of it."""
    before = _cpu(resource.RUSAGE_SELF), _cpu(resource.RUSAGE_CHILDREN)
    made = work()
    own = _cpu(resource.RUSAGE_SELF) - before[0]
    return own, own + _cpu(resource.RUSAGE_CHILDREN) - before[1], made


def _cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def least_ess(result: quorate.Result) -> float:
    """Of the scalar that has fewest effective draws."""
    return min(row["ess"] for row in result.summary_rows().values())


def problems() -> dict[str, tuple[Any, Rows]]:
    """Models and rows."""
    found: dict[str, tuple[Any, Rows]] = {}
    for case in ("wells_dae_inter", "nes1996"):
        with np.load(FOLDER / f"{case}.npz") as data:
            found[case] = MODELS[case], dict(data)
    found["flights"] = regression()
    return found


def until_enough(model: Any, rows: Rows, method: str) -> tuple[float, float, int]:
    """CPU seconds for at least WANTED effective draws, their ESS, and the number of draws."""
    n_draws = WANTED
    while True:
        options = {"workers": WORKERS, "draws": n_draws, "check": False, "progress": False}
        _, seconds, result = spent(
            lambda options=options: quorate.sample(model, rows, method=method, **options)
        )
        ess = least_ess(result)
        if ess >= WANTED:
            return seconds, ess, n_draws
        n_draws = int(n_draws * min(max(1.1 * WANTED / ess, 1.1), 3.0))


def continuous(n_rows: int = 100_000, dim: int = 20) -> tuple[Any, Rows]:
    """A logistic regression without two equal rows."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n_rows, dim))
    chance = 1 / (1 + np.exp(-x @ (0.3 * rng.standard_normal(dim))))
    return logistic(dim), {"X": x, "y": (rng.random(n_rows) < chance).astype(float)}


def per_block() -> float:
    """Milliseconds of the coordinator, with all its threads, for each block while chains draw."""
    with np.load(FOLDER / "wells_dae_inter.npz") as data:
        rows = dict(data)
    looks: list[tuple[float, int]] = []

    def look(progress: Progress) -> None:
        if progress.draws:
            n_blocks = sum(worker.blocks for worker in progress.workers)
            looks.append((_cpu(resource.RUSAGE_SELF), n_blocks))

    options = {"workers": WORKERS, "draws": 20_000, "check": False, "progress": look}
    quorate.sample(MODELS["wells_dae_inter"], rows, method="exact", **options)
    (start, n_start), (end, n_end) = looks[0], looks[-1]
    return 1000 * (end - start) / (n_end - n_start)


def main() -> None:
    """All of it."""
    print(f"CPU s to ESS {WANTED:,} of every coefficient, K = {WORKERS}, everything counted")
    for name, (model, rows) in problems().items():
        merge, exact = (until_enough(model, rows, method) for method in ("merge", "exact"))
        print(
            f"  {name:16} merge {merge[0]:5.2f} ({merge[2]} draws)   exact {exact[0]:5.2f} "
            f"({exact[2]} draws)   exact / merge {exact[0] / merge[0]:.2f}"
        )
    model, rows = continuous()
    print("Logistic regression, 100,000 × 20, 3,000 draws on 2 processes, with the check")
    for method in ("merge", "exact"):
        options = {"workers": 2, "redundancy": 1, "draws": 3000, "progress": False}
        _, seconds, result = spent(
            lambda method=method, options=options: quorate.sample(
                model, rows, method=method, **options
            )
        )
        ess = least_ess(result)
        print(f"  {method:6} {seconds:5.1f} CPU s   ESS {ess:,.0f}   {ess / seconds:,.0f} a second")
    print(f"Coordinator: {per_block():.2f} ms CPU for each block of 64 points")


if __name__ == "__main__":
    main()
