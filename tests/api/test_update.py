"""Rows added to a run: the posterior of all rows, and no second survey of what was there."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import quorate
from helpers import shops
from helpers.assertions import FALSE_FAIL_RATE, assert_mean
from helpers.processes import MeanModel
from quorate.data.write import ShardSet
from quorate.errors import BadInputError
from quorate.journal import JournalReader, PartAnswered
from quorate.models import design, from_functions, linear

QUIET = {"progress": False, "check": False, "engine": quorate.Processes(1)}
N_OLD, N_NEW = 300, 150
PRIOR = 400.0  # its precision, as much as that of 400 rows


def log_prior(theta):
    """Of z ~ N(θ, 1), with a prior that counts as much as the rows do."""
    return -0.5 * PRIOR * (theta**2).sum(axis=1)


def log_likelihood(theta, shard):
    z = shard["z"]
    total = np.sum(z**2) - 2 * theta @ z.sum(axis=0) + len(z) * (theta**2).sum(axis=1)
    return -0.5 * total


FIRM = from_functions(log_prior, log_likelihood, ["a", "b"], vectorised=True)


def posterior(z, prior=PRIOR):
    return z.sum(axis=0) / (len(z) + prior), 1 / np.sqrt(len(z) + prior)


def assert_posterior(result, mean, sd):
    """Mean and spread of the draws, from the means of its chains, which are independent.

    These are some hundred, and not quite Gaussian: the limit is that of one false alarm in 10⁸, so
    that there are fewer than one in 10⁶.
    """
    assert result.n_chains > 100
    n_steps = result.n_draws // result.n_chains
    in_turn = result.unconstrained[: n_steps * result.n_chains].reshape(n_steps, -1, 2)
    found = [in_turn.mean(axis=0), ((in_turn - mean) ** 2).mean(axis=0)]
    expected = np.concatenate([mean, np.full(2, sd**2)])
    assert_mean(np.concatenate(found, axis=1), expected, false_fail_rate=1e-8)


@pytest.fixture(scope="module")
def rows(seed):
    """Old rows about 1 and new rows about 2: a run without either of them is far off."""
    rng = np.random.default_rng(seed)
    return rng.normal(1.0, 1.0, (N_OLD, 2)), rng.normal(2.0, 1.0, (N_NEW, 2))


@pytest.fixture(scope="module")
def old(rows, seed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("update") / "old"
    return quorate.sample(
        FIRM, {"z": rows[0]}, workers=3, draws=500, run_dir=folder, seed=seed, **QUIET
    )


@pytest.fixture(scope="module")
def updated(old, rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("update") / "new"
    return quorate.update(old, {"z": rows[1]}, draws=1000, run_dir=folder, **QUIET)


def parts_of(result):
    with JournalReader(Path(result.run_dir)) as reader:
        return [record for record in reader.records() if isinstance(record, PartAnswered)]


def interrupting(n_draws):
    """A listener that interrupts the run, once, when it has so many draws."""
    sent = []

    def interrupt(progress):
        if progress.draws >= n_draws and not sent:
            sent.append(os.kill(os.getpid(), signal.SIGINT))

    return interrupt


# ---------------------------------------------------------------- the posterior


def test_it_is_the_posterior_of_all_rows(updated, rows):
    assert updated.workers == 5
    assert_posterior(updated, *posterior(np.concatenate(rows)))


def test_other_posteriors_would_be_noticed(updated, old, rows):
    """Control: the prior counted twice, old rows alone, and old rows twice."""
    wrong = [
        posterior(np.concatenate(rows), 2 * PRIOR),
        posterior(rows[0]),
        posterior(np.concatenate([*rows, rows[0]])),
    ]
    for mean, sd in wrong:
        with pytest.raises(AssertionError):
            assert_posterior(updated, mean, sd)


def test_an_update_can_be_updated(updated, rows, seed):
    more = np.random.default_rng([seed, 3]).normal(-1.0, 1.0, (80, 2))
    again = quorate.update(updated, {"z": more}, shards=2, draws=1000, seed=seed + 1, **QUIET)
    assert again.workers == 7
    assert_posterior(again, *posterior(np.concatenate([*rows, more])))


# ---------------------------------------------------------------- what it costs


def test_only_new_shards_are_surveyed(old, updated):
    surveyed = {shard for part in parts_of(updated) if part.lane < 0 for shard in part.shards}
    asked = {shard for part in parts_of(updated) if part.lane >= 0 for shard in part.shards}
    assert surveyed == {3, 4}
    assert asked == {0, 1, 2, 3, 4}
    assert {s for part in parts_of(old) if part.lane < 0 for s in part.shards} == {0, 1, 2}


def test_the_old_run_stays_as_it_is(old, updated):
    before = quorate.load(old.run_dir)
    assert before.workers == 3
    np.testing.assert_array_equal(before.unconstrained, old.unconstrained)
    files = [Path(run.run_dir, "shards/shard-00001/array-000.npy") for run in (old, updated)]
    assert len({file.stat().st_ino for file in files}) == 1  # no row is on disk twice


# ---------------------------------------------------------------- as any other run


def test_it_can_be_loaded(updated):
    found = quorate.load(updated.run_dir)
    np.testing.assert_array_equal(found.unconstrained, updated.unconstrained)


def test_an_interrupted_update_is_resumed_to_the_same_draws(old, updated, rows, tmp_path):
    options = {**QUIET, "progress": interrupting(1), "every": 0.0, "draws": 1000}
    cut = quorate.update(old, {"z": rows[1]}, run_dir=tmp_path / "run", **options)
    assert 0 < cut.n_draws < 1000
    whole = quorate.resume(tmp_path / "run", **QUIET)
    np.testing.assert_array_equal(whole.unconstrained, updated.unconstrained)


# ---------------------------------------------------------------- formulas and groups


def test_groups_that_are_new(seed, tmp_path):
    """Two-sample comparison with a run on all rows; false alarm once in a million times."""
    table = shops.table(seed)
    model = shops.model(table)
    is_old = np.isin(table["g"], np.unique(table["g"])[:40])
    first, second = ({n: c[rows] for n, c in table.items()} for rows in (is_old, ~is_old))
    options = {"workers": 2, "draws": 600, **QUIET}
    old = quorate.sample(model, first, run_dir=tmp_path / "old", seed=seed, **options)
    new = quorate.update(old, second, run_dir=tmp_path / "new", **QUIET)
    whole = quorate.sample(model, table, seed=seed + 1, **options)
    ours, theirs = new.summary(), whole.summary()
    z = (ours["mean"] - theirs["mean"]) / np.hypot(ours["mcse"], theirs["mcse"])
    assert np.abs(z).max() < norm.isf(FALSE_FAIL_RATE / (2 * len(z)))
    assert sorted(new.local.labels()) == sorted(np.unique(table["g"]))
    again = {name: column[:5] for name, column in first.items()}
    with pytest.raises(BadInputError, match=r"groups that the run has: 'shop .* in one shard"):
        quorate.update(old, again, **QUIET)


def test_a_formula_keeps_its_encoding(seed, tmp_path):
    rng = np.random.default_rng(seed)
    table = {"x": rng.normal(5, 1, 120), "g": np.resize(["a", "b", "c"], 120)}
    table["y"] = 3 * (table["x"] - 5) + (table["g"] == "b") + rng.normal(size=120)
    first, second = ({n: c[part] for n, c in table.items()} for part in (slice(90), slice(90, 120)))
    model = linear(design("y ~ center(x) + g", first))
    old = quorate.sample(model, first, workers=2, draws=40, run_dir=tmp_path, **QUIET)
    new = quorate.update(old, second, **QUIET)
    held = ShardSet.open(f"{new.run_dir}/shards").shard(2)
    centred = second["x"] - first["x"].mean()
    np.testing.assert_allclose(held["X"][:, 1], centred)
    strange = {**second, "g": np.full(30, "d")}
    with pytest.raises(BadInputError, match=r"`g` has level 'd', which it did not have"):
        quorate.update(old, strange, **QUIET)


# ---------------------------------------------------------------- what is refused


def test_a_merge_is_refused(rows, tmp_path):
    merged = quorate.sample(
        MeanModel(), {"z": rows[0]}, method="merge", workers=2, draws=20, run_dir=tmp_path, **QUIET
    )
    with pytest.raises(BadInputError, match=r"merged draws of its shards.*method='exact'"):
        quorate.update(merged, {"z": rows[1]}, **QUIET)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": np.ones((4, 2))}, "The new rows have no `z`. The run has z"),
        ({"z": np.ones((4, 3))}, r"Rows of `z` are <f8 of shape \(3,\). Those of the run are"),
        ({"z": np.ones((4, 2), complex)}, "holds complex numbers"),
    ],
)
def test_rows_that_do_not_fit(old, given, message, tmp_path):
    with pytest.raises(BadInputError, match=message):
        quorate.update(old, given, run_dir=tmp_path / "run", **QUIET)
    assert not (tmp_path / "run" / "shards").exists()


def test_a_model_with_other_parameters(old, rows):
    other = from_functions(log_prior, log_likelihood, ["b", "a"], vectorised=True)
    with pytest.raises(BadInputError, match=r"parameters \['b', 'a'\], but the run has"):
        quorate.update(old, {"z": rows[1]}, model=other, **QUIET)


def halved(rows):
    return {"z": rows["z"] / 2}


def test_rows_are_transformed_as_those_of_the_run_were(rows, seed, tmp_path):
    cut, options = quorate.Cut(transform=halved), {"draws": 40, "seed": seed, **QUIET}
    old = quorate.sample(FIRM, {"z": rows[0]}, by=cut, workers=2, run_dir=tmp_path, **options)
    with pytest.raises(BadInputError, match=r"were transformed.*by=Cut\(transform=...\)"):
        quorate.update(old, {"z": rows[1]}, **QUIET)
    new = quorate.update(old, {"z": rows[1]}, shards=1, by=cut, **QUIET)
    held = ShardSet.open(f"{new.run_dir}/shards").shard(2)
    np.testing.assert_array_equal(np.sort(held["z"], axis=0), np.sort(rows[1] / 2, axis=0))


def test_a_run_without_draws(rows, tmp_path):
    options = {**QUIET, "progress": interrupting(0), "every": 0.0}
    none = quorate.sample(FIRM, {"z": rows[0]}, workers=2, run_dir=tmp_path, **options)
    assert none.n_draws == 0
    with pytest.raises(BadInputError, match=r"has no draws yet\. Resume it"):
        quorate.update(tmp_path, {"z": rows[1]}, **QUIET)
