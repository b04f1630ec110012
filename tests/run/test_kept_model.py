"""The model kept with a run: a file that is damaged or exchanged is not executed."""

import pickle
import shutil
import warnings

import numpy as np
import pytest

import quorate
from helpers.processes import MeanModel
from quorate.errors import BadInputError, ChangedModelWarning, JournalError
from quorate.run import kept_model

DRAWS = 300


class OtherModel(MeanModel):
    """The same parameters, another posterior."""

    def log_likelihood(self, x, shard):
        return float(-0.5 * np.sum((shard["z"] - x - 5.0) ** 2))


class Tells:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def run(folder, model, **options):
    rows = {"z": np.random.default_rng(1).normal(size=(100, 2))}
    options = {"workers": 2, "draws": DRAWS, "method": "merge", "sampler": "ellipse"} | options
    return quorate.sample(
        model, rows, run_dir=folder, check=False, progress=False, scheme="cmc", **options
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept") / "run"
    run(folder, MeanModel())
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def go_on(folder, model=None):
    return quorate.resume(folder, model, draws=2 * DRAWS, progress=False, check=False)


def refused(folder, match):
    for use in (go_on, quorate.check):
        with pytest.raises(BadInputError, match=match) as caught:
            use(folder)
        assert "model=" in str(caught.value)


def test_the_model_of_another_run_is_refused_and_not_executed(folder, tmp_path):
    run(tmp_path / "other", OtherModel())
    shutil.copy(tmp_path / "other" / kept_model.NAME, folder)
    refused(folder, "not the one that the run began with")
    told = tmp_path / "executed"
    (folder / kept_model.NAME).write_bytes(pickle.dumps(Tells(told)))
    refused(folder, "not the one that the run began with")
    assert not told.exists()


@pytest.mark.parametrize("n_bytes", [0, 1, 100])
def test_a_truncated_model_is_refused_in_words(n_bytes, folder):
    path = folder / kept_model.NAME
    path.write_bytes(path.read_bytes()[:n_bytes])
    refused(folder, "not the one that the run began with")


def test_a_missing_model_is_refused_in_words(folder):
    (folder / kept_model.NAME).unlink()
    refused(folder, "cannot be read")


def test_a_model_given_on_purpose_takes_the_place_of_a_damaged_one(folder, tmp_path):
    undamaged = go_on(shutil.copytree(folder, tmp_path / "undamaged"))
    (folder / kept_model.NAME).write_bytes(b"nothing")
    with pytest.warns(ChangedModelWarning, match="sampler ellipse"):
        result = go_on(folder, MeanModel())
    np.testing.assert_array_equal(result.unconstrained, undamaged.unconstrained)
    with pytest.warns(ChangedModelWarning, match="sampler ellipse"):
        assert quorate.check(folder, MeanModel()).verdict


def own_sampler(density, start, rng):
    while True:
        yield rng.normal(size=len(start))


def test_a_sampler_of_ones_own_is_lost_with_the_file(tmp_path):
    run(tmp_path, MeanModel(), sampler=own_sampler)
    (tmp_path / kept_model.NAME).write_bytes(b"nothing")
    with pytest.raises(BadInputError, match=r"sampler .* kept in the same file"):
        go_on(tmp_path, MeanModel())


def test_the_model_that_was_kept_is_opened_without_a_word(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert go_on(folder).n_draws == 2 * DRAWS


def test_a_second_run_in_the_same_folder_leaves_the_first_as_it_was(folder):
    """Another process may pickle the same model to other bytes; here it is another model."""
    before = (folder / kept_model.NAME).read_bytes()
    with pytest.raises(JournalError, match="exists already: resume that run"):
        run(folder, OtherModel())
    assert (folder / kept_model.NAME).read_bytes() == before
    assert go_on(folder).n_draws == 2 * DRAWS
