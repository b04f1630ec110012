"""Hamiltonian Monte Carlo (Duane et al. 1987): a few leapfrog steps in whitened coordinates.

In these coordinates a nearly Gaussian subposterior is a standard normal. A quarter of a turn then
leads to a point independent of the last one, which is optimal per draw, also for second moments.
"""

from dataclasses import dataclass
from functools import partial
from math import pi
from typing import Any

import numpy as np

from quorate._types import Array
from quorate.errors import require
from quorate.models.subposterior import Target
from quorate.numerics.streams import ChainStream
from quorate.samplers import trajectories
from quorate.samplers.adaptation import StepSize
from quorate.samplers.hamiltonian import Kernel, Stepper, moved, require_moved
from quorate.samplers.jax_density import require_gradients
from quorate.samplers.nuts import warn_of_divergences
from quorate.samplers.protocol import Determinism, State

_WARM_UP = 150
_JITTER = 0.15  # share by which step sizes vary, to avoid periodic orbits


@dataclass(frozen=True)
class HmcSampler:
    """Hamiltonian Monte Carlo with trajectories of three leapfrog steps.

    Parameters
    ----------
    thin
        Trajectories per draw.
    acceptance
        Target acceptance rate of the step size. Steps are never longer than a quarter of a turn
        per trajectory, which may be accepted more often.
    """

    thin: int = 1
    acceptance: float = 0.8

    name = "hmc"
    determinism: Determinism = "pinned"
    n_leapfrog = 3

    def __post_init__(self) -> None:
        require(self.thin >= 1, f"thin must be at least 1, not {self.thin!r}.")
        is_valid = 0 < self.acceptance < 1
        require(is_valid, f"acceptance must be between 0 and 1, not {self.acceptance!r}. Use 0.8.")

    def warm_up(self, target: Target, stream: ChainStream) -> State:
        require_gradients(target, self.name)
        longest = pi / 2 / self.n_leapfrog
        stepper = Stepper(target, _KERNEL)
        state = stepper.start(stream)
        size = StepSize.starting_at(longest, longest)
        for key in stream.for_warm_up().keys(0, _WARM_UP):
            made = stepper.step(state, key, size.current)
            state, size = moved(state, made), size.after(made.acceptance, self.acceptance)
        require_moved(target, state)
        none = np.array(0)
        return {
            **state,
            "step_size": np.array(size.averaged),
            "divergences": none,
            "evaluations": none,
        }

    def draw(
        self, target: Target, state: State, stream: ChainStream, n: int
    ) -> tuple[Array, State]:
        draws, after = Stepper(target, _KERNEL).draw(state, stream, n, self.thin, _JITTER)
        warn_of_divergences(state, after, n * self.thin)
        return draws, after


def _compiled(jax: Any, blackjax: Any) -> Any:
    step = blackjax.mcmc.hmc.build_kernel()
    return lambda *arguments: step(*arguments, HmcSampler.n_leapfrog)


_KERNEL = Kernel(_compiled, partial(trajectories.hmc, n_leapfrog=HmcSampler.n_leapfrog))
