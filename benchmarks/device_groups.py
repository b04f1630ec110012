"""A million groups on a device: seconds from arrays to 1,000 effective draws.

    python benchmarks/device_groups.py --on-device       # JAX's default device in every worker
    python benchmarks/device_groups.py --scale 0.01      # 10,000 groups, in numpy

The rows are 5 million of a logistic regression with an intercept for each of a million groups,
`y ~ x1 + x2 + (1 | g)`. Groups have as many rows as chance gives them, at least one. Prints a JSON
object: where the seconds went, effective draws, and estimates beside the truth.
"""

import argparse
import json
import platform
import time
from importlib.metadata import PackageNotFoundError, version

import numpy as np

import quorate
from quorate.models import logistic
from quorate.run.progress import Progress

GROUPS, ROWS = 1_000_000, 5_000_000
COLUMNS = ("Intercept", "x1", "x2")
TRUTH = {"Intercept": -0.5, "x1": 0.7, "x2": -0.3, "sd_g__Intercept": 0.8}


def simulated(scale: float, seed: int) -> dict[str, np.ndarray]:
    """Rows in random order."""
    rng = np.random.default_rng(seed)
    n_groups, n_rows = round(scale * GROUPS), round(scale * ROWS)
    group = np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, n_rows - n_groups)])
    rng.shuffle(group)
    columns = np.column_stack([np.ones(n_rows), rng.standard_normal((n_rows, 2))])
    intercepts = TRUTH["sd_g__Intercept"] * rng.standard_normal(n_groups)
    eta = columns @ [TRUTH[name] for name in COLUMNS] + intercepts[group]
    y = (rng.random(n_rows) < 1 / (1 + np.exp(-eta))).astype(float)
    return {"X": columns, "y": y, "g": group}


class Phases:
    """Listens to the progress of a run: how long each phase took, and when draws were effective."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._phase, self._since = "before rows are cut", time.perf_counter()

    def __call__(self, progress: Progress) -> None:
        if str(progress.phase) != self._phase:
            self.end(str(progress.phase))

    def end(self, following: str = "") -> None:
        """The phase has ended."""
        now = time.perf_counter()
        spent = self.seconds.get(self._phase, 0.0) + now - self._since
        self.seconds[self._phase] = round(spent, 2)
        self._phase, self._since = following, now


def measured(options: argparse.Namespace) -> dict[str, object]:
    """Make rows and draw."""
    start = time.perf_counter()
    rows = simulated(options.scale, options.seed)
    made = time.perf_counter() - start
    model = logistic(COLUMNS, groups="g")
    phases, start = Phases(), time.perf_counter()
    result = quorate.sample(
        model.on_device() if options.on_device else model,
        rows,
        method="exact",
        workers=options.workers,
        engine=options.engine,
        draws=options.draws,
        until=f"ess:{options.ess}",
        seed=options.seed,
        progress=phases,
        every=0.05,
    )
    phases.end()
    seconds, table = time.perf_counter() - start, result.summary_rows()
    return {
        "rows": len(rows["y"]),
        "groups": int(rows["g"].max()) + 1,
        "seconds_to_make_rows": round(made, 2),
        "seconds": round(seconds, 2),
        "phases": phases.seconds,
        "draws": result.n_draws,
        "passes": result.n_passes,
        "least_ess": round(min(row["ess"] for row in table.values())),
        "estimates": {
            name: {
                "truth": truth,
                "mean": round(table[name]["mean"], 5),
                "sd": round(table[name]["sd"], 5),
            }
            for name, truth in TRUTH.items()
        },
    }


def machine(on_device: bool) -> dict[str, object]:
    """What this ran on."""
    found: dict[str, object] = {"python": platform.python_version(), "system": platform.machine()}
    for package in ("numpy", "scipy", "jax"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    if on_device:
        import jax  # only after the run, so that workers have the device

        found["device"] = str(jax.devices()[0].device_kind)
    return found


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="Share of the million groups.")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--engine", default="process")
    parser.add_argument(
        "--on-device", action="store_true", help="Evaluate with JAX, whatever the engine does."
    )
    parser.add_argument("--draws", type=int, default=4000, help="At most.")
    parser.add_argument("--ess", type=int, default=1000, help="Effective draws to stop at.")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = {"options": vars(options), **measured(options), "machine": machine(options.on_device)}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
