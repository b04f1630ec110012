"""Progress of real runs, and how it is shown: phases, time left, ESS, R-hat, slow workers."""

import io
import json
import time
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from rich.console import Console

import quorate
from helpers import journals
from helpers.processes import MeanModel
from quorate.models import Real, from_functions
from quorate.protocol.messages import Happening, Note
from quorate.run.progress import Health, Pace, Phase, Progress, silence
from quorate.run.progress_shown import (
    LiveTable,
    NotebookCell,
    cell_html,
    json_lines,
    one_line,
    plain_lines,
    shown,
)
from quorate.run.telling import Looks

LOST = (3.5, Note(1, Happening.LOST, "exit code 9\nmore"))
DRAWING = Progress(
    seconds=4.0,
    draws=50,
    target=200,
    phase=Phase.DRAWING,
    done=300,
    total=900,
    seconds_left=6.4,
    notes=(LOST,),
    health=Health(41.6, 1.014, 3, "worker 2 was slow"),
)
FITTING = Progress(1.0, 0, 200, Phase.FITTING, passes=1)


def in_order(heard):
    """The phases, each as often as it began."""
    return [str(phase) for phase, _ in groupby(heard, key=lambda progress: progress.phase)]


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    heard = []
    result = journals.exact_run(tmp_path_factory.mktemp("exact") / "run", heard.append)
    return result, heard


@pytest.fixture(scope="module")
def merged(tmp_path_factory, seed):
    heard = []
    rows = {"z": np.random.default_rng(seed).normal([1.0, -2.0], size=(200, 2))}
    options = {"workers": 2, "draws": 4000, "scheme": "cmc", "method": "merge", "seed": seed}
    folder = tmp_path_factory.mktemp("merge") / "run"
    listen = {"progress": heard.append, "every": 0.0}
    return quorate.sample(MeanModel(), rows, run_dir=folder, **listen, **options), heard


def test_phases_of_an_exact_run(exact):
    result, heard = exact
    phases = in_order(heard)
    assert phases[:2] == ["cutting rows", "starting workers"]
    assert phases[-6:] == ["done", "gathering", "summarising", "saving", "checking", "saving"]
    middle = ["surveying shards", "fitting", "weighing", "drawing"]
    assert [phase for phase in middle if phase in phases] == phases[2:-6]
    assert heard[-1].passes == result.n_passes


def test_a_model_that_is_compiled_says_so(seed):
    """Plain functions in JAX: until the first answer, workers compile."""
    pytest.importorskip("jax")
    heard = []

    def log_prior(p):
        return -0.5 * p["mu"] ** 2

    def log_likelihood(p, rows):
        return -0.5 * ((rows["z"] - p["mu"]) ** 2).sum()

    model = from_functions(log_prior, log_likelihood, {"mu": Real()}, backend="jax")
    rows = {"z": np.random.default_rng(seed).normal(size=40)}
    options = {"workers": 1, "draws": 50, "check": False, "every": 0.0}
    quorate.sample(model, rows, progress=heard.append, **options)
    assert in_order(heard)[1:4] == ["starting workers", "compiling", "fitting"]


def test_phases_of_a_merge(merged):
    _, heard = merged
    phases = in_order(heard)
    assert phases[:2] == ["cutting rows", "starting workers"]
    after = ["gathering", "summarising", "saving", "checking", "saving"]
    assert phases[-6:] == ["drawing", *after]


@pytest.mark.parametrize("which", ["exact", "merged"])
def test_no_phase_goes_back(which, request):
    _, heard = request.getfixturevalue(which)
    for _, of_phase in groupby(heard, key=lambda progress: progress.phase):
        done = [progress.done for progress in of_phase]
        assert done == sorted(done)
    for progress in heard:
        assert progress.total is None or progress.done <= progress.total
        assert progress.seconds_left is None or progress.seconds_left >= 0


def test_all_rows_are_cut(merged):
    _, heard = merged
    last = [progress for progress in heard if progress.phase is Phase.CUTTING][-1]
    assert (last.done, last.total) == (200, 200)
    assert len(last.workers) == 2


class Draws:
    """A view that counts how often it is asked."""

    def __init__(self, n_draws, ess):
        self.n_draws, self._ess, self.n_asked = n_draws, np.array(ess), 0

    def ess(self):
        self.n_asked += 1
        return self._ess

    def r_hat(self):
        return np.array([1.02, 1.3])


def test_looks_at_the_draws_are_seldom():
    view = Draws(100, [50.0, 20.0])
    looks = Looks(view)
    assert [looks.at(now) for now in (0.0, 0.5, 0.9)] == [(20.0, 1.3)] * 3
    assert view.n_asked == 1
    looks.at(1000.0)
    assert view.n_asked == 2


@pytest.mark.parametrize("view", [Draws(0, [1.0]), Draws(5, [np.nan, 3.0])])
def test_nothing_is_known_of_too_few_draws(view):
    assert Looks(view).at(0.0) == (None, None)


def test_the_time_left_is_that_at_the_speed_so_far():
    pace = Pace()
    assert pace.seconds_left(2.0, Phase.CUTTING, 10, 100) is None
    assert pace.seconds_left(4.0, Phase.CUTTING, 40, 100) == pytest.approx(4.0)
    assert pace.seconds_left(5.0, Phase.DRAWING, 40, 100) is None  # a new phase
    assert pace.seconds_left(6.0, Phase.DRAWING, 60, None) is None


# ---------------------------------------------------------------- how it is shown


def test_one_line():
    assert one_line(FITTING).strip() == "1.0 s  fitting, pass 2"
    assert one_line(DRAWING).strip() == (
        "4.0 s  drawing, 50 of 200 draws, about 6 s left, smallest ESS 42, largest R-hat 1.01, "
        "3 divergences"
    )
    cutting = Progress(1.0, 0, 200, Phase.CUTTING, 5000, 20000)
    assert one_line(cutting).strip() == "1.0 s  cutting rows, 5,000 of 20,000 rows"
    unknown = Progress(1.0, 0, 200, Phase.CUTTING, 5000)
    assert one_line(unknown).strip() == "1.0 s  cutting rows, 5,000 rows"


def test_lines_tell_a_note_once_and_each_phase():
    file = io.StringIO()
    listen = plain_lines(file)
    for progress in (FITTING, DRAWING, DRAWING):
        listen(progress)
    lines = [line.strip() for line in file.getvalue().splitlines()]
    assert lines == [
        one_line(FITTING).strip(),
        "3.5 s  worker 1 lost: exit code 9",
        one_line(DRAWING).strip(),
    ]


def test_lines_become_rarer_as_a_run_lasts(monkeypatch):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    file = io.StringIO()
    listen = plain_lines(file)
    while now < 600:  # once a second
        listen(replace(FITTING, seconds=now))
        now += 1
    seconds = [float(line.split()[0]) for line in file.getvalue().splitlines()]
    gaps = np.diff(seconds)
    np.testing.assert_array_equal(gaps[:4], 5)
    np.testing.assert_array_equal(gaps[-4:], 60)
    assert np.all(np.diff(gaps) >= 0)
    assert len(seconds) < 25


def test_json_lines():
    file = io.StringIO()
    json_lines(file)(DRAWING)
    note, progress = map(json.loads, file.getvalue().splitlines())
    assert note["what"] == "lost"
    assert progress == {**DRAWING.as_json(), "workers": []}
    assert (progress["phase"], progress["ess"]) == ("drawing", 41.6)


def test_a_table_on_a_terminal():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=120)
    with LiveTable(console) as listen:
        listen(DRAWING)
    told = file.getvalue()
    for words in ("50 of 200 draws", "worker 2 was slow", "worker 1 lost"):
        assert words in told


def test_a_cell_of_a_notebook_is_updated_in_place(monkeypatch):
    IPython = pytest.importorskip("IPython")  # noqa: N806
    shown_pages = []

    class Handle:
        def update(self, page):
            shown_pages[-1] = page.data

    def display(page, display_id):
        shown_pages.append(page.data)
        return Handle()

    monkeypatch.setattr(IPython.display, "display", display)
    listen = NotebookCell()
    listen(FITTING)
    listen(DRAWING)
    assert shown_pages == [cell_html(DRAWING)]
    assert 'value="0.333"' in shown_pages[0]
    assert "worker 2 was slow" in shown_pages[0]


def test_what_suits_the_surroundings(capfd):
    with shown(False) as listen:
        assert listen is silence
    heard = []
    with shown(heard.append) as listen:
        listen(FITTING)
    assert heard == [FITTING]
    with shown(True) as listen:  # standard error is no terminal in tests
        listen(FITTING)
    assert "fitting, pass 2" in capfd.readouterr().err
