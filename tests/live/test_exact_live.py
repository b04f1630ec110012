"""The live page of an exact run, at every moment of it."""

import json
from pathlib import Path

import numpy as np
import pytest

from helpers import browser, journals
from helpers.live_client import served
from quorate.journal import Journal, JournalReader, PassRecord
from quorate.live.view import LiveView
from quorate.run.history import History


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return Path(journals.exact_run(tmp_path_factory.mktemp("exact") / "run").run_dir)


def test_every_moment_of_a_run(folder, tmp_path):
    with JournalReader(folder) as reader:
        configuration, records = reader.configuration(), list(reader.records())
    now, phases, shown = [0.0], [], []
    view = LiveView(tmp_path, lambda: now[0])
    with Journal.create(tmp_path, configuration) as journal:
        for record in [None, *records]:
            journal.append([] if record is None else [record])
            now[0] += 1.0
            state = json.loads(json.dumps(view.look(), allow_nan=False))
            phases.append(state["phase"])
            if isinstance(record, PassRecord):
                shown.append((state["passes"], state["draws"]))
    view.close()
    assert list(dict.fromkeys(phases)) == [
        "surveying shards", "fitting", "weighing", "drawing", "done"
    ]  # fmt: skip
    assert [passes for passes, _ in shown[3:]] == list(range(1, len(shown) - 2))
    assert shown == sorted(shown)
    assert shown[-1][1] == 200


def test_what_is_shown_in_the_end(folder):
    view = LiveView(folder)
    state = view.look()
    view.close()
    with History(folder) as history:
        history.read()
    blocks = history.blocks()
    assert (state["method"], state["reason"]) == ("exact", "done")
    assert (state["draws"], state["passes"]) == (200, history.n_passes)
    assert state["ess"] == history.view.least_ess() > 0
    assert [lane["draws"] for lane in state["lanes"]] == [
        int((blocks.of(k).n_draws * blocks.of(k).n_shards).sum()) for k in range(3)
    ]
    assert [p["name"] for p in state["parameters"]] == ["one", "x", "sigma"]
    sigma = np.exp(history.global_draws()[:, 2])
    assert state["parameters"][2]["mean"] == pytest.approx(sigma.mean())
    assert not any(p["unconstrained"] for p in state["parameters"])
    assert state["times"] == sorted(state["times"])
    assert state["times"][-1] == pytest.approx(blocks.releasing_time, abs=1e-3)


@browser.needed
@pytest.mark.parametrize("n_passes", [0, 1, 4, None])
def test_a_browser_shows_the_phase(folder, tmp_path, n_passes):
    run, told = folder, "done"
    if n_passes is not None:
        run = journals.killed(folder, tmp_path / "run", n_passes)
        told = "fitting, 1 pass over" if n_passes == 4 else "surveying shards, 0 passes over"
    with served(run) as client, browser.opened(tmp_path / "profile") as page:
        page.look(client.origin + client.path, 900)
        page.wait_for("document.getElementById('lanes').children.length === 3")
        texts = [text["text"] for text in page.texts()]
        assert any(text.startswith(told) for text in texts)
        assert any(text.endswith("points") or "points ·" in text for text in texts)
        assert page.complaints == []
