"""Finish times of schemes whose workers draw from all their shards at once: CMC, G-CMC, C-CMC."""

import numpy as np

from quorate._types import Array
from quorate.protocol.allocation import worker_groups
from quorate.protocol.coding.code import GradientCode
from quorate.protocol.times import Outcomes, Realisations


def _batch_ends(realisations: Realisations, workers: slice, n_shards: int) -> tuple[Array, Array]:
    """When blocks of batches arrive, inf if never; and how many batches each has.

    A batch is one draw of each of `n_shards`; there are as many as one worker alone needs.
    """
    work = realisations.work
    per_block = max(1, work.block // n_shards)
    n_blocks = -(-work.n_draws // per_block)
    sizes = np.full(n_blocks, float(per_block))
    sizes[-1] = work.n_draws - per_block * (n_blocks - 1)
    draws = n_shards * sizes
    draws[0] += n_shards * work.warm_up
    times = realisations.up_to(n_blocks)[:, workers, :n_blocks]
    ends = work.start + np.cumsum(times * draws, axis=2)
    ends[ends > realisations.deaths[:, workers, None]] = np.inf
    return ends, sizes


def coded_times(code: GradientCode, realisations: Realisations) -> Outcomes:
    """C-CMC: the run finishes when the answers to its last draw decode in every cell."""
    ends, sizes = _batch_ends(realisations, slice(None), code.redundancy)
    times = code.when_decodable(ends[:, :, -1])
    n_answers = np.sum((ends <= times[:, None, None]) * sizes, axis=(1, 2))
    return Outcomes(times, n_answers)


def grouped_times(redundancy: int, realisations: Realisations) -> Outcomes:
    """G-CMC: a group finishes when its members together have sent all its batches. CMC is r = 1."""
    groups = worker_groups(realisations.work.n_workers, redundancy)
    sizes = sorted({len(group) for group in groups}, reverse=True)
    parts = []
    for size in sizes:
        members = [worker for group in groups if len(group) == size for worker in group]
        parts.append(_groups_of(size, slice(members[0], members[-1] + 1), realisations))
    times = np.max([ready.max(axis=1) for _, ready, _ in parts], axis=0)
    n_vectors = np.zeros(len(times))
    for size, (ends, ready, n_batches) in zip(sizes, parts, strict=True):
        begun = np.concatenate([np.zeros((*ends.shape[:3], 1)), ends[..., :-1]], axis=3)
        asked = begun < ready[:, :, None, None]
        received = asked & (ends <= times[:, None, None, None])
        n_vectors += size * np.sum(received * n_batches, axis=(1, 2, 3))
    return Outcomes(times, n_vectors)


def _groups_of(size: int, workers: slice, realisations: Realisations) -> tuple[Array, Array, Array]:
    """Ends (realisation, group, member, block), when each group is ready, batches of blocks."""
    ends, n_batches = _batch_ends(realisations, workers, size)
    n, _, n_blocks = ends.shape
    merged = ends.reshape(n, -1, size * n_blocks)
    ready = np.partition(merged, n_blocks - 1, axis=2)[:, :, n_blocks - 1]
    return ends.reshape(n, -1, size, n_blocks), ready, n_batches
