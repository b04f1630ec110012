"""The report: one file that asks for nothing, with everybody's strings as text."""

import json
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import journals
from quorate.cli import main
from quorate.errors import BadInputError, JournalError
from quorate.report import citing, report, verdict, write_report
from quorate.report.markup import element, number, plain, seconds, text
from quorate.report.posterior_plots import forest
from quorate.report.run_plots import lanes
from quorate.report.svg import Pictures, shard_colour
from quorate.story import Story

NASTY = "<script>alert(1)</script>"
NAMES = (NASTY, '"><img src=x onerror=alert(1)>', "$\\frac{1}{2}$", "#010203 &amp; ${style} 漢字")
TITLES = [
    "Answer",
    "Verdict",
    "Shards against the merge",
    "Forest",
    "Workers",
    "Draws and errors against time",
    "What waiting would have cost",
    "Bandwidth",
    "Configuration",
    "Versions",
    "How to cite",
]
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """A page taken apart; tags that do not match are an error."""

    def __init__(self, source):
        super().__init__()
        self.open, self.tags, self.references, self.ids = [], [], [], []
        self.handlers, self.texts = [], []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("href", "src", "xlink:href", "action", "data", "srcset", "poster"):
                self.references.append(value)
            elif name == "id":
                self.ids.append(value)
            elif name.startswith("on"):
                self.handlers.append(name)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def checked(source):
    page = Page(source)
    assert not {"script", "iframe", "object", "embed", "link", "img"} & set(page.tags)
    assert all(reference.startswith(("#", "data:image/png")) for reference in page.references)
    assert not page.handlers
    assert len(page.ids) == len(set(page.ids))
    assert "url(http" not in source
    assert "@import" not in source
    assert len(source.encode()) < 3e6
    return page


@pytest.fixture
def run(tmp_path):
    return journals.write(tmp_path / "run", journals.a_run())


def test_all_is_there(run):
    page = checked(report(run))
    assert [title for title in page.texts if title in TITLES] == TITLES
    assert page.tags.count("svg") == 2 + 1 + 1 + 2 + 1
    for words in (
        "40 of 40 global draws by grouped on 2 workers",
        "merged from its journal",
        "not back at the end: worker 1",
        "Not checked: run quorate check",
        "worker 1 lost: ended by signal 9",
        "would never have had them",
        "200, 100 to 100 in a shard",
    ):
        assert words in page.text


def test_bandwidth_is_that_of_the_blocks(run):
    page = checked(report(run))
    n_bytes = 10 * 4 * 2 * 2 * 8
    assert f"in all {n_bytes:,} {n_bytes // 8:,}" in page.text
    assert f"for each global draw {n_bytes / 40:,.1f} {n_bytes / 320:,.1f}" in page.text
    assert "plain CMC, for each global draw 32 4" in page.text


def test_saved_summaries_come_first_if_the_run_has_ended(tmp_path):
    row = {"mean": 1.5, "sd": 0.25, "3%": 1.0, "97%": 2.0, "ess": 321.0, "mcse": 0.01, "r_hat": 1.0}
    for name, finished in (("over", True), ("going on", False)):
        run = journals.write(tmp_path / name, journals.a_run(), finished=finished)
        (run / "summary.json").write_text(json.dumps({"sigma": row}))
        words = checked(report(run)).text
        assert ("sigma 1.500 0.250 1.000 2.000 321 0.01" in words) == finished
        assert ("going on, or had been killed" in words) != finished


def test_names_are_text(tmp_path):
    records = [journals.block(1.0 + i, 0, n=10, first=10 * i, dim=4) for i in range(4)]
    run = journals.write(tmp_path / NASTY.replace("/", "∕"), records, names=NAMES)
    page = checked(report(run))
    for name in NAMES:
        assert page.text.count(name[:20]) >= 3  # table, density, forest


@settings(max_examples=200)
@given(st.text())
def test_whatever_the_text_it_is_read_back(value):
    page = Page(element("p", value, title=value))
    assert page.tags == ["p"]
    assert "".join(page.texts) == plain(value)
    text(value).encode()


@settings(max_examples=10)
@given(st.text(min_size=1, max_size=24))
def test_pictures_carry_any_name(name):
    row = {"mean": 0.5, "3%": 0.0, "97%": 1.0}
    page = Page(Pictures().svg(forest({name: row}), name))
    assert set(page.tags) <= {"svg", "g", "path", "use", "defs", "clippath", "rect", "text"}
    if plain(name).strip():
        assert "".join(plain(name).split()) in page.text.replace(" ", "")


def test_a_verdict_is_told(run):
    told = {
        "verdict": "do not trust",
        "k_hat": 0.93,
        "importance_ess": 12.3,
        "advice": f"use fewer shards {NASTY}",
        "shards": [{"shard": 0, "r_hat": 1.01, "apart": False}, {"shard": 1, "r_hat": 1.3}],
        "raw": {NASTY: {"mean": 1.0, "quantiles": {"3%": 0.5}}, "b": {"mean": 2.0}},
        "corrected": {NASTY: {"mean": 1.25, "quantiles": {"3%": 0.75}}},
    }
    (run / "verdict.json").write_text(json.dumps(told))
    words = checked(report(run)).text
    for expected in ("do not trust", "k̂ 0.93", "12.3 effective", NASTY, "1.25", "3%: 0.75"):
        assert expected in words
    assert "Not checked" not in words


@pytest.mark.parametrize("content", [{}, {"shards": [7], "raw": 3, "corrected": {}, "k_hat": []}])
def test_a_verdict_that_lacks_much_breaks_nothing(content):
    assert Page(verdict.section(content, "run")).texts[0] == "unknown"


def test_a_verdict_that_cannot_be_read_is_told(run):
    (run / "verdict.json").write_text("{")
    assert "cannot be read" in checked(report(run)).text


@pytest.mark.parametrize("content", ['{"a": 1}', '{"a": {"mean": "<b>"}}', "[]", "{"])
def test_a_summary_that_is_none_is_refused(content, run):
    (run / "summary.json").write_text(content)
    with pytest.raises(BadInputError, match=r"summary\.json"):
        report(run)


@pytest.mark.parametrize("n_blocks", [0, 1])
def test_a_run_that_has_just_begun(n_blocks, tmp_path):
    records = [journals.block(1.0, 0, n=1)][:n_blocks]
    page = checked(report(journals.write(tmp_path / "run", records, finished=False)))
    assert page.text.count("too few global draws yet") >= 3


def test_a_coded_run_says_why_shards_are_not_shown(tmp_path):
    records = [journals.coded(1.0 + i, k, first=4 * i) for i in range(6) for k in range(2)]
    run = journals.write(
        tmp_path / "run", records, scheme="coded", precision="estimated", cov_ridge=0.1
    )
    assert "nothing to compare the merge with" in checked(report(run)).text


def test_many_workers_many_parameters_and_one_that_never_moves(tmp_path):
    n_workers, dim = 45, 70
    names = [f"a long name of a parameter[{i}]" for i in range(dim)]
    records = [
        journals.block(1.0 + i, k, n=90, first=90 * i, shards=(k,), chain=0, dim=dim)
        for i in range(2)
        for k in range(n_workers)
    ]
    for record in records:
        record.payload[..., 3] = 7.0
    options = {"scheme": "cmc", "workers": n_workers, "draws": 150, "cov_ridge": 0.1}
    page = checked(report(journals.write(tmp_path / "run", records, names=names, **options)))
    assert "The first 60 of 70 parameters" in page.text
    assert "The slowest 40 of 45" in page.text


def test_lanes_are_as_large_for_many_blocks_as_for_few(tmp_path):
    records = [journals.block((i + 1) / 100, i % 2, n=1, first=i // 2) for i in range(400)]
    with Story(journals.write(tmp_path / "run", records, draws=500)) as story:
        story.read()
    image = lanes(story.blocks(), 2, story.seconds)
    assert image.shape == (24, 1400, 4)
    assert np.all(image[[0, 11, 12, 23], :, 3] == 0)  # between lanes
    assert np.all(image[1:11, 10:-10, 3] > 0)


def test_shards_are_told_apart():
    colours = [shard_colour(shard) for shard in range(24)]
    assert len(set(colours)) == 24


def test_numbers_and_times():
    assert number(-1234.5678) == "−1235"
    assert number(3) == "3"
    assert number(float("nan")) == "—"
    assert number(True) == "True"
    assert seconds(1.234) == "1.23 s"
    assert seconds(float("inf")) == "never"


def test_citing_is_what_the_citation_file_says(request):
    lines = (request.config.rootpath / "CITATION.cff").read_text().splitlines()
    quoted = " ".join(citing.references()).lower()
    for line in lines:
        key, _, value = line.strip(" -").partition(": ")
        if key in ("title", "version", "family-names", "given-names", "name"):
            assert value.strip('"').lower() in quoted
            assert value.strip('"').lower() in citing.bibtex().lower()


def test_the_command(run, tmp_path):
    result = CliRunner().invoke(main, ["report", str(run)])
    assert result.exit_code == 0
    assert "report.html" in result.stderr.replace("\n", "")
    assert (run / "report.html").read_text().startswith("<!doctype html>")
    again = CliRunner().invoke(main, ["report", str(run), "-o", str(tmp_path / "nowhere" / "x")])
    assert again.exit_code == 2
    assert "cannot be written" in again.stderr
    with pytest.raises(JournalError, match="name the folder of a run"):
        report(tmp_path)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [1280, 390])
def test_in_a_browser(width, run, tmp_path):
    path, shot = tmp_path / "page.html", tmp_path / "page.png"
    write_report(run, path)
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += [f"--user-data-dir={tmp_path}", f"--window-size={width},2000"]
    command += [f"--screenshot={shot}", path.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in result.stderr
    assert shot.stat().st_size > 10_000
