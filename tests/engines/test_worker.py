"""The chains of a worker, without processes."""

import numpy as np
import pytest

from helpers.targets import LogisticWithGradient, logistic_rows
from quorate.engines.worker import Chains, Job
from quorate.protocol.schemes.cmc import SendDraws
from quorate.samplers import make_sampler


class OneShard:
    def shard(self, number):
        return logistic_rows(60, 2)


def begun(seed):
    job = Job(LogisticWithGradient(2), make_sampler("hmc"), SendDraws(), "", 1, seed)
    chains = Chains(job, OneShard())
    chains.draw(0, 0, 5)
    return chains


@pytest.mark.parametrize(("index", "n_before"), [(5, 15), (0, 0)])
def test_a_chain_counts_what_it_has_done_itself(index, n_before, seed):
    """One that goes on has counted before; one that begins where another stands has not."""
    chains = begun(seed)
    chains.restore(0, 1, chains.state(0, 0), index)
    state = chains.state(0, 1)
    assert int(state["index"]) == index
    assert int(state["evaluations"]) == n_before  # three gradients a draw
    np.testing.assert_array_equal(state["z"], chains.state(0, 0)["z"])
