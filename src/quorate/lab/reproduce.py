"""Runs an experiment of the paper and averages its curves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from quorate._types import Array, Progress
from quorate.engines.virtual import engine as virtual
from quorate.lab.evaluate import Realisation
from quorate.lab.specs import BAND, DIM, Curve, Experiment
from quorate.models.gaussian import paper_subposteriors
from quorate.numerics.streams import Streams
from quorate.protocol.scheme import Setup

TABLE_TIMES = (0.5, 1.0, 2.0, 3.0, 4.0)
ENOUGH = 0.5  # share of realisations with a draw below which an average is of the lucky only


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Errors of every realisation at a number of moments, both (n_realisations, n_moments).

    Moments are the times of the grid (`text`), or T^1, T^2, … (`published`). An error is NaN where
    there is no global draw yet.
    """

    times: Array
    errors: Array


@dataclass(frozen=True, eq=False)
class AveragedCurve:
    """A curve as it is drawn.

    `times`, `errors`, `band_low`, `band_high` and `share_defined` have one entry for each time of
    the grid (`text`) or for each index l (`published`). Errors are averages over the realisations
    that have a global draw by then, whose share is `share_defined`; NaN where none has.
    """

    curve: Curve
    times: Array
    errors: Array
    band_low: Array
    band_high: Array
    share_defined: Array

    def error_at(self, time: float) -> float:
        """Error at a time, between the points of the curve; NaN outside of it."""
        return self._between(time, self.errors)

    def share_at(self, time: float) -> float:
        """Share of the realisations that have a global draw by then."""
        return self._between(time, self.share_defined)

    def _between(self, time: float, values: Array) -> float:
        known = np.isfinite(self.errors)
        if not known.any():
            return np.nan
        return float(np.interp(time, self.times[known], values[known], left=np.nan, right=np.nan))


def best(curves: list[AveragedCurve], time: float) -> AveragedCurve | None:
    """The curve with the smallest error at a time, of those with a draw in enough realisations."""
    known = [curve for curve in curves if curve.share_at(time) >= ENOUGH]
    return min(known, key=lambda curve: curve.error_at(time), default=None)


def reproduce(
    experiment: Experiment, progress: Progress = lambda done, total: None
) -> list[AveragedCurve]:
    """All curves of an experiment. `progress` gets the runs done, and all."""
    curves = experiment.figure.curves
    total = len(curves) * experiment.realisations

    def curve_progress(i: int) -> Callable[[int], None]:
        return lambda done: progress(i * experiment.realisations + done, total)

    return [
        average(curve, curve_trajectories(experiment, curve, curve_progress(i)))
        for i, curve in enumerate(curves)
    ]


def reproduce_all(
    experiments: Sequence[Experiment], progress: Progress
) -> list[list[AveragedCurve]]:
    """All curves of several experiments. `progress` gets the curves done, and all."""
    total = sum(len(spec.figure.curves) for spec in experiments)
    results: list[list[AveragedCurve]] = []
    for spec in experiments:
        results.append(reproduce(spec))
        progress(sum(map(len, results)), total)
    return results


def curve_trajectories(
    experiment: Experiment, curve: Curve, progress: Callable[[int], None] = lambda done: None
) -> Trajectories:
    """Times and errors of every realisation of one curve."""
    reading, seed = experiment.reading, experiment.seed
    subposteriors = paper_subposteriors(experiment.figure.n_workers, DIM)
    expected = subposteriors.posterior_second_moment()
    setup = Setup(experiment.figure.n_workers, DIM, reading.n_draws, seed=seed)
    options, latency = experiment.options(curve), reading.latency(curve)
    paths = []
    for z in range(experiment.realisations):
        cluster = virtual.Cluster(latency, subposteriors, Streams(seed, z))
        run = Realisation(options, setup, cluster, reading.horizon)
        paths.append(run.trajectory(reading, curve, expected))
        progress(z + 1)
    times, errors = zip(*paths, strict=True)
    return Trajectories(np.array(times), np.array(errors))


def average(curve: Curve, paths: Trajectories) -> AveragedCurve:
    """Over realisations, at each moment."""
    errors = paths.errors
    defined = np.isfinite(errors)
    n_defined = np.maximum(defined.sum(axis=0), 1)
    mean = np.where(defined, errors, 0.0).sum(axis=0) / n_defined
    spread = np.where(defined, (errors - mean) ** 2, 0.0).sum(axis=0) / np.maximum(n_defined - 1, 1)
    mean = np.where(defined.any(axis=0), mean, np.nan)
    half = BAND * np.sqrt(spread)
    times, shares = paths.times.mean(axis=0), defined.mean(axis=0)
    return AveragedCurve(curve, times, mean, mean - half, mean + half, shares)
