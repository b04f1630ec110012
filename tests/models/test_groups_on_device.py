"""Regressions with groups, compiled by JAX: the same values and gradients as in numpy."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from tests.helpers.grouped_rows import FAMILIES, NAMES, case

from quorate.errors import DeviceMemoryError
from quorate.models import device, logistic
from quorate.models.groups.accuracy import Effort
from quorate.models.groups.levels import Level
from quorate.models.groups.regressions.by_nodes import ByNodes
from quorate.models.groups.regressions.numbering import by_group, numbered
from quorate.models.groups.regressions.size_classes import few_classes

jax = pytest.importorskip("jax")

from quorate.models.groups.regressions.compiled import CompiledByNodes  # noqa: E402
from quorate.models.groups.regressions.compiled_kernels import kernels  # noqa: E402
from quorate.models.groups.regressions.tiles import in_tiles, round_number  # noqa: E402

SHAPES = [
    ("logistic", 1, ()),
    ("logistic", 2, ("weights", "trials", "offset")),
    ("poisson", 1, ("weights", "offset")),
    ("poisson", 2, ()),
    ("negative_binomial", 1, ("weights", "offset")),
]


def rows(family, q, extras, rng, n_groups=30, largest=4):
    """Groups of four rows, some with one, and one group that may be larger."""
    sizes = np.where(np.arange(n_groups) % 10 == 0, 1, 4)
    sizes[-1] = largest
    group = rng.permutation(np.repeat(3 * np.arange(n_groups), sizes))
    n = len(group)
    columns = np.column_stack([np.ones(n), rng.normal(size=n)])
    shard = {"X": columns, "Z": columns[:, :q].copy(), "group": group}
    if "offset" in extras:
        shard["offset"] = 0.3 * rng.normal(size=n)
    if "weights" in extras:
        shard["weights"] = rng.choice([0.0, 0.5, 1.0, 2.0], size=n)
    mean = columns @ [0.2, 0.5] + 0.8 * rng.normal(size=3 * n_groups)[group]
    if family == "logistic":
        trials = rng.integers(0, 5, n) if "trials" in extras else np.ones(n, dtype=int)
        shard |= {"trials": trials.astype(float)} if "trials" in extras else {}
        shard["y"] = rng.binomial(trials, expit(mean)).astype(float)
    else:
        shard["y"] = rng.poisson(np.exp(mean)).astype(float)
    for array in shard.values():
        array.flags.writeable = False
    return shard


def points_near_and_far(dim, rng, furthest):
    """Points of a posterior, points a few units away, and some where exp is very large."""
    near, away = 0.2 * rng.normal(size=(8, dim)), rng.uniform(-1, 1, size=(6, dim))
    away[:, :2] *= 6
    far = np.zeros((5, dim))
    far[0, 0], far[1, 0], far[2, 1], far[3, 2], far[4, 2] = furthest, -furthest, furthest / 2, -8, 3
    return np.vstack([near, away, far])


def both(model, shard, effort):
    """The same shard in numpy and compiled, with anchors at 0."""
    tables = model._tables(shard)
    kinds = (ByNodes, CompiledByNodes)
    return [kind.of(model.family, tables, effort) for kind in kinds]


def assert_alike(found, expected, points):
    """Values and gradients agree to rounding, wherever those of numpy are numbers."""
    fine = np.isfinite(expected[0])
    assert fine[:14].all()
    np.testing.assert_allclose(found[0][fine], expected[0][fine], rtol=1e-10)
    largest = np.abs(expected[1]).max(axis=1, keepdims=True)
    difference = np.abs(found[1] - expected[1]) / largest
    assert difference[fine].max() < 1e-9, points[fine][difference[fine].max(axis=1).argmax()]


@pytest.mark.parametrize(("family", "q", "extras"), SHAPES)
def test_values_and_gradients_are_those_of_numpy(family, q, extras, seed):
    rng = np.random.default_rng([seed, q])
    model = FAMILIES[family](NAMES, groups="g", varying=NAMES[:q])
    shard = rows(family, q, extras, rng)
    points = points_near_and_far(model.dim, rng, 12 if family == "poisson" else 60)
    plain, compiled = both(model, shard, Effort(5, 2))
    found, expected = (
        (values, model.gradients(points, slopes))
        for values, slopes in (
            each.log_likelihoods_and_gradients(model.taken_apart(points))
            for each in (compiled, plain)
        )
    )
    assert_alike(found, expected, points)


@pytest.mark.parametrize("q", [1, 2])
def test_closed_forms_are_those_of_numpy(q, seed):
    rng = np.random.default_rng([seed, q])
    simulated = case("linear", q, rng)
    model, shard = simulated.model, simulated.shard
    points = simulated.truth + 0.5 * rng.normal(size=(20, model.dim))
    expected = model.log_likelihood_and_gradient_many(points, shard)
    compiled = model.on_device()
    assert_alike(compiled.log_likelihood_and_gradient_many(points, shard), expected, points)
    np.testing.assert_allclose(compiled.log_likelihood_many(points, shard), expected[0], rtol=1e-10)


@pytest.mark.parametrize("family", ["linear", "logistic"])
def test_a_shard_without_rows_says_nothing(family, seed):
    simulated = case(family, 1, np.random.default_rng(seed))
    empty = {name: array[:0] for name, array in simulated.shard.items()}
    compiled = simulated.model.on_device()
    found = compiled.log_likelihood_and_gradient_many(simulated.truth[None], empty)
    np.testing.assert_array_equal(found[0], 0)
    np.testing.assert_array_equal(found[1], 0)
    expected = simulated.model.rough_fit(empty, 3)
    np.testing.assert_allclose(compiled.rough_fit(empty, 3).cov, expected.cov)


def test_the_model_on_a_device_finds_the_same_fit_nodes_and_groups(seed):
    rng = np.random.default_rng(seed)
    model, shard = logistic(NAMES, groups="g"), rows("logistic", 1, (), rng, 100)
    compiled = model.on_device()
    expected, found = model.rough_fit(shard, 3), compiled.rough_fit(shard, 3)
    np.testing.assert_allclose(found.mode, expected.mode, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.cov, expected.cov, rtol=1e-6, atol=1e-9)
    plain, kept = model._kept(shard), compiled._kept(shard)
    assert kept.effort == plain.effort
    np.testing.assert_allclose(kept.anchors, plain.anchors, rtol=1e-6, atol=1e-9)
    points = expected.mode + 0.1 * rng.normal(size=(20, model.dim))
    same = replace(plain, anchors=kept.anchors)
    np.testing.assert_allclose(
        compiled.log_likelihood_many(points, shard),
        same.log_likelihoods(model.taken_apart(points)),
        rtol=1e-10,
    )
    one, other = (each.local_moments(points, shard)["g"] for each in (model, compiled))
    np.testing.assert_array_equal(one.groups, other.groups)
    np.testing.assert_array_equal(one.sums, other.sums)
    np.testing.assert_allclose(
        compiled.group_log_likelihoods(points, shard, plain.codes[:5]),
        model.group_log_likelihoods(points, shard, plain.codes[:5]),
        rtol=1e-6,
    )


def test_any_number_of_points_is_compiled_once(seed):
    rng = np.random.default_rng(seed)
    model = logistic(NAMES, groups="g")
    shard = rows("logistic", 1, (), rng, largest=200)
    plain, compiled = both(model, shard, Effort(3, 1))
    assert len(compiled.classes) == 2
    points = 0.2 * rng.normal(size=(16, model.dim))
    totals, _ = kernels()
    whole = compiled.log_likelihoods(model.taken_apart(points))
    expected = plain.log_likelihoods(model.taken_apart(points))
    np.testing.assert_allclose(whole, expected, rtol=1e-10)
    n_compiled = totals._cache_size()
    for n in (0, 1, 5, 15):
        some = compiled.log_likelihoods(model.taken_apart(points[:n]))
        np.testing.assert_allclose(some, whole[:n], rtol=1e-14)
    assert totals._cache_size() == n_compiled


def test_two_levels_stay_in_numpy():
    levels = (Level("a", ("Intercept",), (1,)), Level("a:b", ("Intercept",), (1,)))
    model = logistic(NAMES, groups=levels)
    assert model.on_device() is model


def no_memory(*_):
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")


BYTES = 5e8  # of a point: an accelerator that says nothing of its memory gets 8 at a time


@pytest.fixture
def accelerator(monkeypatch):
    monkeypatch.setattr(device, "is_accelerator", lambda: True)
    monkeypatch.setattr(device, "MEMORY", device.Memory())


def test_tiles_shrink_until_they_fit(accelerator):
    tried = []

    def evaluate(places):
        tried.append(len(places))
        return places if len(places) <= 2 else no_memory()

    found = in_tiles(5, BYTES, evaluate)
    assert tried == [8, 4, 2, 2, 2]
    assert [(at.start, at.stop) for at, _ in found] == [(0, 2), (2, 4), (4, 5)]
    in_tiles(2, BYTES, evaluate)
    assert tried[5:] == [2]  # what was too much is not tried again
    with pytest.raises(DeviceMemoryError, match="do not fit the memory"):
        in_tiles(5, BYTES, no_memory)


def test_rows_that_do_not_fit_a_device_are_an_error_in_words(monkeypatch, seed):
    model = logistic(NAMES, groups="g")
    shard = rows("logistic", 1, (), np.random.default_rng(seed))
    monkeypatch.setattr(jax, "device_put", no_memory)
    with pytest.raises(DeviceMemoryError, match="do not fit the memory"):
        both(model, shard, Effort(3, 1))


def test_other_errors_of_a_device_are_raised():
    def broken(_):
        raise jax.errors.JaxRuntimeError("INTERNAL: a bug")

    with pytest.raises(jax.errors.JaxRuntimeError, match="a bug"):
        in_tiles(5, BYTES, broken)


@pytest.mark.parametrize("mean", [1, 5, 40])
def test_classes_hold_every_group_once_and_are_few(mean, seed):
    rng = np.random.default_rng(seed)
    sizes = np.minimum(np.ceil(rng.pareto(1.5, 5000) * mean), 5000).astype(int)
    classes = list(few_classes(sizes))
    np.testing.assert_array_equal(
        np.sort(np.concatenate([groups for _, groups in classes])), np.arange(5000)
    )
    assert all(sizes[groups].max() <= size for size, groups in classes)
    assert len(classes) <= 8
    assert sum(size * len(groups) for size, groups in classes) < 2.5 * sizes.sum()


def test_groups_are_numbered_and_sorted_as_by_numpy(seed):
    rng = np.random.default_rng(seed)
    for codes in (np.arange(50) * 3, np.arange(50) * 10**12, np.arange(50) - 7, np.arange(50) / 2):
        group = rng.choice(codes, 200)
        found, which = numbered(group)
        expected, positions = np.unique(group, return_inverse=True)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(which, positions)
        order = by_group(which, len(found))
        np.testing.assert_array_equal(order, np.argsort(positions, kind="stable"))


def test_round_numbers_are_few_and_little_larger():
    rounded = {n: round_number(n) for n in range(1, 5000)}
    assert all(n <= r <= 1.125 * n + 1 for n, r in rounded.items())
    assert len(set(rounded.values())) < 90
