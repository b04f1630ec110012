"""Efficiency of a chain: evaluations and effective draws per draw."""

from dataclasses import dataclass

import numpy as np

from quorate._types import Array
from quorate._warnings import warn
from quorate.errors import WrongShapeWarning
from quorate.numerics.ess import bulk_ess

MOST_EVALUATIONS = 2.5  # per draw; above it the base fits the target badly
LEAST_ESS = 0.15  # per draw


@dataclass(frozen=True)
class Efficiency:
    """Log densities evaluated per draw, and smallest bulk ESS per draw, of a chain."""

    evaluations_per_draw: float
    ess_per_draw: float

    @classmethod
    def of(cls, draws: Array, n_evaluations: int) -> "Efficiency":
        """Efficiency of draws (n, d) of one chain, which took `n_evaluations`."""
        n = len(draws)
        least = float(np.min(np.nan_to_num(bulk_ess(draws[None]))))
        return cls(n_evaluations / n, least / n)

    @property
    def is_costly(self) -> bool:
        """Whether draws take too many evaluations."""
        return self.evaluations_per_draw > MOST_EVALUATIONS

    @property
    def is_sticky(self) -> bool:
        """Whether too few draws are effective."""
        return self.ess_per_draw < LEAST_ESS

    @property
    def is_poor(self) -> bool:
        """Whether another sampler is likely to do better."""
        return self.is_costly or self.is_sticky

    def warn_if_poor(self, sampler: str, advice: str) -> None:
        """Warn if draws are expensive or highly correlated; `advice` says what to do."""
        if self.is_poor:
            warn(
                f"The shape of the subposterior does not suit `{sampler}`: "
                f"{self.evaluations_per_draw:.1f} evaluations per draw (good: below "
                f"{MOST_EVALUATIONS}), {self.ess_per_draw:.3f} effective draws per draw (good: "
                f"above {LEAST_ESS}). {advice}",
                WrongShapeWarning,
            )
