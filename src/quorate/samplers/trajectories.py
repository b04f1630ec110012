"""Hamiltonian trajectories in plain numpy, for gradients that JAX cannot compile.

`nuts` is the No-U-Turn sampler in its multinomial form (Betancourt 2017, appendix A). It doubles a
trajectory, forwards or backwards in time, until it turns back on itself. Like Stan and BlackJAX it
prefers the newer half, and stops at a depth of 10 or if the energy is off by 1,000.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, isfinite, log1p
from typing import NamedTuple

import numpy as np

from quorate._types import Array

Density = Callable[[Array], tuple[float, Array]]  # the log density at z, with its gradient

_MAX_DEPTH = 10
_DIVERGENT = 1000.0  # error of the energy that makes a trajectory divergent


class Phase(NamedTuple):
    """A point of a trajectory: position and momentum, with the log density and its gradient."""

    z: Array
    momentum: Array
    log_density: float
    gradient: Array


class Walk(NamedTuple):
    """Result of a trajectory: the chosen point, and how it went."""

    end: Phase
    acceptance: float
    is_divergent: bool
    n_gradients: int


@dataclass(frozen=True)
class Dynamics:
    """Leapfrog steps and energies of a trajectory."""

    density: Density
    step_size: float
    inverse_masses: Array

    def start(self, z: Array, log_density: float, gradient: Array, normals: Array) -> Phase:
        """The first point, at z, with a momentum from standard normals."""
        return Phase(z, normals / np.sqrt(self.inverse_masses), log_density, gradient)

    def after(self, at: Phase, step_size: float) -> Phase:
        """The point after one leapfrog step, backwards if `step_size` is negative."""
        momentum = at.momentum + 0.5 * step_size * at.gradient
        z = at.z + step_size * self.inverse_masses * momentum
        log_density, gradient = self.density(z)
        return Phase(z, momentum + 0.5 * step_size * gradient, log_density, gradient)

    def energy(self, at: Phase) -> float:
        """Kinetic plus potential energy; infinity if it is not a number."""
        kinetic = 0.5 * float(at.momentum @ (self.inverse_masses * at.momentum))
        energy = kinetic - at.log_density
        return energy if isfinite(energy) else inf

    def turns(self, first: Phase, last: Phase, momentum_sum: Array) -> bool:
        """Whether a trajectory with these ends turns back."""
        way = self.inverse_masses * momentum_sum
        return float(first.momentum @ way) <= 0 or float(last.momentum @ way) <= 0


def hmc(dynamics: Dynamics, start: Phase, rng: np.random.Generator, n_leapfrog: int) -> Walk:
    """A trajectory of `n_leapfrog` steps, whose end is accepted or rejected."""
    end, gain, n_gradients = start, 0.0, 0
    while n_gradients < n_leapfrog and gain < inf:
        end, n_gradients = dynamics.after(end, dynamics.step_size), n_gradients + 1
        gain = dynamics.energy(end) - dynamics.energy(start)
    acceptance = exp(-max(gain, 0.0))
    accepted = rng.random() < acceptance
    return Walk(end if accepted else start, acceptance, gain > _DIVERGENT, n_gradients)


def nuts(dynamics: Dynamics, start: Phase, rng: np.random.Generator) -> Walk:
    """A trajectory that is doubled until it turns back."""
    grow = _Growth(dynamics, dynamics.energy(start), rng)
    tree = _Tree(start, start, start, 0.0, start.momentum)
    acceptance, n_gradients = 0.0, 0
    for depth in range(_MAX_DEPTH):
        forwards = rng.random() < 0.5
        more = grow.from_end_of(tree, forwards, depth)
        acceptance, n_gradients = acceptance + more.acceptance, n_gradients + more.n_gradients
        if more.is_over:
            return Walk(tree.chosen, acceptance / n_gradients, more.is_divergent, n_gradients)
        newer = more.log_weight - tree.log_weight
        tree = grow.joined(tree, more, forwards, exp(min(newer, 0.0)))
        if tree.is_over:
            break
    return Walk(tree.chosen, acceptance / n_gradients, False, n_gradients)


class _Tree(NamedTuple):
    """A part of a trajectory, and the point chosen from it by its weight, exp(-energy)."""

    first: Phase  # in time
    last: Phase
    chosen: Phase
    log_weight: float
    momentum_sum: Array
    acceptance: float = 0.0  # summed over the points that were added
    n_gradients: int = 0
    is_over: bool = False  # whether it, or a part of it, turns back or diverges
    is_divergent: bool = False


@dataclass(frozen=True)
class _Growth:
    """Growth of a trajectory that began with this energy."""

    dynamics: Dynamics
    energy: float
    rng: np.random.Generator

    def from_end_of(self, tree: _Tree, forwards: bool, depth: int) -> _Tree:
        """The next 2^depth points, or fewer if they turn back or diverge."""
        if depth == 0:
            return self._point(tree.last if forwards else tree.first, forwards)
        one = self.from_end_of(tree, forwards, depth - 1)
        if one.is_over:
            return one
        other = self.from_end_of(one, forwards, depth - 1)
        share = exp(other.log_weight - _log_sum(one.log_weight, other.log_weight))
        return self.joined(one, other, forwards, share)

    def _point(self, at: Phase, forwards: bool) -> _Tree:
        size = self.dynamics.step_size
        phase = self.dynamics.after(at, size if forwards else -size)
        gain = self.dynamics.energy(phase) - self.energy
        diverges = gain > _DIVERGENT
        acceptance = exp(-max(gain, 0.0))
        return _Tree(phase, phase, phase, -gain, phase.momentum, acceptance, 1, diverges, diverges)

    def joined(self, one: _Tree, other: _Tree, forwards: bool, chance: float) -> _Tree:
        """Join two parts; the chosen point is that of `other` with this chance."""
        earlier, later = (one, other) if forwards else (other, one)
        return _Tree(
            earlier.first,
            later.last,
            other.chosen if self.rng.random() < chance else one.chosen,
            _log_sum(one.log_weight, other.log_weight),
            one.momentum_sum + other.momentum_sum,
            one.acceptance + other.acceptance,
            one.n_gradients + other.n_gradients,
            other.is_over or self._turn(earlier, later),
            other.is_divergent,
        )

    def _turn(self, earlier: _Tree, later: _Tree) -> bool:
        """Whether both together turn back, or either with the next point of the other.

        Without the latter, a full turn would look like no turn.
        """
        turns = self.dynamics.turns
        ahead, behind = later.first, earlier.last
        return (
            turns(earlier.first, later.last, earlier.momentum_sum + later.momentum_sum)
            or turns(earlier.first, ahead, earlier.momentum_sum + ahead.momentum)
            or turns(behind, later.last, behind.momentum + later.momentum_sum)
        )


def _log_sum(one: float, other: float) -> float:
    """log(exp one + exp other), not both -inf; ten times as fast as numpy for one number."""
    return max(one, other) + log1p(exp(-abs(one - other)))
