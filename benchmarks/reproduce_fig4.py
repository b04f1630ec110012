"""CPU time of `quorate reproduce fig4 --reading published`, beside the same in plain loops."""

import numpy as np

import scripts_in_loops
from quorate.lab.reproduce import reproduce
from quorate.lab.specs import experiment
from timing import cpu_seconds

OCTAVE_SECONDS = (127, 142)  # the authors' script under Octave on a machine of this kind


def main() -> None:
    """Time both, and check that they agree."""
    spec = experiment("fig4", "published")
    reproduce(experiment("fig4", "published", realisations=1))  # imports and caches
    ours = cpu_seconds(lambda: reproduce(spec), repeat=5)
    loops: dict[tuple[str, int], tuple[np.ndarray, np.ndarray]] = {}
    theirs = cpu_seconds(lambda: loops.update(scripts_in_loops.run()))
    low, high = (seconds / ours for seconds in OCTAVE_SECONDS)
    print("Fig. 4, published reading: 50 realisations, 30 draws, five curves; CPU seconds")
    print(f"  quorate, protocol and codes really run  {ours:6.2f}  (target: under 1.3)")
    print(f"  plain numpy loops, no protocol          {theirs:6.2f}  {theirs / ours:.0f} times")
    print(f"  the authors' script under Octave       127-142  {low:.0f} to {high:.0f} times")
    print("Mean error at l = 30, quorate and loops:")
    for averaged in reproduce(spec):
        curve = averaged.curve
        by_loops = loops[curve.label, curve.redundancy][1][-1]
        print(
            f"  {curve.label:6} r = {curve.redundancy}   {averaged.errors[-1]:.3f}   {by_loops:.3f}"
        )


if __name__ == "__main__":
    main()
