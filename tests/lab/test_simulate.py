"""`quorate.simulate`: what its numbers are."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import quorate
from helpers.assertions import assert_known
from quorate.engines.latency import Dying, Exponential, Trace
from quorate.lab.simulate import _quantile
from quorate.protocol.schemes import CMC, SCHEMES, Adaptive, Coded, Genie, Grouped

ONE_EACH = Trace(((1.0,),), shuffle=False)


def test_times_and_waste_of_a_run_one_can_follow():
    """Two groups of two, every batch takes 2: each pair sends 1, 2, 3 batches at once."""
    runs = quorate.simulate("grouped", 4, 2, draws=3, latency=ONE_EACH, realisations=3)
    assert runs.median == runs.p99 == 4.0  # batches 1 and 2 at time 2, 3 and 4 at time 4
    assert runs.share_unfinished == 0
    assert runs.scheme == "grouped"


def test_per_draw_times_add_up():
    times = Trace(((1.0, 3.0),), shuffle=False)
    batch = quorate.simulate("coded", 2, 2, draws=1, latency=times, realisations=1)
    each = quorate.simulate("coded", 2, 2, draws=1, latency=times, realisations=1, per_draw=True)
    assert (batch.median, each.median) == (2.0, 4.0)


def test_a_worker_is_asked_for_nothing_beyond_the_last_draw():
    assert quorate.simulate("cmc", 10, draws=20, realisations=5).wasted_share == 0


def test_error_falls_with_draws(seed):
    """Nearly as the square root of their number; the ratio was 0.299 ± 0.032 over 60 seeds."""
    few, many = (
        quorate.simulate("grouped", 5, 2, draws=n, realisations=20, cov_ridge=0.1, seed=seed).error
        for n in (20, 320)
    )
    assert_known(many / few, 0.299, 0.032)
    with pytest.raises(AssertionError):
        assert_known(1.0, 0.299, 0.032)


def test_runs_that_never_finish_count_as_infinity():
    latency = Dying(Exponential(0.1), 1, since=0.5)
    runs = quorate.simulate("cmc", 4, draws=5, latency=latency, realisations=40)
    assert 0 < runs.share_unfinished < 1
    assert runs.p99 == np.inf
    assert runs.as_json()["p99"] is None
    assert runs.error is not None


def test_all_dead_from_the_start_is_an_error():
    with pytest.raises(quorate.QuorateError, match="can never reach 5 global draws"):
        quorate.simulate("cmc", 4, draws=5, latency=Dying(Exponential(0.1), 1))


@pytest.mark.parametrize(
    ("times", "share", "expected"),
    [
        ([1.0, 2.0, 3.0], 0.5, 2.0),
        ([1.0, 2.0], 0.5, 1.5),
        ([3.0, 1.0, 2.0, np.inf, np.inf], 0.5, 3.0),
        ([1.0, 2.0, np.inf, np.inf], 0.5, np.inf),
        ([np.inf, np.inf], 0.9, np.inf),
        ([5.0], 0.99, 5.0),
    ],
)
def test_quantiles(times, share, expected):
    assert _quantile(np.array(times), share) == expected


# ---------------------------------------------------------------- names and objects


@pytest.mark.parametrize(
    ("name", "given", "options"),
    [
        ("cmc", {}, CMC(pairing="paper", weights="draws", cov_ridge=10.0)),
        ("grouped", {"redundancy": 3}, Grouped(3, "paper", "draws", 10.0)),
        (
            "coded",
            {"redundancy": 2, "code": "cyclic", "cov_ridge": 1.0},
            Coded(2, "cyclic", "estimated", weights="draws", cov_ridge=1.0),
        ),
        ("adaptive", {"redundancy": 2, "gap": 3}, Adaptive(2, gap=3, cov_ridge=10.0)),
        ("genie", {}, Genie(cov_ridge=10.0)),
    ],
)
def test_a_name_is_shorthand_for_options(name, given, options):
    few = {"draws": 8, "realisations": 3}
    assert quorate.simulate(name, 6, **given, **few) == quorate.simulate(options, 6, **few)


def test_options_beside_an_object_are_refused():
    with pytest.raises(quorate.BadInputError, match=r"gap to Adaptive\(\.\.\.\), not beside it"):
        quorate.simulate(Adaptive(2), 6, gap=3)


def test_options_that_a_scheme_does_not_have_are_refused():
    with pytest.raises(quorate.BadInputError, match="'grouped' has no option gap"):
        quorate.simulate("grouped", 6, gap=3)


def test_options_of_an_outside_scheme_are_known(monkeypatch):
    @dataclass(frozen=True)
    class Own(CMC):
        spare: int = 0
        name: ClassVar[str] = "own"

        def start(self, setup):
            started.append(self.spare)
            return super().start(setup)

    started = []
    monkeypatch.setitem(SCHEMES._known, "own", Own)
    quorate.simulate("own", 4, spare=2, draws=3, realisations=1)
    assert started == [2]


def test_redundancy_in_the_summary_is_what_workers_hold():
    few = {"draws": 3, "realisations": 1}
    held = [quorate.simulate(scheme, 6, 2, **few).redundancy for scheme in ("cmc", "genie")]
    assert held == [1, 6]
