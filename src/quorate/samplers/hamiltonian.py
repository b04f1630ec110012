"""Shared parts of `nuts` and `hmc`: steps, whitening, and the state of a chain.

JAX compiles the steps of models that it can trace. Models with their own gradients are stepped in
numpy, because calling numpy back from compiled code often costs more than the gradient itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array
from quorate._warnings import warn
from quorate.errors import (
    BadInputError,
    ImproperError,
    NotANumberError,
    WrongShapeWarning,
    require,
)
from quorate.models.checks import at
from quorate.models.subposterior import Target
from quorate.numerics.streams import ChainStream
from quorate.samplers.jax_density import Owner, arguments_of, density_of, is_traceable, load_jax
from quorate.samplers.laplace import LaplaceFit, starting_point
from quorate.samplers.protocol import State
from quorate.samplers.survey import Survey, surveyed
from quorate.samplers.trajectories import Density, Dynamics, Phase, Walk


class Kernel(NamedTuple):
    """An algorithm in two forms: of BlackJAX, and in numpy."""

    compiled: Callable[[Any, Any], Any]  # makes a step of BlackJAX from (jax, blackjax)
    plain: Callable[[Dynamics, Phase, np.random.Generator], Walk]


class Step(NamedTuple):
    """Result of a step: the new point, and how the trajectory went."""

    z: Array
    log_density: Array
    gradient: Array
    draw: Array  # x
    acceptance: float
    is_divergent: bool
    n_gradients: int


@dataclass(frozen=True)
class Stepper:
    """Steps of one algorithm on one target."""

    target: Target
    kernel: Kernel

    def start(self, stream: ChainStream, survey: Survey | None = None) -> State:
        """State of a chain at the mode, with unit masses."""
        fit, known = survey or _surveyed(self.target, stream)
        z = np.zeros(self.target.dim)
        if is_traceable(self.target):
            begin, _ = _compiled(Owner.of(self.target), self.kernel)
            value, gradient = begin(z, fit.mode, fit.lower, arguments_of(self.target))
        else:
            value, gradient = _whitened(self.target, fit.mode, fit.lower)(z)
        value = np.asarray(value)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            raise NotANumberError.at_point(float(value), fit.mode.tolist())
        return {
            "index": np.array(0),
            "z": z,
            "log_density": value,
            "gradient": np.asarray(gradient),
            "mean": fit.mode,
            "lower": fit.lower,
            "step_size": np.array(0.5),
            "inverse_masses": np.ones(self.target.dim),
            "divergences": np.array(0),
            "evaluations": np.array(0),
            **known,
        }

    def step(self, state: State, key: NDArray[np.uint32], step_size: float) -> Step:
        """One step from `state`, with the random numbers of `key`."""
        if not is_traceable(self.target):
            return self._plain_step(state, key, step_size)
        _, step = _compiled(Owner.of(self.target), self.kernel)
        chain = {name: state[name] for name in _CHAIN}
        made = step(key, chain, np.float64(step_size), arguments_of(self.target))
        found, (acceptance, divergent, n_gradients) = made
        z, value, gradient, draw = (np.asarray(part) for part in found)
        return Step(z, value, gradient, draw, float(acceptance), bool(divergent), int(n_gradients))

    def _plain_step(self, state: State, key: NDArray[np.uint32], step_size: float) -> Step:
        mean, lower = state["mean"], state["lower"]
        density = _whitened(self.target, mean, lower)
        dynamics = Dynamics(density, step_size, state["inverse_masses"])
        rng = np.random.Generator(np.random.Philox(key=int(key[0]) + (int(key[1]) << 32)))
        value, normals = float(state["log_density"]), rng.standard_normal(self.target.dim)
        start = dynamics.start(state["z"], value, state["gradient"], normals)
        end, acceptance, is_divergent, n_gradients = self.kernel.plain(dynamics, start, rng)
        found = (end.z, np.asarray(end.log_density), end.gradient, mean + lower @ end.z)
        return Step(*found, acceptance, is_divergent, n_gradients)

    def draw(
        self, state: State, stream: ChainStream, n: int, thin: int, jitter: float = 0.0
    ) -> tuple[Array, State]:
        """The next n draws. Step sizes vary by up to a share of `jitter` either way."""
        index = int(state["index"])
        keys = stream.keys(index * thin, n * thin)
        shifts = 1 + jitter * (2 * (keys[:, 0] / 2.0**32) - 1)
        draws = np.empty((n, self.target.dim))
        for i in range(n * thin):
            made = self.step(state, keys[i], float(state["step_size"]) * float(shifts[i]))
            state = moved(state, made)
            draws[i // thin] = made.draw
        return draws, {**state, "index": np.array(index + n)}


_CHAIN = ("z", "log_density", "gradient", "mean", "lower", "inverse_masses")


def moved(state: State, made: Step) -> State:
    """State after a step, with updated counts."""
    return {
        **state,
        "z": made.z,
        "log_density": made.log_density,
        "gradient": made.gradient,
        "divergences": state["divergences"] + np.array(int(made.is_divergent)),
        "evaluations": state["evaluations"] + np.array(made.n_gradients),
    }


def require_moved(target: Target, state: State) -> None:
    """Raise if no trajectory of warm-up has left the point where it began."""
    require(
        bool(state["z"].any()),
        "No trajectory of warm-up was accepted: the log density is not a number, or 0, around "
        f"{at(state['mean'], target.model.names)}. Check the model around this point.",
    )


def _surveyed(target: Target, stream: ChainStream) -> Survey:
    """The survey of a target; if it has no mode, the model's start with scale 1."""
    try:
        return surveyed(target, stream)
    except ImproperError as error:
        fit = LaplaceFit(starting_point(target)[0], np.eye(target.dim))
        text = f"The chain starts without whitening, because no mode was found: {error}"
        warn(text, WrongShapeWarning)
        return Survey(fit, {"has_mode": np.array(False)})


def _whitened(target: Target, mean: Array, lower: Array) -> Density:
    """Log density of z, where x = mean + lower z, with its gradient.

    The density is 0 where the model raises `BadInputError`, as it may far out on a trajectory.
    """

    def density(z: Array) -> tuple[float, Array]:
        try:
            with np.errstate(all="ignore"):
                value, gradient = target.log_density_and_gradient(mean + lower @ z)
        except BadInputError:
            return -np.inf, np.zeros(target.dim)
        return float(value), gradient @ lower

    return density


@lru_cache(maxsize=64)
def _compiled(owner: Owner, kernel: Kernel) -> tuple[Any, Any]:
    """The log density with its gradient, and a step, compiled once for each shape of the data."""
    jax, blackjax = load_jax()
    density = density_of(owner)
    make_step = kernel.compiled(jax, blackjax)

    def begin(z: Any, mean: Any, lower: Any, arguments: dict[str, Any]) -> Any:
        return jax.value_and_grad(lambda w: density(mean + lower @ w, arguments))(z)

    def step(key: Any, chain: dict[str, Any], step_size: Any, arguments: dict[str, Any]) -> Any:
        mean, lower = chain["mean"], chain["lower"]
        before = blackjax.mcmc.hmc.HMCState(chain["z"], chain["log_density"], chain["gradient"])
        after, info = make_step(
            jax.random.wrap_key_data(key),
            before,
            lambda w: density(mean + lower @ w, arguments),
            step_size,
            chain["inverse_masses"],
        )
        found = (after.position, after.logdensity, after.logdensity_grad)
        draw = mean + lower @ after.position
        how = (info.acceptance_rate, info.is_divergent, info.num_integration_steps)
        return (*found, draw), how

    return jax.jit(begin), jax.jit(step)
