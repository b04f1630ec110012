"""Errors of many runs at once, as they stood at every release.

The draws, and which of them had arrived at T^l, are those that the protocol received; here they are
only combined, by the same functions that a single run uses, for all l and all runs together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quorate._types import Array
from quorate.combine.consensus import consensus_weights, merge
from quorate.diagnostics import relative_error, running_second_moments, second_moment
from quorate.engines.virtual import Timeline
from quorate.experiments.specs import DIM, Curve, Experiment
from quorate.ledger import Ledger
from quorate.linalg import add_ridge
from quorate.moments import running_covariances
from quorate.scheme import Scheme
from quorate.schemes.cmc import CMC
from quorate.schemes.grouped import GroupedCMC


@dataclass(frozen=True)
class Trajectories:
    """`times[z, l]` is T^(l+1) of realisation z, infinity if never; `errors[z, l]` the error then,
    NaN if never. Both (n_realisations, n_releases).
    """

    times: Array
    errors: Array

    @classmethod
    def concatenated(cls, parts: Sequence["Trajectories"]) -> "Trajectories":
        """Those of several sets of runs, as long as the longest."""
        n = max(part.times.shape[1] for part in parts)
        times = [_padded(part.times, n, np.inf) for part in parts]
        return cls(
            np.concatenate(times),
            np.concatenate([_padded(part.errors, n, np.nan) for part in parts]),
        )

    def errors_at(self, grid: Array) -> Array:
        """err(t) of eq. (3) at fixed times, shape (n_realisations, len(grid)); NaN if L(t) = 0."""
        n_global = np.array([np.searchsorted(row, grid, side="right") for row in self.times])
        errors = np.concatenate([np.full((len(self.errors), 1), np.nan), self.errors], axis=1)
        return np.take_along_axis(errors, n_global, axis=1)


def trajectories(
    runs: Sequence[tuple[Scheme, Timeline]], experiment: Experiment, curve: Curve, expected: Array
) -> Trajectories:
    """Times and errors of runs of one curve."""
    adds_last = experiment.reading.quirks and curve.published_adds_last_group
    times = [
        _times_with_last_group_added(scheme, timeline) if adds_last else timeline.release_times
        for scheme, timeline in runs
    ]
    n = max(map(len, times))
    errors = _errors([scheme for scheme, _ in runs], n, experiment, expected)
    return Trajectories(_stacked(times, n, np.inf), errors)


def _errors(schemes: Sequence[Scheme], n: int, experiment: Experiment, expected: Array) -> Array:
    ledgers = [scheme.ledger for scheme in schemes if isinstance(scheme, CMC | GroupedCMC)]
    if ledgers:
        first_only = experiment.reading.first_draws_only
        return consensus_errors(ledgers, n, experiment.cov_ridge, first_only, expected)
    errors = [_coded_errors(scheme, expected) for scheme in schemes]
    return _stacked(errors, n, np.nan)


def _coded_errors(scheme: Scheme, expected: Array) -> Array:
    """A coded draw never changes after its release, so the last look shows all earlier ones."""
    return relative_error(running_second_moments(scheme.global_draws()), expected)


def consensus_errors(
    ledgers: Sequence[Ledger], n: int, cov_ridge: float, first_only: bool, expected: Array
) -> Array:
    """Errors of CMC or G-CMC at each of `n` releases, shape (n_runs, n).

    At T^l all l draws are combined anew, with covariances of the draws received by then, or of the
    first l only.
    """
    errors = np.full((len(ledgers), n), np.nan)
    if not n:
        return errors
    draws = _received_draws(ledgers)
    covs, _ = running_covariances(np.moveaxis(draws, 1, 2))
    for release in range(n):
        runs = np.array([z for z, ledger in enumerate(ledgers) if ledger.n_complete > release])
        counts = np.array([_n_known(ledgers[z], release, first_only) for z in runs])
        known = covs[runs[:, None], np.arange(counts.shape[1]), counts - 1]
        weights = consensus_weights(add_ridge(known, cov_ridge))
        global_draws = merge(weights, draws[runs, : release + 1])
        errors[runs, release] = relative_error(second_moment(global_draws), expected)
    return errors


def _n_known(ledger: Ledger, release: int, first_only: bool) -> list[int]:
    """How many draws of each shard a covariance knows."""
    received = zip(ledger.cells, ledger.received_at_release[release], strict=True)
    return [release + 1 if first_only else n for cell, n in received for _ in cell]


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


def _times_with_last_group_added(scheme: Scheme, timeline: Timeline) -> list[float]:
    """As the scripts time G-CMC in Fig. 3: the largest of the full groups' plus the last one's."""
    assert isinstance(scheme, GroupedCMC)
    arrivals: list[list[float]] = [[] for _ in scheme.worker_groups]
    for time, worker in zip(timeline.block_times, timeline.block_workers, strict=True):
        arrivals[scheme.group_of(worker)].append(time)
    *full, last = [times[: len(timeline.release_times)] for times in arrivals]
    return [float(time) for time in np.max(full, axis=0) + last]


def _stacked(rows: Sequence[Sequence[float] | Array], n: int, fill: float) -> Array:
    stacked = np.full((len(rows), n), fill)
    for row, values in zip(stacked, rows, strict=True):
        row[: len(values)] = values
    return stacked


def _padded(rows: Array, n: int, fill: float) -> Array:
    return _stacked(list(rows), n, fill)
