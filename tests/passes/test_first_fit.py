"""Where passes begin if a run has rows added to an earlier one."""

import numpy as np

from quorate.passes.first_fit import Before
from quorate.passes.inquiry import Inquiry


def survey(mode, sd):
    return {"mode": np.array([mode]), "lower": np.array([[sd]])}


def begun(surveys, before=None):
    inquiry = Inquiry(np.zeros(1), ["x"], 64, 0, has_gradient=False, before=before)
    inquiry.begin(surveys)
    return inquiry


def test_the_old_fit_stands_for_the_surveys_of_old_shards():
    before = Before(np.array([4.0]), np.array([[0.5]]), n_shards=2)
    surveys = {0: survey(-9.0, 1.0), 1: {}, 2: survey(1.0, 1.0)}
    base = begun(surveys, before).fit.base
    np.testing.assert_allclose(base.mean, 17 / 5, rtol=1e-3)  # precisions 4 and 1
    np.testing.assert_allclose(base.lower, np.sqrt([[1 / 5]]), rtol=1e-3)
    assert abs(begun(surveys).fit.base.mean[0] - base.mean[0]) > 1


def test_a_new_shard_without_a_fit_leaves_the_old_fit_alone():
    before = Before(np.array([4.0]), np.array([[0.5]]), n_shards=1)
    base = begun({0: survey(4.0, 0.5), 1: {}}, before).fit.base
    np.testing.assert_allclose([base.mean[0], base.lower[0, 0]], [4.0, 0.5], rtol=1e-3)


def test_an_old_fit_that_is_far_off_is_given_up():
    """The last point of the first question is the start of the model: here it is far better."""
    before = Before(np.array([1000.0]), np.array([[0.5]]), n_shards=1)
    inquiry = begun({0: survey(1000.0, 0.5), 1: {}}, before)
    inquiry.take(0, -0.5 * inquiry.open[0].points[:, 0] ** 2)
    np.testing.assert_array_equal(inquiry.fit.base.mean, [0.0])
