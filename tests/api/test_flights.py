"""327,346 flights, 31 coefficients: all schemes draw from one posterior, with a good verdict."""

import os
import signal
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import quorate
from helpers.assertions import FALSE_FAIL_RATE
from quorate.journal import JournalReader
from quorate.models import design, logistic
from quorate.numerics.named_arrays import part

WEIGHTS = 0.1  # sds by which noise in estimated weights may move a mean
OPTIONS = {"workers": 4, "redundancy": 2, "draws": 1500, "sampler": "ellipse"}
VICTIMS = {"grouped": (0, 2), "adaptive": (1,), "coded": (3,)}  # r - 1, in every group
pytestmark = [
    pytest.mark.xdist_group("flights"),
    pytest.mark.filterwarnings("ignore::quorate.errors.WrongShapeWarning"),
]


@pytest.fixture(scope="module")
def flights():
    pytest.importorskip("pandas")
    path = Path(__file__).parents[2] / "examples" / "flights.py"
    spec = spec_from_file_location("flights_example", path)
    example = module_from_spec(spec)
    spec.loader.exec_module(example)
    table = example.flights()
    encoding = design(example.COEFFICIENTS, table)
    return logistic(encoding.names), encoding.arrays(table)


@pytest.fixture(scope="module")
def of_cmc(flights, tmp_path_factory, seed):
    run = tmp_path_factory.mktemp("flights") / "cmc"
    return quorate.sample(*flights, scheme="cmc", seed=seed, run_dir=run, progress=False, **OPTIONS)


class Killer:
    """Kills some workers with SIGKILL as soon as there are draws."""

    def __init__(self, victims):
        self.victims = victims

    def __call__(self, progress):
        pids = [progress.workers[victim].pid for victim in self.victims]
        if progress.draws and None not in pids:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            self.victims = ()


def test_the_merge_is_trusted(of_cmc):
    assert of_cmc.verdict.verdict == "good"


@pytest.mark.parametrize("scheme", VICTIMS)
def test_every_scheme_draws_from_the_same_posterior_though_workers_are_killed(
    scheme, flights, of_cmc, tmp_path, seed
):
    """All runs cut the rows the same way, so rare carriers do not make them differ."""
    run, killer = tmp_path / "run", Killer(VICTIMS[scheme])
    result = quorate.sample(
        *flights, scheme=scheme, seed=seed, run_dir=run, check=False, progress=killer, **OPTIONS
    )
    assert not killer.victims
    rows, expected = result.summary_rows(), of_cmc.summary_rows()
    assert all(agrees(row, expected[name]) for name, row in rows.items())
    shifted = ({**row, "mean": row["mean"] + 2 * row["sd"]} for row in rows.values())
    assert not any(map(agrees, shifted, expected.values()))
    if scheme == "coded":
        draws_are_those_of(of_cmc, run)


def agrees(row, other):
    """Whether two runs agree about a coefficient, as far as their errors allow: of 31, in all."""
    limit = 1.2 * norm.isf(FALSE_FAIL_RATE / (4 * 31))  # an ESS is an estimate itself
    noise = (row["mcse"] ** 2 + other["mcse"] ** 2) ** 0.5
    if abs(row["mean"] - other["mean"]) > limit * noise + WEIGHTS * other["sd"]:
        return False
    # a spread of n effective draws is known to 1/√(2n); these are nearly Gaussian
    spread = (1 / row["ess"] + 1 / other["ess"]) ** 0.5
    return abs(np.log(row["sd"] / other["sd"])) < limit * spread + WEIGHTS


def draws_are_those_of(of_cmc, run):
    """The states of coded workers hold the same draws as CMC's workers, bit for bit."""
    with JournalReader(run) as reader:
        list(reader.records())
        states = [(key, state) for key, state in reader.states() if state is not None]
    assert states
    for key, state in states:
        segments = part(state, "side", "draws")
        drawn = np.concatenate([segments[first] for first in sorted(segments, key=int)], axis=1)
        for shard, draws in zip(key.shards, drawn, strict=True):
            n = min(len(draws), 1500)
            np.testing.assert_array_equal(draws[:n], of_cmc.shard_draws[shard][:n])
