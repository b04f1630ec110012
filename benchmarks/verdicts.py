"""How often the verdict is right: 50 seeds of merges that are good, and of planted failures.

The cases are those of tests/helpers/planted.py, judged without processes. The flights regression is
drawn and checked on processes, for as many seeds as asked for. `benchmarks/verdicts.py 50 5 100`:
50 seeds of each case and 5 of the flights, from seed 100 on.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import quorate
from quorate.models import design, logistic
from quorate.numerics.streams import Streams

sys.path.append(str(Path(__file__).parents[1] / "tests"))
sys.path.append(str(Path(__file__).parents[1] / "examples"))
from flights import FORMULA, flights

from helpers.planted import FAILURES, GOOD, Case, mislabelled


def judged(make: Callable[[int], Case], seeds: range) -> tuple[list[Any], list[Case]]:
    """Verdicts on a case, one for each seed."""
    cases = [make(seed) for seed in seeds]
    return [case.verdict(seed) for seed, case in zip(seeds, cases, strict=True)], cases


def line(name: str, wanted: str, verdicts: list[Any], seconds: float) -> None:
    """One row of the table."""
    words = Counter(verdict.verdict for verdict in verdicts)
    n_wrong = len(verdicts) - words[wanted]
    k_hats = np.quantile([verdict.k_hat for verdict in verdicts], [0, 0.5, 1])
    ess = np.median([verdict.importance_ess for verdict in verdicts])
    shown = " ".join(f"{k:6.2f}" for k in k_hats)
    print(f"{name:18} {wanted:13} {n_wrong:3} of {len(verdicts):3} wrong   k̂ {shown}   ", end="")
    print(f"ESS {ess:5.0f}   {seconds / len(verdicts):5.2f} s   {dict(words)}", flush=True)


def errors(verdicts: list[Any], cases: list[Case]) -> None:
    """Of means on a case whose truth is known, raw and corrected, in posterior sds."""
    raw, corrected = [], []
    for seed, (verdict, case) in enumerate(zip(verdicts, cases, strict=True)):
        weighted = verdict.weighted
        chosen = weighted.resampled(Streams(seed), round(weighted.ess))
        sds = weighted.sd(weighted.points)
        raw.append(np.abs(case.merged().mean(axis=0) - case.truth) / sds)
        corrected.append(np.abs(weighted.points[chosen].mean(axis=0) - case.truth) / sds)
    n_halved = np.sum(np.array(corrected) < np.array(raw) / 2)
    print(f"    error of the mean in sds, median and most: raw {np.median(raw):.3f}", end="")
    print(
        f" {np.max(raw):.3f}, corrected {np.median(corrected):.3f} {np.max(corrected):.3f};", end=""
    )
    print(f" halved in {n_halved} of {len(raw)}", flush=True)


def flights_verdicts(seeds: range) -> list[Any]:
    """Of the flights regression on six workers."""
    table = flights()
    encoding = design(FORMULA, table)
    rows, model = encoding.arrays(table), logistic(encoding.names)
    verdicts = []
    for seed in seeds:
        options = {
            "workers": 6,
            "engine": quorate.Processes(2),
            "draws": 4000,
            "seed": seed,
            "progress": False,
        }
        result = quorate.sample(model, rows, sampler="ellipse", **options)
        verdicts.append(result.verdict)
        drawing = result.timeline.release_times[-1]
        print(f"    flights, seed {seed}: drawn in {drawing:.1f} s; {result.verdict}", flush=True)
    return verdicts


def main() -> None:
    """Print the table."""
    n_seeds, n_flights, first = map(int, sys.argv[1:4] or (50, 0, 0))
    for wanted, kinds in (("good", GOOD), ("do not trust", FAILURES)):
        for name, make in kinds.items():
            start = time.process_time()
            verdicts, cases = judged(make, range(first, first + n_seeds))
            line(name, wanted, verdicts, time.process_time() - start)
            if name == "skewed":
                errors(verdicts, cases)
    verdicts, _ = judged(mislabelled, range(first, first + n_seeds))
    n_named = sum(verdict.shards[0].disagrees for verdict in verdicts)
    words = Counter(verdict.verdict for verdict in verdicts)
    print(f"mislabelled: a remark in {n_named} of {n_seeds}   {dict(words)}", flush=True)
    if n_flights:
        start = time.process_time()
        verdicts = flights_verdicts(range(first, first + n_flights))
        line("flights", "good", verdicts, time.process_time() - start)


if __name__ == "__main__":
    main()
