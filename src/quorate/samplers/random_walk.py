"""Random-walk Metropolis (Metropolis et al. 1953), for targets that suit no other sampler.

Steps have the shape of the Laplace fit, or of I if there is none. Warm-up adapts their length,
which is fixed afterwards. It counts accepted proposals instead of averaging acceptance
probabilities, so bits agree across machines as those of `ellipse` do.
"""

from dataclasses import dataclass
from math import exp, log

import numpy as np
from scipy.special import ndtri

from quorate._types import Array
from quorate.errors import ImproperError, require
from quorate.models.checks import at
from quorate.models.subposterior import Target
from quorate.numerics.streams import ChainStream
from quorate.samplers.base import Base, snapped
from quorate.samplers.differences import checked_density, wary
from quorate.samplers.laplace import laplace_fit, starting_point
from quorate.samplers.protocol import Determinism, State

_WARM_UP = 1000
_ACCEPTED = 0.27  # target share: 0.44 is best in one dimension, 0.234 in many
_SCALES = 64.0  # step lengths are multiples of 1/64


@dataclass(frozen=True)
class RandomWalkSampler:
    """Random-walk Metropolis sampler.

    Parameters
    ----------
    thin
        Steps per draw.
    shape
        `laplace`, or `identity` for steps of equal length along every coordinate.
    """

    thin: int = 1
    shape: str = "laplace"

    name = "random_walk"
    determinism: Determinism = "exact"

    def __post_init__(self) -> None:
        require(self.thin >= 1, f"thin must be at least 1, not {self.thin!r}.")
        is_valid = self.shape in ("laplace", "identity")
        require(is_valid, f"Unknown shape {self.shape!r}. Choose laplace or identity.")

    def warm_up(self, target: Target, stream: ChainStream) -> State:
        base, has_mode = self._base(target)
        z, log_scale = np.zeros(target.dim), log(2.4 / np.sqrt(target.dim))
        state: State = {
            "index": np.array(0),
            "z": z,
            "log_density": np.array(checked_density(target)(base.point(z))),
            "mean": base.mean,
            "lower": base.lower,
            "has_mode": np.array(has_mode),
            "scale": np.array(_rounded(exp(log_scale))),
            "accepted": np.array(0),
        }
        one_by_one = RandomWalkSampler(1, self.shape)
        stream = stream.for_warm_up()
        for step in range(_WARM_UP):
            before = int(state["accepted"])
            _, state = one_by_one.draw(target, state, stream, 1)
            log_scale += (int(state["accepted"]) - before - _ACCEPTED) / (step + 1) ** 0.6
            state = {**state, "scale": np.array(_rounded(exp(log_scale)))}
        require(
            int(state["accepted"]) > 0,
            f"All {_WARM_UP} proposals of warm-up were refused, around "
            f"{at(base.point(z), target.model.names)}. Check the log density around this point.",
        )
        return {**state, "index": np.array(0), "accepted": np.array(0)}

    def _base(self, target: Target) -> tuple[Base, bool]:
        """The base of the steps, and whether it is at a mode."""
        if self.shape == "laplace":
            try:
                return Base.around(laplace_fit(target)), True
            except ImproperError:
                pass  # a random walk needs no mode
        return Base.standard(starting_point(target)[0]), False

    def draw(
        self, target: Target, state: State, stream: ChainStream, n: int
    ) -> tuple[Array, State]:
        base, density, dim = (
            Base(state["mean"], state["lower"]),
            wary(checked_density(target)),
            target.dim,
        )
        index, n_steps = int(state["index"]), n * self.thin
        z, value, accepted = state["z"], float(state["log_density"]), int(state["accepted"])
        uniforms = stream.uniforms(index * self.thin, n_steps, dim + 1)
        moves = snapped(float(state["scale"]) * ndtri(uniforms[:, :dim]))
        heights = np.log(uniforms[:, dim])
        draws = np.empty((n, dim))
        for step in range(n_steps):
            proposal = z + moves[step]
            found = density(base.point(proposal))
            if found - value > heights[step]:
                z, value, accepted = proposal, found, accepted + 1
            if (step + 1) % self.thin == 0:
                draws[step // self.thin] = base.point(z)
        after = {"z": z, "log_density": np.array(value), "accepted": np.array(accepted)}
        return draws, {**state, **after, "index": np.array(index + n)}


def _rounded(scale: float) -> float:
    return max(round(scale * _SCALES), 1) / _SCALES
