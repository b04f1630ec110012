"""The chains of a worker, without processes."""

import numpy as np
import pandas as pd
import pytest

from helpers.targets import LogisticWithGradient, logistic_rows
from quorate.engines.packing import packed, unpacked
from quorate.engines.workers.service import packed_job
from quorate.engines.workers.worker import Chains, Job
from quorate.errors import BadInputError
from quorate.models import design, linear
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


def test_workers_need_no_pandas_for_a_formula(rng):
    """The encoding of a formula stays with the coordinator: workers get rows that are encoded."""
    table = pd.DataFrame({"x": rng.normal(size=40), "y": rng.normal(size=40), "g": ["a", "b"] * 20})
    for formula in ("y ~ x", "y ~ x + (1 | g)"):
        model = linear(design(formula, table))
        job = Job(model, make_sampler("auto"), SendDraws(), "", 1, 0)
        lighter = unpacked(packed_job(job))["model"]
        assert lighter.encoding is None
        assert lighter.names == model.names
        assert b"pandas" not in packed_job(job)
        assert b"pandas" in packed({"model": model})  # the control


class Stepping:
    """A sampler whose chain moves as long as `moves` is true."""

    moves = True

    def warm_up(self, target, stream):
        return {"place": np.array(0.0)}

    def draw(self, target, state, stream, n):
        places = state["place"] + self.moves * np.arange(1, n + 1)
        return np.tile(places[:, None], 2), {"place": places[-1]}


def test_a_chain_that_stands_still_is_told_from_one_that_sends_single_draws():
    sampler = Stepping()
    chains = Chains(Job(LogisticWithGradient(2), sampler, SendDraws(), "", 1, 0), OneShard())
    for _ in range(1_100):
        chains.draw(0, 0, 1)
    sampler.moves = False
    for _ in range(999):
        chains.draw(0, 0, 1)
    with pytest.raises(BadInputError, match="has not moved for 1000 draws"):
        chains.draw(0, 0, 1)
