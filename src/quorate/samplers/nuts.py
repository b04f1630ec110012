"""The No-U-Turn sampler (Hoffman & Gelman 2014), for what `ellipse` cannot serve.

It moves in coordinates whitened by the Laplace fit, so that correlations known beforehand need not
be learnt; masses and step size are adapted in warm-up as Stan does.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate._types import Array
from quorate.errors import DivergenceWarning, require
from quorate.models.subposterior import Target
from quorate.numerics.streams import ChainStream
from quorate.samplers import trajectories
from quorate.samplers.adaptation import StepSize, inverse_masses, window_ends
from quorate.samplers.hamiltonian import Kernel, Stepper, moved
from quorate.samplers.jax_density import require_gradients
from quorate.samplers.protocol import Determinism, State
from quorate.samplers.survey import Survey


@dataclass(frozen=True)
class NutsSampler:
    """The sampler.

    Parameters
    ----------
    thin
        Steps per draw.
    n_warm_up
        Steps of warm-up.
    acceptance
        Mean acceptance along trajectories that the step size is adapted to. Nearer to 1 means
        shorter steps and fewer divergences.
    """

    thin: int = 1
    n_warm_up: int = 500
    acceptance: float = 0.8

    name = "nuts"
    determinism: Determinism = "pinned"

    def __post_init__(self) -> None:
        require(self.thin >= 1, "thin", self.thin, "use 1 to keep every step, or more")
        require(self.n_warm_up >= 100, "n_warm_up", self.n_warm_up, "use 100 or more")
        require(0 < self.acceptance < 1, "acceptance", self.acceptance, "use 0.8, or nearer to 1")

    def warm_up(self, target: Target, stream: ChainStream, survey: Survey | None = None) -> State:
        require_gradients(target, self.name)
        stepper = Stepper(target, _KERNEL)
        start = stepper.start(stream, survey)
        state = self._adapted(stepper, start, stream.for_warm_up())
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
    """Say how many of the last steps diverged, if more than one in a hundred did."""
    n_divergent = int(after["divergences"] - before["divergences"])
    if n_divergent > 0.01 * n_steps:
        warnings.warn(
            f"{n_divergent} of {n_steps} trajectories diverged: raise `acceptance` towards 1, or "
            "write the model in other coordinates (a hierarchical one non-centred)",
            DivergenceWarning,
            stacklevel=3,
        )


def _compiled(jax: Any, blackjax: Any) -> Any:
    return blackjax.mcmc.nuts.build_kernel()


_KERNEL = Kernel(_compiled, trajectories.nuts)
