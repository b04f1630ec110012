from dataclasses import dataclass

import numpy as np
import pytest

from helpers.assertions import assert_mean, assert_quantile
from quorate.engines.latency import (
    LATENCIES,
    Dying,
    Exponential,
    Pareto,
    ShiftedExponential,
    Slowed,
    Trace,
    parse_cluster,
    parse_dead,
    parse_latency,
    parse_slow,
)
from quorate.errors import BadInputError
from quorate.numerics.streams import Streams

MODELS = [
    Pareto(0.1, 1.2),
    Exponential(0.1),
    ShiftedExponential(0.05, 0.05),
    Trace(((1.0, 2.0, 3.0), (4.0, 5.0))),
]


@pytest.mark.parametrize("model", MODELS)
def test_times_are_keyed(model, seed):
    streams = Streams(seed)
    whole = model.times(streams, 6, 0, 50)
    assert whole.shape == (6, 50)
    np.testing.assert_array_equal(model.times(streams, 6, 13, 20), whole[:, 13:33])
    np.testing.assert_array_equal(model.times(streams, 3, 0, 50), whole[:3])
    assert not np.array_equal(model.times(Streams(seed, 1), 6, 0, 50), whole)
    assert np.all(model.death_times(streams, 6) == np.inf)


def test_pareto_has_the_scale_and_tail_of_the_paper(seed):
    times = Pareto(0.1, 1.2).times(Streams(seed), 100, 0, 200).ravel()
    assert times.min() >= 1 / 60  # scale r/60 at η = 0.1, β = 1.2, r = 1 (§VI)
    for share in (0.1, 0.5, 0.9, 0.99):
        assert_quantile(times, (1 / 60) * (1 - share) ** (-1 / 1.2), share)
    with pytest.raises(AssertionError):
        assert_quantile(times, (1 / 60) * 0.5 ** (-1 / 1.3), 0.5)


@pytest.mark.parametrize("model", MODELS[1:3])
def test_means(model, seed):
    times = model.times(Streams(seed), 100, 0, 200).reshape(-1, 1)
    assert_mean(times, np.array([0.1]))


def test_shifted_exponential_never_falls_below_its_shift(seed):
    assert ShiftedExponential(0.05, 0.05).times(Streams(seed), 10, 0, 100).min() > 0.05


def test_trace_is_played_in_order_and_again(seed):
    recorded = ((1.0, 2.0, 3.0), (4.0, 5.0))
    plain = Trace(recorded, shuffle=False).times(Streams(seed), 3, 0, 5)
    np.testing.assert_array_equal(plain, [[1, 2, 3, 1, 2], [4, 5, 4, 5, 4], [1, 2, 3, 1, 2]])
    for row in Trace(recorded).times(Streams(seed), 20, 0, 6):
        cycle = recorded[0] if row[0] < 4 else recorded[1]
        start = cycle.index(row[0])
        assert row.tolist() == [cycle[(start + i) % len(cycle)] for i in range(6)]


def test_trace_is_read_from_a_file(tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("0.1,0.2\n\n0.3\n")
    assert Trace.read(path).recorded == ((0.1, 0.2), (0.3,))
    assert parse_latency(f"trace:{path}") == Trace.read(path)


@pytest.mark.parametrize("content", ["", "a,b\n", "0.1,-1\n", "0.1,inf\n", "0.1,nan\n"])
def test_bad_traces(tmp_path, content):
    path = tmp_path / "times.csv"
    path.write_text(content)
    with pytest.raises(BadInputError):
        Trace.read(path)


def test_slow_workers_are_slow_by_the_factor(seed):
    base, streams = Exponential(1.0), Streams(seed)
    ratio = Slowed(base, 3, 10.0).times(streams, 8, 5, 4) / base.times(streams, 8, 5, 4)
    np.testing.assert_allclose(np.sort(ratio[:, 0]), [1] * 5 + [10] * 3)
    np.testing.assert_allclose(ratio, ratio[:, :1] * np.ones(4))
    chosen = Slowed(base, (2, 4), 10.0).times(streams, 8, 0, 1) / base.times(streams, 8, 0, 1)
    np.testing.assert_allclose(chosen[:, 0], [1, 1, 10, 1, 10, 1, 1, 1])


def test_who_is_slow_varies_with_the_realisation():
    who = {
        tuple(Slowed(Exponential(1.0), 1, 1e6).times(Streams(0, z), 5, 0, 1)[:, 0] > 1e3)
        for z in range(50)
    }
    assert len(who) == 5


def test_the_dead_die_when_they_die(seed):
    model = Slowed(Dying(Dying(Exponential(1.0), (1,), since=5.0), 2, since=7.0), 1, 2.0)
    deaths = model.death_times(Streams(seed), 6)
    assert deaths[1] == 5.0
    assert sorted(set(deaths.tolist()) - {5.0}) == [7.0, np.inf]


@pytest.mark.parametrize(
    ("spec", "model"),
    [
        ("pareto:0.1,1.2", Pareto(0.1, 1.2)),
        ("exponential:2", Exponential(2.0)),
        ("shifted-exponential:1,0.5", ShiftedExponential(1.0, 0.5)),
    ],
)
def test_specs(spec, model):
    assert parse_latency(spec) == model


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "pareto",
        "pareto:",
        "pareto:0.1",
        "pareto:0.1,1.2,3",
        "pareto:a,b",
        "gamma:1",
        "pareto:0.1,1",
        "pareto:0.1,inf",
        "pareto:nan,1.2",
        "pareto:0,1.2",
        "exponential:-1",
        "exponential:nan",
        "exponential:inf",
        "trace:/nowhere",
    ],
)
def test_bad_specs(spec):
    with pytest.raises(BadInputError):
        parse_latency(spec)


@dataclass(frozen=True)
class Constant:
    """A model from outside."""

    seconds: float

    @classmethod
    def parse(cls, text):
        return cls(float(text))

    def times(self, streams, n_workers, first, n):
        return np.full((n_workers, n), self.seconds)

    def death_times(self, streams, n_workers):
        return np.full(n_workers, np.inf)


def test_models_from_outside_have_names_and_are_taken_as_objects(monkeypatch):
    monkeypatch.setattr(LATENCIES, "_known", dict(LATENCIES._known))
    LATENCIES.register("constant", Constant)
    assert parse_latency("constant:0.5") == Constant(0.5)
    assert "constant" in list(LATENCIES)
    assert parse_latency(Constant(2.0)) == Constant(2.0)
    assert parse_cluster(Constant(2.0), slow="1x3") == Slowed(Constant(2.0), 1, 3.0)


def test_a_name_that_is_not_known_is_answered_with_those_that_are():
    with pytest.raises(BadInputError, match=r"'gamma'.*pareto, exponential"):
        parse_latency("gamma:1")


def test_numbers_that_do_not_fit_are_answered_with_what_they_mean():
    with pytest.raises(BadInputError, match=r"'0.1'.*mean_per_shard and tail_index.*pareto:0.1"):
        parse_latency("pareto:0.1")


def test_short_forms_of_slow_and_dead():
    assert parse_slow("4x10") == (4, 10.0)
    assert parse_dead("2") == (2, 0.0)
    assert parse_dead("2@1.5") == (2, 1.5)
    for bad in ("", "4", "x10", "ax2"):
        with pytest.raises(BadInputError):
            parse_slow(bad)
    for bad in ("", "@", "a", "1@b", "1@"):
        with pytest.raises(BadInputError):
            parse_dead(bad)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Slowed(Exponential(1.0), -1, 2.0),
        lambda: Slowed(Exponential(1.0), 1, 0.0),
        lambda: Dying(Exponential(1.0), (-1,)),
        lambda: Dying(Exponential(1.0), 1, since=-1.0),
        lambda: Slowed(Exponential(1.0), 9, 2.0).times(Streams(0), 4, 0, 1),
        lambda: Dying(Exponential(1.0), (4,)).death_times(Streams(0), 4),
    ],
)
def test_impossible_wrappers(make):
    with pytest.raises(BadInputError):
        make()
