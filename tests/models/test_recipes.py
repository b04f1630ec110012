"""Holders of a shard that follow a recipe: the bits of the one who wrote it, without its search."""

from dataclasses import replace

import numpy as np
import pytest
from tests.helpers.grouped_rows import case
from tests.helpers.nested_rows import nested_case

from quorate.models.groups.accuracy import Effort
from quorate.models.groups.regressions import preparation
from quorate.models.groups.regressions.preparation import Recipe
from quorate.models.protocol import SearchingModel

CASES = {
    "logistic": lambda rng: case("logistic", 1, rng),
    "logistic, slopes": lambda rng: case("logistic", 2, rng),
    "logistic, some groups stand for all": lambda rng: case("logistic", 1, rng, 600, 7000),
    "negative binomial": lambda rng: case("negative_binomial", 1, rng),
    "nested": lambda rng: nested_case("logistic", 1, 1, rng),
}


class SearchError(Exception):
    """Somebody searched for the mode of a shard."""


@pytest.fixture
def no_search(monkeypatch):
    """Let every search from now on be an error."""

    def begin():
        def searched(density, start):
            raise SearchError

        monkeypatch.setattr(preparation, "searched", searched)

    return begin


def answers(model, shard, points):
    return model.log_likelihood_and_gradient_many(points, shard)


@pytest.mark.parametrize("name", CASES)
def test_a_follower_has_the_same_bits_and_does_not_search(name, rng, no_search):
    found = CASES[name](rng)
    model, shard = found.model, found.shard
    follower, another = replace(model), replace(model)
    assert isinstance(model, SearchingModel)
    mode, cov = model.rough_fit(shard, 2)
    recipe = model.recipe(shard)
    points = rng.multivariate_normal(mode, cov, 7)
    expected = answers(model, shard, points)
    no_search()
    follower.prepare_by(recipe, shard)
    for own, other in zip(answers(follower, shard, points), expected, strict=True):
        np.testing.assert_array_equal(own, other)
    with pytest.raises(SearchError):
        answers(another, shard, points)


def test_a_device_follows_what_cores_found(rng, no_search):
    pytest.importorskip("jax")
    found = CASES["logistic"](rng)
    model, shard = found.model, found.shard
    mode, cov = model.rough_fit(shard, 2)
    points = rng.multivariate_normal(mode, cov, 7)
    no_search()
    device = model.on_device()
    device.prepare_by(model.recipe(shard), shard)
    values, gradients = answers(device, shard, points)
    expected, their_gradients = answers(model, shard, points)
    np.testing.assert_allclose(values, expected, rtol=1e-10)
    np.testing.assert_allclose(gradients, their_gradients, rtol=1e-6, atol=1e-7)


def test_a_closed_form_needs_no_recipe(rng):
    found = case("linear", 1, rng)
    assert found.model.recipe(found.shard) is None
    found.model.prepare_by(RIGHT, found.shard)


DIM = 3
RIGHT = Recipe(np.array([0.1, 0.2, 0.3]), Effort(7, 1)).as_array()
WRONG = {
    "too short": RIGHT[:-1],
    "too long": np.append(RIGHT, 1.0),
    "a matrix": RIGHT[None],
    "not a number": np.where(RIGHT == 0.2, np.nan, RIGHT),
    "infinite": np.where(RIGHT == 7, np.inf, RIGHT),
    "more nodes than there are": np.where(RIGHT == 7, 1e9, RIGHT),
    "no nodes": np.where(RIGHT == 7, 0, RIGHT),
}


def test_a_recipe_comes_back_as_it_was():
    np.testing.assert_array_equal(Recipe.of(RIGHT, DIM, 1).as_array(), RIGHT)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_recipe_is_left(name, rng):
    """Such a recipe may come from a journal of somebody else. The shard is searched then."""
    assert Recipe.of(WRONG[name], DIM, 1) is None
    found = case("logistic", 1, rng)
    follower = replace(found.model)
    follower.prepare_by(WRONG[name], found.shard)
    points = found.truth[None]
    np.testing.assert_array_equal(
        answers(follower, found.shard, points)[0], answers(found.model, found.shard, points)[0]
    )
