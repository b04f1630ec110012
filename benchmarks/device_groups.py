"""Rows of a logistic regression with very many groups, for `benchmarks/device.py`.

There are 5 million rows in a million groups, each with an intercept of its own:
`y ~ x1 + x2 + (1 | g)`. Groups have as many rows as chance gives them, at least one.
"""

import numpy as np

from quorate import Result

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


def estimates(result: Result) -> dict[str, dict[str, float]]:
    """Means and standard deviations beside the truth."""
    table = result.summary_rows()
    return {
        name: {
            "truth": truth,
            "mean": round(table[name]["mean"], 5),
            "sd": round(table[name]["sd"], 5),
            "ess": round(table[name]["ess"]),
        }
        for name, truth in TRUTH.items()
    }
