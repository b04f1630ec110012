"""Means and covariances of subposteriors by importance sampling, in warm-up.

Early in a run, weights depend on the curvature at the mode. For a subposterior far from Gaussian it
misleads, and with heavy tails it takes many draws to correct it. So warm-up first *probes* the log
density four standard deviations from the mode, either way along every coordinate. A Gaussian has
fallen by 8 there. If all probes are close to that, one round of points around the mode finds the
mean, and the curvature is kept. If some are too high, their *ridges* are followed outwards in
doubling steps, with the other coordinates at their best. Then points are drawn from Student-t
distributions around mode and ridges, and in further rounds around the moments found so far. All
points count in all rounds, weighted by the mixture (Cornuet, Marin, Mira & Robert 2012).

The points are Sobol's, evenly spread, so a few find a mean as accurate as that of many draws. Their
digits are shifted at random (L'Ecuyer & Lemieux 2002), which makes errors of shards independent.
The result depends only on the target, the seed and the shard, and is rounded like a chain's base.
"""

from dataclasses import dataclass

import numpy as np

from quorate._types import Array
from quorate.merging.weights import shrink_to_fit
from quorate.models.subposterior import Target
from quorate.numerics.importance import StudentMixture, Weighted, student_points
from quorate.numerics.streams import ChainStream, Purpose
from quorate.samplers.base import Base
from quorate.samplers.differences import (
    Density,
    checked_density,
    forgiving,
    forgiving_gradient,
    gradient_of,
)
from quorate.samplers.laplace import LaplaceFit
from quorate.samplers.protocol import State
from quorate.samplers.sobol import shifted_points

_REACH = 4.0  # standard deviations from the mode to a probe…
_GAUSSIAN = (-13.0, -5.5)  # …and changes of the log density that count as Gaussian: of log Γ(10)
_FALLEN = -12.0  # change of the log density at which a ridge ends
_MOST_RIDGES, _MOST_POINTS = 4, 8
_CLIMBS = 3  # ascent steps back to a ridge
_RISE = 0.1  # least rise of the log density per ascent step, far above rounding errors
_ROUNDS, _MOST_ROUNDS, _POINTS = 4, 16, 512
_RIDGED = 2  # rounds that spend half their points on ridges
_ENOUGH = 300.0  # effective points, for Gaussian tails, that end the rounds
_DEGREES, _WIDTH = 3.0, 1.2  # of the Student-t: its degrees of freedom and relative width
_WORTH = 8.0  # random points per effective point, for covariances; measured
_WORTH_FOR_MEANS = 2.0  # random points per effective point, for means; measured, and cautious
_LEAST = 5  # effective points per dimension below which the result is not used
_MOST_DIMENSIONS = 16  # above it too few points are effective
_GRID = 2.0**-12  # of ridge points in standard deviations, and of the noise


def refined(target: Target, base: Base, stream: ChainStream) -> State:
    """Entries `fit_mean` and `fit_worth` for a state; empty if too few points were effective.

    Unless the curvature is kept, also `fit_lower`, a factor of the covariance, and `fit_noise`.
    """
    if target.dim > _MOST_DIMENSIONS:
        return {}
    density = forgiving(checked_density(target))
    ridges = _Ridges(target, density, base)
    rounds = _student_points(stream, target.dim)[: 1 if ridges.are_gaussian else None]
    found = _importance(density, base, ridges.points(), rounds)
    if not _has_learnt(found):
        return {}
    worth = np.array(_WORTH_FOR_MEANS * round(found.ess))
    if ridges.are_gaussian:
        rounded = Base.around(LaplaceFit(found.mean(found.points), base.lower))
        return {"fit_mean": rounded.mean, "fit_worth": worth}
    mean, lower = found.mean(found.points), _lower(_shrunk(found, base))
    rounded = Base.around(LaplaceFit(mean, lower))
    return {
        "fit_mean": rounded.mean,
        "fit_worth": worth,
        "fit_lower": rounded.lower,
        "fit_noise": np.array(max(round(_noise(found) / _GRID) * _GRID, 1.0)),
    }


class _Ridges:
    """Ridges: where the density stays high along one coordinate, the others at their best."""

    def __init__(self, target: Target, density: Density, base: Base) -> None:
        self._density, self._mode, self._cov = density, base.mean, base.covariance
        self._sds = np.sqrt(np.diag(self._cov))
        self._slope = forgiving_gradient(gradient_of(target, density, self._sds))
        self._top = density(base.mean)
        steps = _REACH * self._cov / self._sds
        probes = [
            (j, base.mean + sign * steps[:, j]) for j in range(target.dim) for sign in (-1, 1)
        ]
        self._probes = [(self._fall(x), j, x) for j, x in probes]

    @property
    def are_gaussian(self) -> bool:
        """Whether the density at every probe has fallen as a Gaussian's."""
        low, high = _GAUSSIAN
        return all(low < value < high for value, _, _ in self._probes)

    def points(self) -> list[tuple[Array, Array]]:
        """Points of the highest ridges, each with the step from the point before."""
        high = [probe for probe in self._probes if probe[0] > _GAUSSIAN[1]]
        highest = sorted(high, key=lambda probe: -round(probe[0], 6))[:_MOST_RIDGES]
        return [point for _, j, x in highest for point in self._followed(j, x)]

    def _followed(self, j: int, x: Array) -> list[tuple[Array, Array]]:
        found: list[tuple[Array, Array]] = []
        before = self._mode
        while len(found) < _MOST_POINTS:
            x = self._climbed(j, x)
            if self._fall(x) < _FALLEN:
                break
            found.append((x, x - before))
            before, x = x, x.copy()
            x[j] += x[j] - self._mode[j]
        return found

    def _climbed(self, j: int, x: Array) -> Array:
        """x after ascent along all coordinates but the j-th, rounded to a grid."""
        column = self._cov[:, j]
        given = self._cov - np.outer(column, column) / column[j]
        value = self._fall(x)
        for _ in range(_CLIMBS):
            step = given @ self._slope(x)
            step[j] = 0.0
            tries = [x + share * step for share in (1.0, 0.5, 0.25)]
            higher = ((y, found) for y in tries if (found := self._fall(y)) > value + _RISE)
            place = next(higher, None)
            if place is None:
                break
            x, value = place
        grid = _GRID * 2.0 ** np.ceil(np.log2(self._sds))
        return np.asarray(np.round(x / grid) * grid)

    def _fall(self, x: Array) -> float:
        return self._density(x) - self._top


def _has_learnt(found: Weighted) -> bool:
    """Whether enough points are effective for the moments to be used."""
    return found.ess >= _LEAST * len(found.points[0])


def _wants_more(found: Weighted) -> bool:
    """Whether more points are likely to improve the moments much."""
    return _has_learnt(found) and found.ess < _ENOUGH * _noise(found)


def _shrunk(found: Weighted, base: Base) -> Array:
    """Covariance of the points, shrunk towards the base's by what may be noise."""
    return shrink_to_fit(found.covariance, found.ess, base.covariance, _WORTH)


def _noise(found: Weighted) -> float:
    """`noise` of `quorate.merging.fit.Fit`, from E[|z|² z zᵀ], which is (d + 2) I for N(0, I)."""
    gaps = found.points - found.mean(found.points)
    z = np.linalg.solve(_lower(found.covariance), gaps.T)
    fourth = (z * (found.weights * np.sum(z**2, axis=0))) @ z.T
    return float(np.linalg.eigvalsh(fourth)[-1] - len(z)) / 2


def _importance(
    density: Density, base: Base, ridge: list[tuple[Array, Array]], rounds: Array
) -> Weighted:
    """Weighted points of all rounds. Heavy tails get more rounds."""
    mean, lower = base.mean, base.lower
    parts: list[_Part] = []
    for i, z in enumerate(rounds):
        centres = [(mean, lower)]
        if i < _RIDGED:
            inner = base.covariance
            centres += [(x, _lower(inner + np.outer(s, s))) for x, s in ridge]
        shares = np.array([1.0] + [1 / len(ridge) for _ in centres[1:]])
        ends = np.round(np.cumsum(shares) / shares.sum() * len(z)).astype(int)[:-1]
        for (place, scale), own in zip(centres, np.split(z, ends), strict=True):
            parts.append(_Part.around(place, _WIDTH * scale, own, density))
        found = _together(parts)
        if i + 1 >= _ROUNDS and not _wants_more(found):
            break
        mean, lower = found.mean(found.points), _lower(_shrunk(found, base))
    return found


@dataclass(frozen=True)
class _Part:
    """Points from one Student-t distribution, with their log densities."""

    mean: Array
    lower: Array
    points: Array
    values: Array

    @classmethod
    def around(cls, mean: Array, lower: Array, z: Array, density: Density) -> "_Part":
        points = mean + np.concatenate([z, -z]) @ lower.T
        return cls(mean, lower, points, np.array([density(x) for x in points]))


def _together(parts: list[_Part]) -> Weighted:
    points = np.concatenate([part.points for part in parts])
    values = np.concatenate([part.values for part in parts])
    mixture = StudentMixture(
        _DEGREES,
        np.array([len(part.points) for part in parts]),
        np.stack([part.mean for part in parts]),
        np.stack([part.lower for part in parts]),
    )
    return Weighted.of(points, values - mixture.log_density(points))


def _lower(cov: Array) -> Array:
    return np.asarray(np.linalg.cholesky(cov), dtype=np.float64)


def _student_points(stream: ChainStream, dim: int) -> Array:
    """Standard Student-t points (_MOST_ROUNDS, _POINTS / 2, dim), without their reflections.

    All chains of a shard have the same points.
    """
    shift = stream.streams.uniforms(Purpose.FITS, [(stream.shard, 0)], 0, 1, dim + 1)[0, 0]
    uniforms = shifted_points(_MOST_ROUNDS * _POINTS // 2, shift)
    z = student_points(uniforms[:, :dim], uniforms[:, dim], _DEGREES)
    return z.reshape(_MOST_ROUNDS, -1, dim)
