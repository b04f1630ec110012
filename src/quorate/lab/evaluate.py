"""Errors of a run at many moments, as somebody who asked at each moment would have found them.

The global draws are the scheme's own: its short cut computes those of all moments at once, or the
blocks of the run are replayed to a new run of the scheme, moment by moment.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from quorate._types import Array, BoolArray
from quorate.engines.virtual import engine as virtual
from quorate.errors import SingularCovarianceError
from quorate.lab.error import relative_error
from quorate.lab.specs import Curve, Reading
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.messages import Block
from quorate.protocol.scheme import Looks, Scheme, SchemeOptions, Setup
from quorate.protocol.timeline import Timeline

TIME_GRID = np.round(np.arange(1, 101) * 0.05, 2)


@dataclass(frozen=True)
class Realisation:
    """A run in virtual time that can be repeated, until time `horizon`."""

    options: SchemeOptions
    setup: Setup
    cluster: virtual.Cluster
    horizon: float

    def start(self) -> Scheme:
        """The scheme of the run, with nothing received yet."""
        return self.options.start(self.setup)

    def run(self, *, keep_blocks: bool = False) -> tuple[Scheme, Timeline]:
        """Run the scheme from the beginning; the result is the same each time."""
        scheme = self.start()
        coordinator = Coordinator(scheme, self.setup.n_draws)
        timeline = virtual.run(coordinator, self.cluster, self.horizon, keep_blocks=keep_blocks)
        return scheme, timeline

    def trajectory(self, reading: Reading, curve: Curve, expected: Array) -> tuple[Array, Array]:
        """Times at which somebody looks, and the errors found then, both (n_moments,)."""
        scheme, timeline = self.run()
        times, blocks = moments(timeline, reading)
        looks = scheme.received.looks(blocks)
        found = errors(self.replay(blocks) if looks is None else looks, expected)
        if reading.quirks and curve.published_adds_last_group:
            times = _last_group_added(timeline)
        return times, found

    def replay(self, blocks: BoolArray) -> Looks:
        """Global draws of a new run of the scheme, given the blocks of each moment in turn."""
        return replayed(self.start(), self.run(keep_blocks=True)[1].blocks, blocks)


def moments(timeline: Timeline, reading: Reading) -> tuple[Array, BoolArray]:
    """When somebody looks, and at which blocks: shapes (n_moments,), (n_moments, n_blocks)."""
    times = np.array(timeline.release_times) if reading.by_index else TIME_GRID
    if not reading.first_draws_only:
        return times, np.array(timeline.block_times) <= times[:, None]
    counters: dict[tuple[int, ...], count[int]] = defaultdict(count)
    ranks = np.fromiter(map(next, map(counters.__getitem__, timeline.block_shards)), np.int64)
    return times, ranks <= np.arange(len(times))[:, None]


def replayed(scheme: Scheme, received: Sequence[Block], blocks: BoolArray) -> Looks:
    """Global draws of a new `scheme` that is given the blocks of each moment in turn.

    Blocks that are there at a moment must be there at all later ones. As long as weights cannot be
    computed, there are no draws.
    """
    seen = []
    for new in np.diff(blocks, axis=0, prepend=False):
        for i in np.flatnonzero(new).tolist():
            scheme.receive(received[i])
        try:
            seen.append(scheme.received.global_draws())
        except SingularCovarianceError:
            seen.append(np.empty((0, 0)))
    n_most, dim = np.max([draws.shape for draws in seen], axis=0)
    padded = np.zeros((len(seen), n_most, dim))
    for draws, row in zip(seen, padded, strict=True):
        row[: len(draws), : draws.shape[1]] = draws
    return Looks(padded, np.array([len(draws) for draws in seen]))


def errors(looks: Looks, expected: Array) -> Array:
    """Error of eq. (3) at each moment, NaN where there is no global draw yet: (n_moments,)."""
    sums = looks.draws.swapaxes(1, 2) @ looks.draws
    second_moments = sums / np.maximum(looks.counts, 1)[:, None, None]
    return np.where(looks.counts, relative_error(second_moments, expected), np.nan)


def _last_group_added(timeline: Timeline) -> Array:
    """Release times as the scripts compute them; see `Curve.published_adds_last_group`."""
    arrivals: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for time, shards in zip(timeline.block_times, timeline.block_shards, strict=True):
        arrivals[shards].append(time)
    n = len(timeline.release_times)
    *full, last = (arrivals[shards][:n] for shards in sorted(arrivals))
    return np.asarray(np.max(full, axis=0) + last)
