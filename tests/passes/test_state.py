"""Chains that go on from a state: the same bits as chains that were never put away."""

import numpy as np
import pytest

from helpers.passes import Posterior, answer_all, begun, gaussian, random_gaussian
from quorate.passes.ensemble import Ensemble
from quorate.passes.hmc import HmcEnsemble

N_DRAWS, MORE = 600, 900


def bent():
    """A banana, on which slices mix badly."""

    def values(points):
        x, y = points.T
        return -0.5 * x**2 - 50 * (y - 3 * x**2) ** 2

    def gradients(points):
        x, y = points.T
        gap = 100 * (y - 3 * x**2)
        return np.stack([-x + 6 * x * gap, -gap], axis=1)

    return Posterior(2, values, gradients)


KINDS = {"slices": Ensemble, "hmc": HmcEnsemble}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def posterior(kind, rng):
    return bent() if kind == "hmc" else gaussian(*random_gaussian(rng, 3))


def with_chains(posterior, seed):
    """An inquiry whose chains have just started."""
    inquiry = begun(posterior, N_DRAWS, seed)
    answer_all(inquiry, posterior, until=lambda: bool(inquiry.ensembles))
    return inquiry


def after(posterior, seed, n_passes):
    inquiry = with_chains(posterior, seed)
    answer_all(inquiry, posterior, until=lambda: inquiry.n_passes >= n_passes)
    return inquiry


def restored(inquiry, posterior, seed):
    """Another inquiry, in the state of `inquiry`."""
    other = with_chains(posterior, seed)
    state = {name: array.copy() for name, array in inquiry.state().items()}
    assert other.is_of(state)
    other.restore(state)
    return other


def assert_same(one, other):
    np.testing.assert_array_equal(one.draws(), other.draws())
    assert one.n_passes == other.n_passes
    assert [e.n_evaluations for e in one.ensembles] == [e.n_evaluations for e in other.ensembles]
    for mine, its in zip(one.ensembles, other.ensembles, strict=True):
        np.testing.assert_array_equal(mine.log_densities, its.log_densities)


def assert_asks_the_same(one, other):
    assert one.open.keys() == other.open.keys()
    for lane, asked in one.open.items():
        assert (asked.number, asked.phase) == (other.open[lane].number, other.open[lane].phase)
        np.testing.assert_array_equal(asked.points, other.open[lane].points)


def test_a_restored_run_goes_on_with_the_same_bits(kind, posterior, seed, rng):
    whole = after(posterior, seed, np.inf)
    assert {type(each) for each in whole.ensembles} == {KINDS[kind]}
    first = with_chains(posterior, seed).n_passes
    for n_passes in {first, *rng.integers(first, whole.n_passes, 6).tolist(), whole.n_passes}:
        inquiry = after(posterior, seed, n_passes)
        other = restored(inquiry, posterior, seed)
        assert_asks_the_same(inquiry, other)
        assert_same(inquiry, other)
        answer_all(other, posterior)
        assert_same(whole, other)


def test_a_finished_run_is_restored_and_extended(posterior, seed):
    whole = after(posterior, seed, np.inf)
    other = restored(whole, posterior, seed)
    for inquiry in (whole, other):
        inquiry.extend(MORE)
        answer_all(inquiry, posterior)
    assert len(other.draws()) == MORE
    assert_same(whole, other)


def test_a_state_of_other_chains_is_known(posterior, seed):
    """Those of a posterior elsewhere are around another fit."""
    inquiry = after(posterior, seed, 30)
    values, gradients = posterior.values, posterior.gradients
    elsewhere = Posterior(posterior.dim, lambda x: values(x - 1), lambda x: gradients(x - 1))
    assert not with_chains(elsewhere, seed).is_of(inquiry.state())
    assert not with_chains(posterior, seed).is_of({})
    state = inquiry.state()
    del state["0/_z"]
    assert not with_chains(posterior, seed).is_of(state)


def test_chains_that_are_nowhere_are_refused(posterior, kind, seed):
    state = {name: array.copy() for name, array in after(posterior, seed, 40).state().items()}
    counter = "1/_n_done" if kind == "hmc" else "1/_step"
    state[counter] = state[counter] + 10**6
    with pytest.raises(ValueError, match="too far"):
        with_chains(posterior, seed).restore(state)
