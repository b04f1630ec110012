"""The figure `exact`: its cases are what they say; merges have a floor there, exact draws none."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from helpers.cases import FOLDER, REFERENCE
from quorate.engines.latency import Pareto, Scaled
from quorate.engines.workers.worker import Job, Worker
from quorate.errors import BadInputError
from quorate.lab import exact_figure
from quorate.lab.exact_cases import N_SHARDS, rare, wells
from quorate.lab.exact_draws import Remembering, WeightedShards
from quorate.lab.exact_figure import (
    LINES,
    MOMENTS,
    ExactExperiment,
    Line,
    Path,
    averaged,
    exact_curves,
)
from quorate.lab.exact_output import COLUMNS, write_exact
from quorate.models.subposterior import Target
from quorate.numerics.streams import Streams
from quorate.protocol.messages import Evaluate, Survey
from quorate.protocol.schemes import Coded
from quorate.protocol.schemes.cmc import SendDraws
from quorate.samplers.ellipse import EllipseSampler

SHORT = ExactExperiment(realisations=2, n_draws=1024, merged_until=50.0)
LEVEL = 0.4  # of errors on `rare`: half the floor of merges, and four times what exact leaves


def whole(case):
    """The posterior, of all rows."""
    rows = {name: np.concatenate([s[name] for s in case.shards]) for name in case.shards[0]}
    return Target(case.model, rows, 1)


def last_errors(curves):
    """The last error of each curve that is known, by its label."""
    return {c.line.label: c.errors[np.isfinite(c.errors)][-1] for c in curves}


def test_the_wells_are_those_of_posteriordb():
    case, target = wells(), whole(wells())
    with np.load(FOLDER / "wells_dae_inter.npz") as data:
        ours = np.column_stack([target.shard["X"], target.shard["y"]])
        theirs = np.column_stack([data["X"], data["y"]])
    assert np.array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])
    reference = REFERENCE["wells_dae_inter"]
    assert case.error(np.array(reference["mean"])) < 0.03  # the noise of 20,000 draws
    assert np.allclose(case.sd, reference["sd"], rtol=0.025)


@pytest.mark.parametrize("case", [rare(), wells()], ids=lambda case: case.name)
def test_stated_moments_are_those_of_the_posterior(case):
    found = WeightedShards.of([whole(case)], 2**12).shards[0]
    assert case.error(found.mean(found.points)) < 0.01
    assert np.allclose(found.sd(found.points), case.sd, rtol=0.01)
    shard = WeightedShards.of([case.target(0)], 2**12).shards[0]
    assert case.error(shard.mean(shard.points)) > 0.3  # the control: one shard is not all


def test_merges_end_at_their_floor_on_skewed_shards_and_exact_draws_do_not(seed):
    found = last_errors(exact_curves(rare(), replace(SHORT, seed=seed)))
    for label in ("CMC", "G-CMC, r = 2", "adaptive, r = 2"):
        assert found[label] > LEVEL
    for label in ("exact, r = 1", "exact, r = 2"):
        assert found[label] < LEVEL / 2


def test_merges_have_no_such_floor_where_shards_are_symmetric(seed):
    """The control of the test above."""
    curves = exact_curves(rare(events=(22, 25, 25, 28)), replace(SHORT, seed=seed))
    assert all(error < LEVEL for error in last_errors(curves).values())
    assert curves[0].floor < 0.05


def test_a_line_may_be_of_any_scheme(seed, monkeypatch):
    """C-CMC has no ledger of draws."""
    monkeypatch.setattr(exact_figure, "LINES", (Line("merge", Coded(redundancy=2)),))
    [curve] = exact_curves(rare(), replace(SHORT, seed=seed))
    assert curve.line.label == "C-CMC, r = 2"
    assert np.isfinite(curve.errors).any()


def test_draws_of_shards_are_found_by_their_key_and_have_its_moments(seed):
    shards = WeightedShards.of([rare().target(0)] * 2, 2**12)
    lanes = [(0, 0), (1, 0), (1, 1)]
    draws = shards.draws(Streams(seed), lanes, 0, 4000)
    assert draws.shape == (3, 4000, 4)
    assert np.array_equal(draws[1:, 100:200], shards.draws(Streams(seed), lanes[1:], 100, 100))
    assert not np.array_equal(draws[1], draws[2])
    weighted = shards.shards[0]
    gaps = (draws[0].mean(axis=0) - weighted.mean(weighted.points)) / weighted.sd(weighted.points)
    assert np.abs(gaps).max() < 5.5 / np.sqrt(4000)  # false-alarm rate below 1e-6


def test_an_average_needs_half_of_the_runs_at_work():
    never = np.full(len(MOMENTS), np.nan)
    late = np.where(MOMENTS < 100, np.nan, 3.0)
    early = np.where(MOMENTS < 10, np.nan, 4.0)
    paths = [Path(early, 200.0), Path(late, 2000.0), Path(never, 5000.0)]
    curve = averaged(LINES[0], paths, floor=0.5)
    assert np.isnan(curve.error_at(10))  # one of three
    assert curve.error_at(215) == pytest.approx(np.sqrt((16 + 9) / 2))
    assert curve.error_at(1468) == pytest.approx(np.sqrt((16 + 9) / 2))
    assert np.isnan(curve.error_at(2154))  # two of three have ended


def test_a_remembered_answer_is_that_of_the_worker():
    case = rare()
    worker = Worker(Job(case.model, EllipseSampler(), SendDraws(), "", N_SHARDS, 0), {}, case)
    memory = Remembering(worker)
    points = np.linspace(-3, 0, 8).reshape(2, 4)
    asked = Evaluate(2, (1,), 0, 5, 64, points)
    (first,), (again,) = memory.answers(asked), memory.answers(asked._replace(worker=1))
    (real,) = worker.answers(asked)
    assert np.array_equal(first.values, real.values)
    assert again.values is first.values
    assert (first.task.worker, again.task.worker) == (2, 1)
    (other,) = memory.answers(asked._replace(question=6, points=points - 1))
    assert not np.array_equal(other.values, first.values)
    (survey,) = memory.answers(Survey(0, (1,)))
    memory.forget_values()
    (after,) = memory.answers(Survey(3, (1,)))
    assert after.found is survey.found
    (changed,) = memory.answers(asked._replace(points=points - 1))
    assert np.array_equal(changed.values, other.values)


def test_scaled_times():
    plain, streams = Pareto(0.1, 1.2), Streams(3)
    scaled = Scaled(plain, 32.0)
    assert np.array_equal(scaled.times(streams, 3, 5, 7), 32 * plain.times(streams, 3, 5, 7))
    assert np.isinf(scaled.death_times(streams, 3)).all()
    with pytest.raises(BadInputError, match="factor"):
        Scaled(plain, 0.0)


def test_files_say_what_was_found(tmp_path):
    case = rare()
    path = Path(np.where(MOMENTS < 10, np.nan, 0.25), np.inf)
    curves = [averaged(line, [path], 0.0 if line.method == "exact" else 0.9) for line in LINES]
    write_exact(SHORT, [(case, curves)], tmp_path)
    with (tmp_path / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == len(LINES) * np.sum(MOMENTS >= 10)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["experiment"]["n_draws"] == 1024
    assert summary["cases"]["rare"]["floor"] == 0.9
    assert summary["cases"]["rare"]["errors"]["exact, r = 2"]["100"] == 0.25
