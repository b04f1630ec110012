"""Generalised elliptical slice sampling (Nishihara, Murray & Adams 2014), the default sampler.

The target is a multivariate Student-t base times a remainder. Given the current point, the base is
a Gaussian with a random scale (their Algorithm 2). Elliptical slice sampling (Murray, Adams &
MacKay 2010) then moves along an ellipse through the current point and accepts by the remainder
alone. It is exact for any base, needs no tuning, and uses log densities only. With the base at the
Laplace fit of a shard of typical size, nearly every first proposal is accepted. If the curvature at
the mode misleads, the base has the moments that `refinement` finds.

A draw depends on the log density only through comparisons, and on nothing else that machines round
differently (see `base`). So chains agree bit for bit across thread counts and CPUs.
"""

from dataclasses import dataclass
from math import cos, fsum, inf, log1p, pi, sin, sqrt

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaincinv, ndtri

from quorate._types import Array
from quorate.errors import require
from quorate.models.subposterior import Target
from quorate.numerics.ess import bulk_ess
from quorate.numerics.streams import ChainStream
from quorate.samplers.base import Base, snapped
from quorate.samplers.differences import Density, checked_density, wary
from quorate.samplers.efficiency import Efficiency
from quorate.samplers.laplace import LaplaceFit
from quorate.samplers.protocol import Determinism, State
from quorate.samplers.survey import Survey, surveyed

_ANGLES = 13  # uniforms for angles in the row of a step; more are generated when needed
_NARROW = 1e-12  # width of a bracket that holds only the current point
_SETTLING, _PILOT = 50, 200  # steps of warm-up: to leave the mode, and to judge the shape
_SECOND_LOOK = 800  # extra steps if the pilot looks poor, because its ESS is noisy
_STUCK = 0.05  # effective draws per draw of a pilot below which the base is moved
_WORTH_IT = 1.5  # factor by which a move of the base must raise the ESS to try another
_SURELY = 4.0  # standard errors by which a mean must be off for the base to move there


@dataclass(frozen=True)
class EllipseSampler:
    """Generalised elliptical slice sampler.

    Parameters
    ----------
    thin
        Steps per draw.
    degrees
        Degrees of freedom of the base. Small values allow for heavy tails of the target.
    warns
        Whether warm-up warns of a target whose shape does not suit this sampler.
    moves
        How often, at most, the base follows a pilot that mixes badly.
    """

    thin: int = 1
    degrees: float = 5.0
    warns: bool = True
    moves: int = 3

    name = "ellipse"
    determinism: Determinism = "exact"

    def __post_init__(self) -> None:
        require(self.thin >= 1, f"thin must be at least 1, not {self.thin!r}.")
        is_valid = 0 < self.degrees < inf
        require(is_valid, f"degrees must be a number above 0, such as 5, not {self.degrees!r}.")

    def warm_up(self, target: Target, stream: ChainStream, survey: Survey | None = None) -> State:
        fit, known = survey or surveyed(target, stream)
        at_mode = Base.around(fit)
        base = Base(known["fit_mean"], known["fit_lower"]) if "fit_lower" in known else at_mode
        pilot, state, found = self._pilot(target, base, at_mode.mean, stream, 0)
        before = 0.0
        for _ in range(self.moves if found.ess_per_draw < _STUCK else 0):
            if not found.is_poor or found.ess_per_draw < _WORTH_IT * before:
                break
            base, before = _moved(base, pilot), found.ess_per_draw
            index = int(state["index"])
            pilot, state, found = self._pilot(target, base, base.mean, stream, index)
        if self.warns:
            found.warn_if_poor(self.name, "Use sampler='auto' or 'nuts', or raise `thin`.")
        return {
            **state,
            **known,
            "index": np.array(0),
            "evaluations": np.array(0),
            "pilot_evaluations_per_draw": np.array(found.evaluations_per_draw),
            "pilot_ess_per_draw": np.array(found.ess_per_draw),
        }

    def _pilot(
        self, target: Target, base: Base, start: Array, stream: ChainStream, index: int
    ) -> tuple[Array, State, Efficiency]:
        """Draws of a short chain from about `start`, its state after them, and its efficiency.

        A pilot that looks poor runs longer; the returned state does not depend on that.
        """
        one_by_one, stream = EllipseSampler(1, self.degrees), stream.for_warm_up()
        z = snapped(solve_triangular(base.lower, start - base.mean, lower=True))
        before = {
            "index": np.array(index),
            "z": z,
            "log_density": np.array(checked_density(target)(base.point(z))),
            "mean": base.mean,
            "lower": base.lower,
            "evaluations": np.array(1),
        }
        _, settled = one_by_one.draw(target, before, stream, _SETTLING)
        pilot, state = one_by_one.draw(target, settled, stream, _PILOT)
        found, last = efficiency(pilot, settled, state), state
        if found.is_poor:
            more, last = one_by_one.draw(target, state, stream, _SECOND_LOOK)
            pilot = np.concatenate([pilot, more])
            found = efficiency(pilot, settled, last)
        return pilot, {**state, "index": last["index"]}, found

    def draw(
        self, target: Target, state: State, stream: ChainStream, n: int
    ) -> tuple[Array, State]:
        index = int(state["index"])
        base = Base(state["mean"], state["lower"])
        walk = _Walk(base, wary(checked_density(target)), self.degrees, stream)
        numbers = _Numbers.of(stream, index * self.thin, n * self.thin, target.dim, self.degrees)
        z, value, evaluations = state["z"], float(state["log_density"]), int(state["evaluations"])
        draws = np.empty((n, target.dim))
        for step in range(n * self.thin):
            z, value, tries = walk.step(z, value, numbers, step)
            evaluations += tries
            if (step + 1) % self.thin == 0:
                draws[step // self.thin] = walk.base.point(z)
        after = {"z": z, "log_density": np.array(value), "evaluations": np.array(evaluations)}
        return draws, {**state, **after, "index": np.array(index + n)}


def _moved(base: Base, pilot: Array) -> Base:
    """The base moved to a pilot's mean, where that is surely different, and given its width.

    In many dimensions most of the mass is far from the mode.
    """
    later = pilot[len(pilot) // 2 :]
    z = solve_triangular(base.lower, (later - base.mean).T, lower=True).T
    mean, sd = z.mean(axis=0), z.std(axis=0)
    error = sd / np.sqrt(np.clip(np.nan_to_num(bulk_ess(z[None])), 4, len(z)))
    shift = np.where(np.abs(mean) > _SURELY * error, mean, 0.0)
    width = np.sqrt(np.mean(sd**2)) or 1.0
    return Base.around(LaplaceFit(base.mean + base.lower @ shift, base.lower * width))


def efficiency(draws: Array, before: State, after: State) -> Efficiency:
    """Efficiency of a block, from its draws and the states before and after it."""
    return Efficiency.of(draws, int(after["evaluations"] - before["evaluations"]))


@dataclass(frozen=True)
class _Numbers:
    """The random numbers of consecutive steps, one row each."""

    first: int
    normals: Array  # (n, d)
    gammas: Array  # (n,), of shape (degrees + d) / 2
    heights: Array  # (n,), logarithms of uniforms
    angles: Array  # (n, _ANGLES), uniforms

    @classmethod
    def of(cls, stream: ChainStream, first: int, n: int, dim: int, degrees: float) -> "_Numbers":
        uniforms = stream.uniforms(first, n, dim + 2 + _ANGLES)
        gammas = np.asarray(gammaincinv((degrees + dim) / 2, uniforms[:, dim]), dtype=np.float64)
        heights = np.log(uniforms[:, dim + 1])
        return cls(first, ndtri(uniforms[:, :dim]), gammas, heights, uniforms[:, dim + 2 :])


@dataclass(frozen=True)
class _Walk:
    """Steps of one chain on one target."""

    base: Base
    density: Density
    degrees: float
    stream: ChainStream

    def step(self, z: Array, value: float, numbers: _Numbers, row: int) -> tuple[Array, float, int]:
        """The next z, the log density there, and the number of evaluations."""
        square = fsum((z * z).tolist())
        scale = sqrt((self.degrees + square) / (2 * float(numbers.gammas[row])))
        other = snapped(scale * numbers.normals[row])
        height = value - self._log_base(square) + float(numbers.heights[row])
        low, high = -inf, inf
        for tries in range(1, 10**6):
            share = self._share(numbers, row, tries - 1)
            angle = 2 * pi * share if high == inf else low + (high - low) * share
            if high == inf:
                low, high = angle - 2 * pi, angle
            if high - low < _NARROW:
                break
            proposal = snapped(cos(angle) * z + sin(angle) * other)
            found = self.density(self.base.point(proposal))
            if found - self._log_base(fsum((proposal * proposal).tolist())) > height:
                return proposal, found, tries
            low, high = (angle, high) if angle < 0 else (low, angle)
        return z, value, tries

    def _log_base(self, square: float) -> float:
        """Log density of the base at |z|² = `square`, up to a constant."""
        return -(self.degrees + len(self.base.mean)) / 2 * log1p(square / self.degrees)

    def _share(self, numbers: _Numbers, row: int, i: int) -> float:
        """The i-th uniform for the angles of a step."""
        if i < _ANGLES:
            return float(numbers.angles[row, i])
        page, place = divmod(i - _ANGLES, 32)
        return float(self.stream.more_uniforms(numbers.first + row, page, 32)[place])
