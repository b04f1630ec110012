"""Draws that count at several moments of a run."""

import numpy as np
import pytest

from quorate.protocol.looks import draws_seen

N_MOMENTS, N_SENDERS = 6, 4


@pytest.mark.parametrize("n_blocks", [0, 1, 50])
def test_draws_seen_are_those_of_the_blocks_that_count(n_blocks, seed):
    """The last sender sends nothing, and some blocks never count."""
    rng = np.random.default_rng(seed)
    senders = rng.integers(N_SENDERS - 1, size=n_blocks)
    sizes = rng.integers(1, 5, size=n_blocks)
    since = rng.integers(N_MOMENTS + 1, size=n_blocks)
    blocks = since <= np.arange(N_MOMENTS)[:, None]
    seen = draws_seen(blocks, senders.tolist(), sizes.tolist(), N_SENDERS)
    assert seen.shape == (N_MOMENTS, N_SENDERS)
    for moment in range(N_MOMENTS):
        for sender in range(N_SENDERS):
            counts = blocks[moment] & (senders == sender)
            assert seen[moment, sender] == sizes[counts].sum()
