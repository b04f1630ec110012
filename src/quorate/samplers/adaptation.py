"""Tuning of Hamiltonian samplers in warm-up, in plain numpy around a compiled step.

Dual averaging sets the step size (Nesterov 2009; Hoffman & Gelman 2014, §3.2). Variances of draws
in windows of doubling length set the masses (Stan reference manual, "HMC algorithm parameters").
"""

from dataclasses import dataclass, replace
from math import exp, inf, log, sqrt

import numpy as np

from quorate._types import Array

_SHRINKAGE, _OFFSET, _DECAY = 0.05, 10.0, 0.75  # γ, t₀ and κ of Hoffman & Gelman


@dataclass(frozen=True)
class StepSize:
    """Dual averaging of log step sizes. `averaged` is the size to use after warm-up."""

    start: float
    current: float
    averaged: float
    gap: float = 0.0
    count: int = 0
    longest: float = inf

    @classmethod
    def starting_at(cls, size: float, longest: float = inf) -> "StepSize":
        """Start dual averaging from a guess; step sizes stay below `longest`."""
        return cls(size, size, size, longest=longest)

    def after(self, acceptance: float, wanted: float) -> "StepSize":
        """The update after a step of the current size, accepted with this probability."""
        count = self.count + 1
        share = 1 / (count + _OFFSET)
        gap = (1 - share) * self.gap + share * (wanted - acceptance)
        size = log(10 * self.start) - sqrt(count) / _SHRINKAGE * gap
        size = min(max(size, -30.0), log(self.longest) if self.longest < inf else 30.0)
        weight = count**-_DECAY
        averaged = exp(weight * size + (1 - weight) * log(self.averaged))
        return replace(self, current=exp(size), averaged=averaged, gap=gap, count=count)


def window_ends(n_steps: int) -> list[int]:
    """Steps after which masses are updated, between the first 15 % and the last 10 % of steps."""
    first, last = round(0.15 * n_steps), n_steps - round(0.1 * n_steps)
    ends, size, end = [], 25, first
    while end < last:
        end += size
        size *= 2
        if end + size > last:  # the next window would not fit, so this one takes the rest
            end = last
        ends.append(end)
    return ends


def inverse_masses(draws: Array) -> Array:
    """Variances of draws (n, d), shrunk slightly towards 0.001 as in Stan."""
    n = len(draws)
    return np.asarray((n * draws.var(axis=0, ddof=1) + 5 * 1e-3) / (n + 5))
