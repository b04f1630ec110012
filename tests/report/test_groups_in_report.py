"""The section of a report about groups: who stands out, and summaries of other draws."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import quorate
from helpers import browser, one_way
from helpers.report_page import checked
from quorate.report import report
from quorate.results.level_summary import LevelSummary
from quorate.results.saved_local import FILE, LocalSummaries, load

HOSTILE = '</svg><script>alert("1")</script> $x$'


@pytest.fixture(scope="module")
def result(tmp_path_factory, seed):
    data = one_way.table(one_way.rows(np.random.default_rng([seed, 61]), n_groups=50))
    options = {"workers": 2, "draws": 128, "check": False, "progress": False}
    run = tmp_path_factory.mktemp("groups") / "run"
    return quorate.sample(one_way.Nested(), data, run_dir=run, **options)


@pytest.fixture
def folder(result, tmp_path):
    result.local.summary()
    return Path(shutil.copytree(result.run_dir, tmp_path / "run"))


def test_groups_that_stand_out_are_listed_and_drawn(result, folder):
    summary = result.local.summary()
    page = checked(report(folder))
    assert "groups" in page.ids
    apart = ((summary["3%"] > 0) | (summary["97%"] < 0)).sum()
    assert f"50 groups. {apart} of them have a 94 % interval" in page.text
    ratios = (summary["mean"].abs() / summary["sd"]).droplevel("parameter")
    first = ratios.sort_values(ascending=False).index[:30]
    listed = page.text.partition("in units of their sds:")[2].partition("Intercept of the 30")[0]
    assert set(map(str, first)) <= set(listed.split())
    assert "plane:part" in page.text
    assert "Averages over 128 draws of the global parameters" in page.text  # all that there are


def test_a_run_without_summaries_has_no_section(folder):
    (folder / FILE).unlink()
    assert "groups" not in checked(report(folder)).ids


def test_summaries_of_other_draws_are_not_shown(folder):
    found = load(folder)
    LocalSummaries(found.levels, "of other draws", found.n_points).save(folder)
    page = checked(report(folder))
    assert "are of other draws" in page.text
    assert f"quorate local {folder}" in page.text
    assert "in units of their sds" not in page.text


def test_whole_days_are_days(folder):
    found = load(folder)
    days = np.datetime64("2024-02-02T00:00", "us") + np.arange(50) * np.timedelta64(1, "D")
    levels = (replace(found.levels[0], labels=days), *found.levels[1:])
    LocalSummaries(levels, found.digest, found.n_points).save(folder)
    text = checked(report(folder)).text
    assert "2024-02-" in text
    assert "T00:00" not in text


def test_labels_of_a_stranger_are_text(folder):
    found = load(folder)
    first = found.levels[0]
    labels = np.array([f"{HOSTILE} {i}" for i in range(len(first.labels))])
    hostile = LevelSummary(HOSTILE, (HOSTILE,), labels, first.means, first.sds, first.skewnesses)
    LocalSummaries((hostile,), found.digest, found.n_points).save(folder)
    checked(report(folder))


@browser.needed
def test_it_looks_right_in_a_browser(folder, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(report(folder))
    with browser.opened(tmp_path / "profile") as page:
        for width in (360, 1200):
            page.look(path.as_uri(), width)
            texts = page.texts()
            assert not browser.overlapping(texts)
            assert not [text for text in texts if text["cut"] > 1]
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert not page.complaints
