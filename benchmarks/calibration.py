"""Simulation-based calibration of logistic regressions with groups, 200 data sets each.

    python benchmarks/calibration.py --sets 200 --figure docs/figures/calibration/ranks.svg

Ranks of all global parameters, and of the coefficients of one group, are tested for uniformity by
chi-squared tests with 20 bins. All tests together have a false-alarm rate of 1 %. In the control
rows are not cut by group: each shard has some rows of every group, and the posterior is wrong.
"""

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.calibration import N_BINS, N_RANKS, ONE, TORN, TWO, Design, p_values, ranks

FALSE_ALARMS = 0.01


def collected(design: Design, n_sets: int, processes: int, *, control: bool) -> np.ndarray:
    """Ranks of all parameters in all data sets."""
    one = partial(ranks, design, control=control)
    with ProcessPoolExecutor(processes) as pool:
        return np.array(list(pool.map(one, range(n_sets))))


def names(design: Design) -> list[str]:
    """Parameters that are ranked."""
    return [*design.model.names, *(f"{name} of a group" for name in design.model.levels[0].names)]


def draw(found: dict[str, np.ndarray], path: Path) -> None:
    """Empirical distribution functions of ranks, less the diagonal, with bands."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(found), figsize=(4 * len(found), 3), sharey=True)
    grid = np.arange(N_RANKS + 1) / N_RANKS
    for panel, (title, (labels, ranked)) in zip(panels, found.items(), strict=True):
        band = 1.63 / np.sqrt(len(ranked))  # Kolmogorov–Smirnov at 1 %
        panel.axhspan(-band, band, color="0.92")
        for label, column in zip(labels, ranked.T, strict=True):
            below = (column[:, None] <= np.arange(N_RANKS + 1)).mean(axis=0)
            panel.plot(grid, below - (np.arange(N_RANKS + 1) + 1) / (N_RANKS + 1), label=label)
        panel.set(title=title, xlabel="rank among posterior draws", ylim=(-0.4, 0.4))
        panel.legend(fontsize=6, frameon=False, loc="lower right", ncols=2)
    panels[0].set_ylabel("share of data sets below,\nless what is expected")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Calibrate both models and the control, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    found = {}
    for design, control in ((ONE, False), (TWO, False), (TORN, True)):
        start = time.perf_counter()
        ranked = collected(design, options.sets, options.processes, control=control)
        p = p_values(ranked)
        title = design.name + (", groups torn" if control else "")
        found[title] = (names(design), ranked)
        report = {
            "model": title,
            "data sets": options.sets,
            "bins": N_BINS,
            "p": dict(zip(names(design), np.round(p, 4).tolist(), strict=True)),
            "uniform": bool(p.min() > FALSE_ALARMS / len(p) / 2),
            "seconds": round(time.perf_counter() - start),
        }
        print(json.dumps(report), flush=True)
    if options.figure:
        draw(found, options.figure)


if __name__ == "__main__":
    main()
