"""The constants of the cost model in docs/explanation/scale.md, besides those of idle_workers.py.

Times are CPU seconds of one core: of a row at a point, in blocks of 64 points and alone; and of a
draw of a shard at the coordinator of a merge.
"""

import numpy as np

import quorate
from idle_workers import DIM, Idle, cpu
from quorate.models import logistic
from quorate.models.subposterior import Target, densities
from timing import cpu_seconds

ROWS, POINTS, WORKERS = 200_000, 64, 64


def of_a_row() -> tuple[float, float]:
    """Seconds for a row and point of a logistic regression: of 64 points at once, and of one."""
    rng = np.random.default_rng(0)
    rows = {"X": rng.standard_normal((ROWS, DIM)), "y": rng.integers(2, size=ROWS).astype(float)}
    target = Target(logistic(DIM), rows, 1)
    points = 0.1 * rng.standard_normal((POINTS, DIM))
    together = cpu_seconds(lambda: densities(target, points), repeat=5) / POINTS
    alone = cpu_seconds(lambda: target.log_density(points[0]), repeat=20)
    return together / ROWS, alone / ROWS


def of_a_draw() -> float:
    """Seconds of the coordinator for each draw of a shard in a merge, from arrival to saved result.

    It is what a long run takes more than a short one.
    """
    short, long = (_merge(n_draws) for n_draws in (2_000, 10_000))
    return (long - short) / (WORKERS * 8_000)


def _merge(n_draws: int) -> float:
    start = cpu()
    quorate.sample(
        Idle(),
        {"y": np.zeros(WORKERS)},
        workers=WORKERS,
        redundancy=1,
        draws=n_draws,
        method="merge",
        scheme="cmc",
        sampler="ellipse",
        engine=quorate.Processes(4),
        progress=False,
        check=False,
    )
    return cpu() - start


def main() -> None:
    """All of them."""
    together, alone = of_a_row()
    print(f"a row at a point: {1e9 * together:.2f} ns of 64 points, {1e9 * alone:.1f} ns alone")
    print(f"a draw of a shard at the coordinator: {1e6 * of_a_draw():.2f} µs")


if __name__ == "__main__":
    main()
