"""Draws have the values they had in quorate 0.1: digests made with its last commit.

A digest is of numbers rounded to ten digits, so that another BLAS or processor does not change it.
Draws of `grouped` and `adaptive` runs on processes depend on who is fast; with one worker they do
not.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import quorate
from helpers import schemes as make
from quorate.engines.latency import Pareto
from quorate.engines.virtual import engine as virtual
from quorate.models import logistic
from quorate.models.gaussian import paper_subposteriors
from quorate.numerics.streams import Streams
from quorate.protocol.coordinator import Coordinator

DIGESTS = json.loads((Path(__file__).parents[1] / "data" / "digests.json").read_text())
VIRTUAL = {
    "cmc": ("cmc", 5, 1, {}),
    "grouped": ("grouped", 5, 2, {}),
    "grouped, every draw": ("grouped", 6, 3, {"pairing": "all"}),
    "coded, estimated": ("coded", 5, 2, {"code": "reed-solomon"}),
    "coded, estimated, cyclic": ("coded", 6, 3, {"code": "cyclic"}),
    "coded, exact": ("coded", 5, 2, {"precision": "exact", "checked": False}),
    "coded, exact, checked": ("coded", 6, 3, {"precision": "exact", "checked": True}),
    "adaptive": ("adaptive", 5, 2, {}),
    "adaptive, spare slots": ("adaptive", 6, 3, {"gap": 3}),
    "genie": ("genie", 5, 5, {}),
}
PROCESSES = {
    "cmc": quorate.CMC(),
    "coded": quorate.Coded(redundancy=2),
    "grouped": quorate.Grouped(),
    "adaptive": quorate.Adaptive(),
}


def digest(values):
    text = " ".join(f"{x:.9e}" for x in np.asarray(values, dtype=float).ravel())
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("name", VIRTUAL)
def test_in_virtual_time(name):
    scheme, n_workers, redundancy, options = VIRTUAL[name]
    run = make.started(scheme, n_workers, redundancy, 5, 10.0, n_draws=40, seed=11, **options)
    streams = Streams(11, 3)
    cluster = virtual.Cluster(Pareto(0.1, 1.2), paper_subposteriors(n_workers), streams)
    timeline = virtual.run(Coordinator(run, 40), cluster)
    expected = DIGESTS["virtual"][name]
    assert digest(run.received.global_draws()) == expected["draws"]
    assert digest(timeline.release_times) == expected["times"]


@pytest.mark.parametrize("name", PROCESSES)
def test_on_processes(name):
    rng = np.random.default_rng(5)
    design = np.column_stack([np.ones(600), rng.normal(size=600)])
    y = (rng.random(600) < 1 / (1 + np.exp(1 - design[:, 1]))).astype(float)
    result = quorate.sample(
        logistic(["intercept", "slope"]),
        {"X": design, "y": y},
        workers=4 if name in ("cmc", "coded") else 1,
        scheme=PROCESSES[name],
        draws=60,
        seed=5,
        sampler="ellipse",
        check=False,
        progress=False,
    )
    assert digest(result.unconstrained) == DIGESTS["processes"][name]["draws"]


def test_digests_see_a_change():
    values = np.linspace(0.1, 1.0, 7)
    assert digest(values) != digest(values * (1 + 1e-8))
