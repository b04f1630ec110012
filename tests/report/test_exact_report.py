"""The report of an exact run: its passes, a merge beside them, and a run that was killed."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from helpers import browser, journals
from helpers.report_page import checked
from quorate.cli import main
from quorate.journal import Journal, JournalReader, PassRecord, Started
from quorate.passes.first_fit import product_of
from quorate.report import report
from quorate.report.evidence import gathered
from quorate.report.exact_sections import merge_beside
from quorate.report.posterior_plots import beside
from quorate.report.svg import Pictures
from quorate.results.summary import slow_in_words
from quorate.run.history import History
from quorate.run.slow import slow_workers

TITLES = [
    "Answer",
    "Verdict",
    "Passes",
    "Densities",
    "Intervals",
    "Merge beside exact",
    "Workers",
    "Draws and errors over time",
    "What waiting would have cost",
    "Bandwidth",
    "Configuration",
    "Versions",
    "How to cite",
]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return journals.exact_run(tmp_path_factory.mktemp("exact") / "run")


@pytest.fixture(scope="module")
def folder(result):
    return Path(result.run_dir)


def test_console_and_report_agree_on_who_was_slow(tmp_path):
    """Two workers sent 40 blocks each and the third 4: the words of the console are those here."""
    blocks = [journals.block(t, k, first=4 * t, shards=(k,)) for t in range(40) for k in (0, 1)]
    late = [journals.block(10 * t, 2, first=4 * t, shards=(2,)) for t in range(4)]
    known = journals.configuration(workers=3, redundancy=1, scheme="cmc", method="merge")
    with Journal.create(tmp_path, known) as journal:
        journal.append([Started(0.0), *sorted([*blocks, *late], key=lambda block: block.time)])
    with History(tmp_path) as history:
        history.read()
        words = slow_workers(history, history.blocks())
    assert words == slow_in_words([40, 40, 4], (), "merge")
    assert f"{words[0].capitalize()}." in checked(report(tmp_path)).text


def test_the_result_counts_the_answers_of_its_journal(result, folder):
    with History(folder) as history:
        history.read()
        blocks = history.blocks()
    assert result.blocks_of_workers() == [len(blocks.of(k)) for k in range(3)]


def test_all_is_there(result, folder):
    page = checked(report(folder))
    assert [title for title in page.texts if title in TITLES] == TITLES
    value, error = result.log_evidence
    for words in (
        f"200 of 200 exact draws by adaptive on 3 workers (redundancy 2), with {result.n_passes}",
        f"passes {result.n_passes}",
        f"chains {result.n_chains}, by elliptical slices draws of each chain 8",
        f"log evidence {value:,.2f} ± {error:.2g}".replace("-", "−"),
        "surveying shards 0.00 s",
        "weighing",
    ):
        assert words in page.text
    assert "CMC" not in page.text.replace("Consensus Monte Carlo", "")
    assert "merged draws" not in page.text


def test_numbers_are_those_of_the_result(result, folder):
    words = checked(report(folder)).text
    rows = result.summary_rows()
    least = min(row["ess"] for name, row in rows.items() if name != "sigma")
    assert f"{least:,.0f}" in words
    for row in rows.values():
        assert f"{row['r_hat']:.3f}" in words
    assert result.verdict.verdict in words


def test_a_merge_of_the_surveys_stands_beside_the_draws(result, folder):
    found = [record.arrays for record in journals.passes_of(folder) if record.lane < 0]
    merge = product_of([(of["mode"], of["lower"]) for of in found], 3)
    draws = result.unconstrained
    shifts = (merge.mean - draws.mean(axis=0)) / draws.std(axis=0)
    words = checked(report(folder)).text
    assert f"off by up to {np.abs(shifts).max():.2f} posterior sds" in words


def test_long_names_cut_neither_legend_nor_axis_and_stay_apart():
    names = [f"atanh-partial(cor_{level}__Intercept__x)" for level in ("s", "s:c")]
    figure = beside([*names, "A" * 60], np.tile([-2.0, 2.0], (3, 1)), np.tile([-1.0, 1.0], (3, 1)))
    figure.draw_without_rendering()
    (axes,), (legend,) = figure.axes, figure.legends
    shown = [*axes.get_yticklabels(), axes.xaxis.label, *legend.get_texts()]
    for text in shown:
        box = text.get_window_extent()
        assert box.x0 >= 0, text
        assert box.x1 <= figure.bbox.x1, text
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[:2] == ["…(cor_s__Intercept__x)", "…(cor_s:c__Intercept__x)"]
    assert max(map(len, labels)) <= 24


@pytest.mark.parametrize(
    ("lacking", "told"),
    [((1,), "Without shard 1, where no Gaussian fit was found"), ((0, 1, 2), "nothing to merge")],
)
def test_shards_without_a_fit_are_named(folder, lacking, told):
    with History(folder) as history:
        history.read()
        history.passes.surveys |= {shard: {} for shard in lacking}
        assert told in merge_beside(gathered(history, folder), history.passes, Pictures())


def test_an_updated_run_has_no_merge_of_fits_with_different_shares_of_the_prior(folder):
    with History(folder) as history:
        history.read()
        history.configuration["update_of"] = {}
        told = merge_beside(gathered(history, folder), history.passes, Pictures())
    assert "Rows were added to an earlier run" in told


@pytest.mark.parametrize(
    ("n_passes", "phase"), [(0, "surveying shards"), (3, "fitting"), (4, "fitting")]
)
def test_a_run_that_was_killed_before_its_first_draw(folder, tmp_path, n_passes, phase):
    run = journals.killed(folder, tmp_path / "run", n_passes)
    page = checked(report(run))
    assert [title for title in page.texts if title in TITLES] == TITLES
    assert "0 of 200 exact draws" in page.text
    assert "still running, or had been killed" in page.text
    assert phase in page.text
    assert "weighing 2" not in page.text


def test_a_run_that_was_killed_at_any_moment(folder, tmp_path):
    n_passes = len(journals.passes_of(folder))
    for n in range(5, n_passes, 6):
        run = journals.killed(folder, tmp_path / f"run {n}", n)
        assert f"{max(0, n - 3)} passes" in checked(report(run)).text


def test_a_survey_that_is_damaged_is_no_trouble(folder, tmp_path):
    with JournalReader(folder) as reader:
        configuration, records = reader.configuration(), list(reader.records())
    first = next(record for record in records if isinstance(record, PassRecord))
    with Journal.create(tmp_path / "run", configuration) as journal:
        journal.append([record for record in records if record is not first])
    words = checked(report(tmp_path / "run")).text
    assert "0 of 200 exact draws" in words
    assert "surveying shards 0.00 s" in words


def test_the_verdict_compares_the_fits_of_shards(folder):
    kept = json.loads((folder / "verdict.json").read_text())
    assert [shard["shard"] for shard in kept["shards"]] == [0, 1, 2]
    assert all(shard["draws"] == 0 for shard in kept["shards"])
    words = checked(report(folder)).text
    assert "Exact and corrected draws, side by side" in words
    assert "distance p-value disagrees shard 0" in words  # and no column of draws


def test_the_command_writes_it(folder, tmp_path):
    path = tmp_path / "report.html"
    answer = CliRunner().invoke(main, ["report", str(folder), "-o", str(path)])
    assert answer.exit_code == 0, answer.output
    checked(path.read_text())


@browser.needed
@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_overlaps(folder, tmp_path, width):
    path = tmp_path / "report.html"
    path.write_text(report(folder))
    with browser.opened(tmp_path / "profile") as page:
        page.look(path.as_uri(), width)
        texts = page.texts()
        assert browser.overlapping(texts) == []
        assert [text["text"] for text in texts if text["cut"] > 1] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.complaints == []
