"""The No-U-Turn sampler (Hoffman & Gelman 2014), for targets that do not suit `ellipse`.

It moves in coordinates whitened by the Laplace fit, so it need not learn correlations that are
already known. Warm-up adapts masses and step size as Stan does.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate._types import Array
from quorate._warnings import warn
from quorate.errors import DivergenceWarning, require
from quorate.models.subposterior import Target
from quorate.numerics.streams import ChainStream
from quorate.samplers import trajectories
from quorate.samplers.adaptation import StepSize, inverse_masses, window_ends
from quorate.samplers.hamiltonian import Kernel, Stepper, moved, require_moved
from quorate.samplers.jax_density import require_gradients
from quorate.samplers.protocol import Determinism, State
from quorate.samplers.survey import Survey


@dataclass(frozen=True)
class NutsSampler:
    """No-U-Turn sampler in whitened coordinates.

    Parameters
    ----------
    thin
        Steps per draw.
    n_warm_up
        Steps of warm-up.
    acceptance
        Target of the mean acceptance along trajectories. Values nearer to 1 mean shorter steps and
        fewer divergences.
    """

    thin: int = 1
    n_warm_up: int = 500
    acceptance: float = 0.8

    name = "nuts"
    determinism: Determinism = "pinned"

    def __post_init__(self) -> None:
        require(self.thin >= 1, f"thin must be at least 1, not {self.thin!r}.")
        require(self.n_warm_up >= 100, f"n_warm_up must be at least 100, not {self.n_warm_up!r}.")
        is_valid = 0 < self.acceptance < 1
        require(is_valid, f"acceptance must be between 0 and 1, not {self.acceptance!r}. Use 0.8.")

    def warm_up(self, target: Target, stream: ChainStream, survey: Survey | None = None) -> State:
        require_gradients(target, self.name)
        stepper = Stepper(target, _KERNEL)
        start = stepper.start(stream, survey)
        state = self._adapted(stepper, start, stream.for_warm_up())
        require_moved(target, state)
        return {**state, "divergences": np.array(0), "evaluations": np.array(0)}

    def _adapted(self, stepper: Stepper, state: State, stream: ChainStream) -> State:
        size = StepSize.starting_at(0.5)
        ends, window = window_ends(self.n_warm_up), []
        keys = stream.keys(0, self.n_warm_up)
        for i in range(self.n_warm_up):
            made = stepper.step(state, keys[i], size.current)
            state, size = moved(state, made), size.after(made.acceptance, self.acceptance)
            if round(0.15 * self.n_warm_up) <= i < ends[-1]:
                window.append(made.z)
            if i + 1 in ends:
                state = {**state, "inverse_masses": inverse_masses(np.array(window))}
                size, window = StepSize.starting_at(size.averaged), []
        return {**state, "step_size": np.array(size.averaged)}

    def draw(
        self, target: Target, state: State, stream: ChainStream, n: int
    ) -> tuple[Array, State]:
        draws, after = Stepper(target, _KERNEL).draw(state, stream, n, self.thin)
        warn_of_divergences(state, after, n * self.thin)
        return draws, after


def warn_of_divergences(before: State, after: State, n_steps: int) -> None:
    """Warn if more than one in a hundred of the last steps diverged."""
    n_divergent = int(after["divergences"] - before["divergences"])
    if n_divergent > 0.01 * n_steps:
        warn(
            f"{n_divergent} of {n_steps} trajectories diverged. Raise `acceptance` towards 1, or "
            "reparametrise the model (a hierarchical one non-centred).",
            DivergenceWarning,
        )


def _compiled(jax: Any, blackjax: Any) -> Any:
    return blackjax.mcmc.nuts.build_kernel()


_KERNEL = Kernel(_compiled, trajectories.nuts)
