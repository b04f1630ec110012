"""Errors of many runs at once, as somebody who asked at some moment would have found them.

The draws, and which of them had arrived when, are those that the protocol received; here they are
only combined, by the same functions that a single run uses, for all moments and runs together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quorate._types import Array, IntArray
from quorate.lab.error import relative_error, running_second_moments
from quorate.lab.specs import DIM, Curve, Experiment
from quorate.merging.consensus import consensus_weights, merge
from quorate.merging.pairing import every_draw, n_paired
from quorate.numerics.linalg import add_ridge
from quorate.numerics.moments import running_covariances
from quorate.numerics.streams import Streams
from quorate.protocol.ledger import Ledger
from quorate.protocol.scheme import Scheme
from quorate.protocol.schemes.adaptive import AdaptiveCMC
from quorate.protocol.schemes.cmc import CMC
from quorate.protocol.schemes.grouped import GroupedCMC
from quorate.protocol.timeline import Timeline

Run = tuple[Scheme, Timeline]
TIME_GRID = np.round(np.arange(1, 101) * 0.05, 2)


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Errors of every realisation at a number of moments, both (n_realisations, n_moments).

    Moments are the times of the grid (`text`), or T^1, T^2, … (`published`). An error is NaN where
    there is no global draw yet.
    """

    times: Array
    errors: Array

    @classmethod
    def concatenated(cls, parts: Sequence["Trajectories"]) -> "Trajectories":
        """Those of several sets of runs."""
        times, errors = zip(*((part.times, part.errors) for part in parts), strict=True)
        return cls(np.concatenate(times), np.concatenate(errors))


def trajectories(
    runs: Sequence[Run], experiment: Experiment, curve: Curve, expected: Array
) -> Trajectories:
    """Times and errors of runs of one curve."""
    if isinstance(runs[0][0], AdaptiveCMC):
        return _adaptive_trajectories(runs, experiment, expected)
    if experiment.reading.by_index:
        times = np.array([_release_times(run, experiment, curve) for run in runs])
        n_global = np.tile(np.arange(1, times.shape[1] + 1), (len(runs), 1))
    else:
        times = np.tile(TIME_GRID, (len(runs), 1))
        releases = [timeline.release_times for _, timeline in runs]
        n_global = np.array([np.searchsorted(row, TIME_GRID, side="right") for row in releases])
    ledgers = [scheme.ledger for scheme, _ in runs if isinstance(scheme, CMC | GroupedCMC)]
    if not ledgers:
        return Trajectories(times, _coded_errors(runs, n_global, expected))
    if experiment.reading.first_draws_only:
        n_known = np.repeat(n_global[..., None], experiment.figure.n_workers, axis=2)
    else:
        n_known = np.array([_n_received(run, TIME_GRID) for run in runs])
    draws = _received_draws(ledgers)
    return Trajectories(
        times, consensus_errors(draws, n_global, n_known, experiment.cov_ridge, expected)
    )


def consensus_errors(
    draws: Array, n_global: IntArray, n_known: IntArray, cov_ridge: float, expected: Array
) -> Array:
    """Errors of CMC or G-CMC, shape (n_runs, n_moments).

    Parameters
    ----------
    draws
        In order of arrival, shape (n_runs, n, n_shards, d).
    n_global
        How many global draws are asked for, shape (n_runs, n_moments).
    n_known
        From how many of its draws the covariance of each shard is known by then, shape
        (n_runs, n_moments, n_shards).
    """
    covs, _ = running_covariances(np.moveaxis(draws, 1, 2))
    shards = np.arange(draws.shape[2])
    errors = np.full(n_global.shape, np.nan)
    for moment in range(n_global.shape[1]):
        runs = np.flatnonzero(n_global[:, moment])
        if not len(runs):
            continue
        counts = n_global[runs, moment]
        known = covs[runs[:, None], shards, n_known[runs, moment] - 1]
        weights = consensus_weights(add_ridge(known, cov_ridge))
        global_draws = merge(weights, draws[runs, : counts.max()])
        errors[runs, moment] = _errors(global_draws, counts, expected)
    return errors


def every_draw_errors(
    draws: Array, n_known: IntArray, cov_ridge: float, expected: Array, streams: Streams
) -> Array:
    """Errors where every draw is paired, shape (n_runs, n_moments).

    Parameters are those of `consensus_errors`; pairs are made by the randomness of `streams`.
    """
    covs, _ = running_covariances(np.moveaxis(draws, 1, 2))
    shards = np.arange(draws.shape[2])
    errors = np.full(n_known.shape[:2], np.nan)
    for moment in range(n_known.shape[1]):
        runs = np.flatnonzero(n_known[:, moment].min(axis=1))
        if not len(runs):
            continue
        counts = n_known[runs, moment]
        known = covs[runs[:, None], shards, counts - 1]
        weights = consensus_weights(add_ridge(known, cov_ridge))
        which = np.swapaxes(every_draw(counts, streams), 1, 2)
        paired = draws[runs[:, None, None], which, shards]
        errors[runs, moment] = _errors(merge(weights, paired), n_paired(counts), expected)
    return errors


def _errors(global_draws: Array, counts: IntArray, expected: Array) -> Array:
    """Of the first `counts` of the global draws of each run, shape (n_runs,)."""
    global_draws[np.arange(counts.max()) >= counts[:, None]] = 0.0
    sums = np.swapaxes(global_draws, 1, 2) @ global_draws
    return relative_error(sums / counts[:, None, None], expected)


def _adaptive_trajectories(
    runs: Sequence[Run], experiment: Experiment, expected: Array
) -> Trajectories:
    ledgers, n_known = [], []
    for scheme, timeline in runs:
        assert isinstance(scheme, AdaptiveCMC)
        cell_of_block = [shards[0] for shards in timeline.block_shards]
        arrivals = _arrivals(len(scheme.ledger.cells), cell_of_block, timeline)
        n_known.append([np.searchsorted(times, TIME_GRID, side="right") for times in arrivals])
        ledgers.append(scheme.ledger)
    counts = np.swapaxes(np.array(n_known), 1, 2)
    streams = Streams(experiment.seed)
    errors = every_draw_errors(
        _received_draws(ledgers), counts, experiment.cov_ridge, expected, streams
    )
    return Trajectories(np.tile(TIME_GRID, (len(runs), 1)), errors)


def _coded_errors(runs: Sequence[Run], n_global: IntArray, expected: Array) -> Array:
    """A coded draw never changes after its release, so the last look shows all earlier ones."""
    errors = np.full(n_global.shape, np.nan)
    for row, counts, (scheme, _) in zip(errors, n_global, runs, strict=True):
        by_release = relative_error(running_second_moments(scheme.global_draws()), expected)
        row[counts > 0] = by_release[counts[counts > 0] - 1]
    return errors


def _release_times(run: Run, experiment: Experiment, curve: Curve) -> list[float]:
    scheme, timeline = run
    if experiment.reading.quirks and curve.published_adds_last_group:
        assert isinstance(scheme, GroupedCMC)
        *full, last = _arrivals_by_cell(scheme.worker_groups, timeline)
        n = len(timeline.release_times)
        return [float(t) for t in np.max([times[:n] for times in full], axis=0) + last[:n]]
    return timeline.release_times


def _n_received(run: Run, times: Array) -> IntArray:
    """L_k(t) or L_{K_g}(t) for every shard, shape (len(times), n_shards)."""
    scheme, timeline = run
    assert isinstance(scheme, CMC | GroupedCMC)
    members = scheme.ledger.cells  # the shards of a group bear the numbers of its workers
    arrivals = _arrivals_by_cell(members, timeline)
    counts = [np.searchsorted(cell, times, side="right") for cell in arrivals]
    return np.repeat(np.stack(counts, axis=1), [len(cell) for cell in members], axis=1)


def _arrivals_by_cell(cells: Sequence[tuple[int, ...]], timeline: Timeline) -> list[list[float]]:
    cell_of = {worker: cell for cell, workers in enumerate(cells) for worker in workers}
    return _arrivals(len(cells), [cell_of[worker] for worker in timeline.block_workers], timeline)


def _arrivals(n_cells: int, cell_of_block: list[int], timeline: Timeline) -> list[list[float]]:
    arrivals: list[list[float]] = [[] for _ in range(n_cells)]
    for time, cell in zip(timeline.block_times, cell_of_block, strict=True):
        arrivals[cell].append(time)
    return arrivals


def _received_draws(ledgers: Sequence[Ledger]) -> Array:
    """All draws received, zero where a shard has fewer: (n_runs, most received, n_shards, d)."""
    most = max(max(ledger.n_received) for ledger in ledgers)
    n_shards = sum(map(len, ledgers[0].cells))
    draws = np.zeros((len(ledgers), most, n_shards, DIM))
    for received, ledger in zip(draws, ledgers, strict=True):
        for cell, shards in enumerate(ledger.cells):
            n = ledger.n_received[cell]
            received[:n, shards[0] : shards[-1] + 1] = ledger.batches(cell)
    return draws
