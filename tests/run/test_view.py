"""Result, report, live page and stopping rule tell the same of one run: ESS, and who is gone."""

import os
import re
import shutil
import signal

import numpy as np
import pytest

import quorate
from helpers import journals
from quorate.engines.options import Processes
from quorate.live.view import LiveView
from quorate.merging.ess import fewest_draws
from quorate.models import linear
from quorate.report import report
from quorate.results.summary import gone_in_words
from quorate.run.history import History

WORKERS, FAULTS = 6, "slow:1x5"
AT_WORK = ("starting", "working", "ended")


def run(folder, seed, **options):
    """A run of a linear regression, and its result."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(400), rng.normal(size=400)])  # noqa: N806
    rows = {"X": X, "y": X @ [1.0, 2.0] + 1.5 * rng.normal(size=400)}
    model = linear(["one", "x"])
    options = {"progress": False, "check": False} | options
    return folder, quorate.sample(model, rows, seed=seed, run_dir=folder, **options)


class KillsTheLast:
    """Kills the last worker as soon as it has a process: no run ends before that is known."""

    def __init__(self):
        self.done = False

    def __call__(self, progress):
        pid = progress.workers[WORKERS - 1].pid if progress.workers else None
        if not self.done and pid is not None:
            self.done = True
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module", params=["adaptive", "grouped", "coded", "exact"])
def ended(request, tmp_path_factory, seed):
    """A run with a slow worker and one that dies and is not restarted, and its result."""
    kind = {"method": "merge", "sampler": "ellipse", "scheme": request.param}
    if request.param == "exact":
        kind = {"method": "exact"}
    options = {"workers": WORKERS, "redundancy": 3, "draws": 600, "faults": FAULTS, **kind}
    folder, attack = tmp_path_factory.mktemp("runs") / request.param, KillsTheLast()
    found = run(folder, seed, engine=Processes(restarts=0), progress=attack, **options)
    assert attack.done
    return found


def history_of(folder):
    with History(folder) as history:
        history.read()
    return history


def state_of(folder):
    view = LiveView(folder)
    try:
        return view.look()
    finally:
        view.close()


def ess_in_report(folder):
    """The column of ESS in the first table, by parameter."""
    [found] = re.findall(r'<table class="stacked[^"]*">.*?</table>', report(folder), re.DOTALL)
    [place] = [i for i, name in enumerate(re.findall("<th.*?>(.*?)</th>", found)) if name == "ESS"]
    rows = re.findall(r"<bdi>(.*?)</bdi></th>(.*?)</tr>", found)
    cells = {name: re.findall("<td>(.*?)</td>", rest) for name, rest in rows}
    return {name: int(row[place - 1].replace(",", "")) for name, row in cells.items()}


def warnings_of(folder):
    return re.findall(r'<p class="warning">(.*?)</p>', report(folder))


def gone_on_the_page(folder):
    lanes = enumerate(state_of(folder)["lanes"])
    return {worker for worker, lane in lanes if lane["status"] not in AT_WORK}


def test_everybody_tells_the_same_ess(ended):
    folder, result = ended
    history, state = history_of(folder), state_of(folder)
    told = result.summary()["ess"]
    least = history.view.least_ess()
    assert 20 < least < 4 * result.n_draws
    assert told.min() == pytest.approx(least, rel=1e-9)
    assert state["ess"] == pytest.approx(least, rel=1e-9)
    for parameter, shown, ess in zip(state["parameters"], told, history.view.ess(), strict=True):
        assert shown == pytest.approx(ess, rel=1e-9)  # that of sigma is that of log(sigma)
        assert parameter["ess"] == pytest.approx(ess, rel=1e-9)
    assert ess_in_report(folder) == {name: round(ess) for name, ess in told.items()}


@pytest.mark.parametrize("n_draws", [fewest_draws(3) - 1, fewest_draws(3)])
def test_everybody_knows_from_when_on_there_is_an_ess(n_draws, tmp_path, seed):
    options = {"workers": 2, "redundancy": 1, "draws": n_draws, "sampler": "ellipse"}
    folder, result = run(tmp_path / "run", seed, method="merge", scheme="cmc", **options)
    known = n_draws == fewest_draws(3)
    assert len(result.unconstrained) == n_draws
    assert np.isfinite(history_of(folder).view.ess()).all() == known
    assert np.isfinite(result.summary()["ess"]).all() == known
    assert (state_of(folder)["ess"] is not None) == known


def test_a_report_from_the_journal_alone_tells_the_same(ended, tmp_path):
    folder, result = ended
    shutil.copy(folder / "journal.sqlite", tmp_path)
    told = [round(ess) for ess in result.summary()["ess"]]
    assert list(ess_in_report(tmp_path).values()) == told


def test_everybody_tells_the_same_workers_gone(ended):
    folder, result = ended
    assert WORKERS - 1 in result.lost  # a slow one may be taken for lost on a busy machine
    assert set(history_of(folder).gone()) == result.lost
    assert gone_on_the_page(folder) == result.lost
    notes = ((note.worker, note.what) for _, note in result.timeline.notes)
    words = gone_in_words(result.lost, notes)
    assert words[0].startswith(("lost worker", "silent worker"))
    assert "; ".join(words) in repr(result)
    assert warnings_of(folder)[0] == f"Gone at the end: {', '.join(words)}."


@pytest.mark.parametrize("finished", [True, False])
def test_a_quarantined_worker_is_gone(finished, tmp_path):
    records = [
        *journals.a_run()[:-2],
        journals.happened(5.0, "quarantined", 1, "it contradicts worker 0 at draw 20"),
    ]
    folder = journals.write(tmp_path, records, finished=finished)
    assert set(history_of(folder).gone()) == gone_on_the_page(folder) == {1}
    assert state_of(folder)["lanes"][1]["status"] == "quarantined"
    assert "Gone at the end: quarantined worker 1." in warnings_of(folder)
    assert "worker 1 quarantined: it contradicts worker 0" in report(folder)
