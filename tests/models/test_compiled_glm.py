"""Regressions compiled by JAX: the values of numpy, in whatever chunks."""

import pickle

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.errors import DeviceMemoryError
from quorate.models import device, linear, logistic, negative_binomial, poisson, student
from quorate.models.regressions.compiled import CompiledRegression
from quorate.models.subposterior import Target, log_densities, log_densities_and_gradients

FAMILIES = {
    "logistic": logistic,
    "poisson": poisson,
    "negative_binomial": negative_binomial,
    "student": student,
}
EXTRAS = ("weights", "offset")


def rows_of(name, rng, n, p, extras=()):
    y = rng.integers(0, 2, n) if name == "logistic" else rng.poisson(3.0, n)
    rows = {"X": rng.standard_normal((n, p)), "y": y.astype(float)}
    found = {"weights": rng.integers(0, 4, n).astype(float), "offset": rng.standard_normal(n)}
    return rows | {extra: found[extra] for extra in extras}


def assert_same(model, rows, points):
    moved = model.on_device()
    assert isinstance(moved, CompiledRegression)
    values, gradients = model.log_likelihood_and_gradient_many(points, rows)
    found, slopes = moved.log_likelihood_and_gradient_many(points, rows)
    finite = np.isfinite(values)
    np.testing.assert_allclose(found[finite], values[finite], rtol=1e-11, atol=1e-9)
    np.testing.assert_allclose(slopes[finite], gradients[finite], rtol=1e-8, atol=1e-7)
    plain = moved.log_likelihood_many(points, rows)
    np.testing.assert_allclose(plain[finite], values[finite], rtol=1e-11, atol=1e-9)
    assert not np.isfinite(plain[~finite]).any()


@pytest.mark.parametrize("name", FAMILIES)
@given(
    n=st.sampled_from([1, 130, 400]),  # each is compiled
    p=st.sampled_from([1, 4]),
    n_points=st.integers(1, 16),
    extras=st.sets(st.sampled_from(EXTRAS)),
    draw=st.integers(0, 2**32),
)
@settings(max_examples=8, deadline=None)
def test_values_are_those_of_numpy(name, n, p, n_points, extras, draw):
    rng = np.random.default_rng(draw)
    model = FAMILIES[name](p)
    points = rng.standard_normal((n_points, model.dim))
    points[0] *= 5  # far out
    assert_same(model, rows_of(name, rng, n, p, sorted(extras)), points)


@pytest.mark.parametrize("name", FAMILIES)
def test_rows_in_chunks(name, rng, monkeypatch):
    """With memory for an eighth of the rows at a time."""
    rows = rows_of(name, rng, 70_000, 2)
    monkeypatch.setattr(device, "ON_A_CORE", 8 * 16 * 70_000 / 8)
    monkeypatch.setattr(device, "MEMORY", device.Memory())
    model = FAMILIES[name](2)
    assert_same(model, rows, 0.3 * rng.standard_normal((16, model.dim)))


def test_binomial_counts(rng):
    trials = rng.integers(1, 9, 300).astype(float)
    rows = {"X": rng.standard_normal((300, 2)), "y": rng.binomial(8, 0.5, 300).clip(max=trials)}
    assert_same(logistic(2), rows | {"trials": trials}, rng.standard_normal((7, 2)))


def test_a_linear_regression_stays_in_numpy():
    """Its rows are a small triangle."""
    model = linear(3)
    assert model.on_device() is model


def test_compiled_regressions_travel(rng):
    rows, points = rows_of("logistic", rng, 50, 3), rng.standard_normal((4, 3))
    model = logistic(3).on_device()
    values = model.log_likelihood_many(points, rows)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.log_likelihood_many(points, rows), values)


# ---------------------------------------------------------------- memory


def out_of_memory(limit, enough):
    if limit > enough:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating bytes")
    return limit


def test_out_of_memory_becomes_smaller_chunks(monkeypatch):
    monkeypatch.setattr(device, "is_accelerator", lambda: True)
    memory = device.Memory()
    first = memory.limit
    found = memory.fit(lambda limit: out_of_memory(limit, first / 3))
    assert found == memory.limit == first / 4


def test_out_of_memory_in_words(monkeypatch):
    monkeypatch.setattr(device, "is_accelerator", lambda: True)
    with pytest.raises(DeviceMemoryError, match="do not fit the memory of cpu:0"):
        device.Memory().fit(lambda limit: out_of_memory(limit, 0))


def test_a_point_does_not_count_as_impossible_where_memory_lacks(rng, monkeypatch):
    """An error that says so ends the evaluation: -inf would make the draws wrong."""
    rows = rows_of("logistic", rng, 50, 2)
    target = Target(logistic(2).on_device(), rows, 1)
    monkeypatch.setattr(CompiledRegression, "_compiled", lambda *_: out_of_memory(1, 0))
    for evaluate in (log_densities, log_densities_and_gradients):
        with pytest.raises(DeviceMemoryError):
            evaluate(target, rng.standard_normal((3, 2)))


def test_other_errors_of_the_device_are_not_hidden():
    def fail(limit):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        device.Memory().fit(fail)


SIZES = {0: 1, 1: 1, 2: 64, 65: 512, 4096: 4096, 4097: 8192}


@pytest.mark.parametrize(("n", "size"), SIZES.items())
def test_few_sizes_on_an_accelerator(monkeypatch, n, size):
    monkeypatch.setattr(device, "is_accelerator", lambda: True)
    points = np.arange(2.0 * n).reshape(n, 2)
    padded = device.padded(points)
    assert padded.shape == (size, 2)
    np.testing.assert_array_equal(padded[:n], points)
