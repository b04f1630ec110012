"""The adaptive scheme beside G-CMC and the genie: time to 100 draws, and error at equal time."""

import numpy as np

from quorate import simulate
from quorate.engines.latency import Pareto, Slowed
from quorate.lab.reproduce import average, curve_trajectories
from quorate.lab.specs import BEYOND_RIDGE, Curve, experiment

REALISATIONS = 100
SIZES = ((5, 2), (40, 2), (40, 4), (100, 3))
MOST_OF_GENIE = (1.12, 1.6, 1.15, 1.4)
RIDGES = (0.01, 0.03, 0.1, 0.3, 1.0, 10.0)
PARETO = Pareto(0.1, 1.2)


def main() -> None:
    """Print what was measured, with the targets."""
    print(f"Median time to 100 draws, every draw with a Pareto(1.2) time, {REALISATIONS} runs")
    print("    K  r   G-CMC  adaptive  genie   ÷ G-CMC (target)   ÷ genie (target)")
    for (workers, redundancy), most in zip(SIZES, MOST_OF_GENIE, strict=True):
        grouped, adaptive, genie = (
            median(scheme, workers, redundancy) for scheme in ("grouped", "adaptive", "genie")
        )
        print(
            f"  {workers:3}  {redundancy}  {grouped:6.2f}  {adaptive:8.2f}  {genie:5.2f}   "
            f"{adaptive / grouped:7.2f}  (0.90)    {adaptive / genie:6.2f}  ({most})"
        )
    slow = Slowed(PARETO, 4, 10.0)
    grouped, adaptive = (median(scheme, 40, 4, slow) for scheme in ("grouped", "adaptive"))
    print(
        f"   40  4  {grouped:6.2f}  {adaptive:8.2f}          {adaptive / grouped:7.2f}  (0.80)",
        end="",
    )
    print("    with 4 workers ten times slower")
    spare = simulate(
        "adaptive", 40, 2, gap=12, copy_cost=0.5, per_draw=True, realisations=REALISATIONS
    )
    print(f"   40  2          {spare.median:8.2f}          with spare slots, a copy costing 0.5")
    print(f"Error at t = 3, text reading; adaptive with ridge {BEYOND_RIDGE}, G-CMC with its best")
    for redundancy in (2, 4):
        best = at_best_ridge("fig4", redundancy)[59]
        ours = errors("fig4", Curve("adaptive", redundancy), BEYOND_RIDGE)[59]
        print(f"   40  {redundancy}  {best:6.3f}  {ours:8.3f}          {ours / best:7.2f}  (0.60)")
    ours = errors("fig3", Curve("adaptive", 2), BEYOND_RIDGE)[9:]
    grouped = at_best_ridge("fig3", 2)[9:]
    coded = errors("fig3", Curve("coded", 2), 10.0)[9:]
    print("Error from t = 0.5 on, K = 5, r = 2: the largest that adaptive ÷ other is (target 1)")
    print(f"  G-CMC at the best ridge for each time {np.max(ours / grouped):.2f}")
    print(f"  C-CMC at the ridges of the scripts    {np.max(ours / coded):.2f}")


def median(scheme: str, workers: int, redundancy: int, latency: object = PARETO) -> float:
    """Time by which half of the runs have 100 draws."""
    runs = simulate(
        scheme, workers, redundancy, latency=latency, per_draw=True, realisations=REALISATIONS
    )
    return runs.median


def at_best_ridge(figure: str, redundancy: int) -> np.ndarray:
    """G-CMC's errors, at each time with the ridge that is best then."""
    return np.min([errors(figure, Curve("grouped", redundancy), x) for x in RIDGES], axis=0)


def errors(figure: str, curve: Curve, cov_ridge: float) -> np.ndarray:
    """At times 0.05, 0.1, …, 5."""
    spec = experiment(figure, realisations=REALISATIONS, cov_ridge=cov_ridge)
    return average(curve, curve_trajectories(spec, curve)).errors


if __name__ == "__main__":
    main()
