"""Folders that quorate chooses: dated, new, and gone if a run fails with nothing to resume."""

import re

import pytest

from quorate.errors import BadInputError, LostShardError
from quorate.run.folder import chosen_folder, dated_folder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("flights", "flights"), ("my data (1)", "my-data-1"), ("..", "run"), ("ü/…", "ü")],
)
def test_a_folder_has_a_date_and_a_name(name, shown):
    assert re.fullmatch(rf"runs/\d{{8}}-\d{{6}}-{shown}", str(dated_folder(name)))


def test_a_folder_is_new():
    taken = set()
    for _ in range(4):
        folder = dated_folder("flights")
        folder.mkdir(parents=True)
        taken.add(folder)
    assert len(taken) == 4


@pytest.mark.parametrize(
    ("error", "stays"),
    [(BadInputError("no"), False), (LostShardError((0,), None), True), (KeyboardInterrupt(), True)],
)
def test_what_can_be_resumed_stays(error, stays):
    folder = dated_folder("x")
    folder.mkdir(parents=True)
    with pytest.raises(type(error)), chosen_folder(folder):
        raise error
    assert folder.exists() == stays
