"""What it costs when a worker hangs: SIGSTOP of one of six, as a share of the undisturbed time.

Draws take as long as they are told to (a sleep in the likelihood), so that a worker that hangs does
not make the others faster by the processor time it leaves to them. `cmc` waits until the silence is
noticed and the worker replaced; schemes with r = 2 should take less than 1.25 times as long, if
they take long enough for the six seconds of silence not to matter.
"""

import os
import signal
import time

import numpy as np

import quorate

WORKERS, DRAWS, SLEEP = 6, 3000, 0.004


class SleepyMean:
    """z ~ N(θ, 1); a draw takes as long as it takes."""

    dim, names = 2, ("a", "b")

    def initial(self):
        return np.zeros(2)

    def log_prior(self, x):
        return float(-0.5 * np.sum(x**2) / 100)

    def log_likelihood(self, x, shard):
        time.sleep(SLEEP)
        return float(-0.5 * np.sum((shard["z"] - x) ** 2))

    def constrain(self, draws):
        return {"theta": draws}


class StopOne:
    """Stops a worker when a third of the draws is there."""

    def __init__(self):
        self.done = False

    def __call__(self, progress):
        pid = progress.workers[2].pid
        if not self.done and progress.draws > DRAWS / 3 and pid is not None:
            self.done = True
            os.kill(pid, signal.SIGSTOP)


def seconds(scheme, rows, listener):
    """From the first global draw to the last."""
    result = quorate.sample(
        SleepyMean(), rows, workers=WORKERS, redundancy=2, scheme=scheme, draws=DRAWS,
        sampler="ellipse", progress=listener, check=False,
    )  # fmt: skip
    times = result.timeline.release_times
    assert result.n_draws == DRAWS
    return times[-1] - times[0]


def main():
    """Each scheme, undisturbed and with one worker stopped."""
    rows = {"z": np.random.default_rng(0).normal(size=(600, 2))}
    for scheme in ("adaptive", "grouped", "coded", "cmc"):
        plain, stopped = seconds(scheme, rows, False), seconds(scheme, rows, StopOne())
        print(f"{scheme:9} {plain:5.1f} s; one of {WORKERS} stopped: {stopped:5.1f} s, "
              f"{stopped / plain:.2f} times")  # fmt: skip


if __name__ == "__main__":
    main()
