"""The report: one file that asks for nothing, with everybody's strings as text."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import quorate
from helpers import browser, journals
from helpers.report_page import Page, checked
from quorate.cli import main
from quorate.engines.options import Processes
from quorate.errors import BadInputError, ExcludedShardsWarning, JournalError
from quorate.journal import BlockRecord, Excluded, PriorRestored, Resumed
from quorate.models import Positive, from_functions
from quorate.report import citing, report, verdict, write_report
from quorate.report.posterior_plots import forest
from quorate.report.run_plots import lanes
from quorate.report.svg import Pictures, shard_colour
from quorate.results.html import element, number, plain, seconds, text
from quorate.results.marginals import Densities
from quorate.run.history import History

NASTY = "<script>alert(1)</script>"
NAMES = (NASTY, '"><img src=x onerror=alert(1)>', "$\\frac{1}{2}$", "#010203 &amp; ${style} 漢字")
TITLES = [
    "Answer",
    "Verdict",
    "Shards and merged draws",
    "Intervals",
    "Workers",
    "Draws and errors over time",
    "What waiting would have cost",
    "Bandwidth",
    "Configuration",
    "Versions",
    "How to cite",
]


@pytest.fixture
def run(tmp_path):
    return journals.write(tmp_path / "run", journals.a_run())


def test_all_is_there(run):
    page = checked(report(run))
    assert [title for title in page.texts if title in TITLES] == TITLES
    assert page.tags.count("svg") == 2 + 1 + 1 + 2 + 1
    for words in (
        "40 of 40 global draws by grouped on 2 workers",
        "of the draws in its journal",
        "Gone at the end: lost worker 1",
        "The draws were not checked. Run quorate check",
        "worker 1 lost: ended by signal 9",
        "would still be waiting for worker 1, gone when the run ended",
        "200, 100 to 100 in a shard",
    ):
        assert words in page.text


def test_bandwidth_is_that_of_the_blocks(run):
    page = checked(report(run))
    n_bytes = 10 * 4 * 2 * 2 * 8
    assert f"total {n_bytes:,} {n_bytes // 8:,}" in page.text
    assert f"per global draw {n_bytes / 40:,.1f} {n_bytes / 320:,.1f}" in page.text
    assert "per global draw, plain CMC 32 4" in page.text


def test_saved_summaries_come_first_if_the_run_has_ended(tmp_path):
    row = {"mean": 1.5, "sd": 0.25, "3%": 1.0, "97%": 2.0, "ess": 321.0, "mcse": 0.01, "r_hat": 1.0}
    for name, finished in (("over", True), ("going on", False)):
        run = journals.write(tmp_path / name, journals.a_run(), finished=finished)
        (run / "summary.json").write_text(json.dumps({"sigma": row}))
        words = checked(report(run)).text
        assert ("sigma 1.500 0.250 1.000 2.000 321 0.01" in words) == finished
        assert ("still running, or had been killed" in words) != finished


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
    for expected in (
        "do not trust",
        "k̂ 0.93",
        "importance weights 12.3",
        NASTY,
        "1.25",
        "3%: 0.75",
    ):
        assert expected in words
    assert "not checked" not in words


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
    assert "no draws of single shards" in checked(report(run)).text


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
    with History(journals.write(tmp_path / "run", records, draws=500)) as history:
        history.read()
    image = lanes(history.blocks(), 2, history.seconds)
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
    keys = {"title", "version", "family-names", "given-names", "name"}
    told = [line.strip(" -").partition(": ")[::2] for line in lines]
    cited = [(key, value.strip('"').lower()) for key, value in told if key in keys]
    assert {key for key, _ in cited} == keys
    for _, value in cited:
        assert value in quoted
        assert value in citing.bibtex().lower()


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


# ---------------------------------------------------------------- shards left out


def excluding(folder, *more, restored=True):
    """A run of three workers whose third is given up early."""
    settings = {"scheme": "cmc", "workers": 3, "redundancy": 1, "on_lost_shard": "exclude"}
    records = [
        *(journals.block(1.0, k, n=10, shards=(k,), chain=0) for k in range(3)),
        journals.happened(2.0, "retired", 2, "lost too often"),
        Excluded(2.0, (2,)),
        *(journals.block(3.0, k, n=30, first=10, shards=(k,), chain=0) for k in range(2)),
        PriorRestored(3.0, 1 / 3, restored),
    ]
    return journals.write(folder, [*records, *more], **settings)


ROW = {"mean": 1.5, "sd": 0.25, "3%": 1.0, "97%": 2.0, "ess": 321.0, "mcse": 0.01, "r_hat": 1.0}


@pytest.mark.parametrize(
    ("restored", "saved", "words"),
    [
        (True, True, "The prior is complete: the 1/3 of it that was lost with them was put back"),
        (False, True, "p to the power of 2/3"),
        (True, False, "is missing here"),
    ],
)
def test_shards_left_out_are_told_loudly(restored, saved, words, tmp_path):
    run = excluding(tmp_path, restored=restored)
    if saved:
        (run / "summary.json").write_text(json.dumps({"sigma": ROW}))
    told = checked(report(run)).text
    assert "WITHOUT THE ROWS OF SHARD 2" in told
    assert "Without the rows of shard 2. No worker that holds them was left" in told
    assert "given the other 200 of 300 rows" in told
    assert words in told
    assert "40 of 40 global draws" in told
    assert "shard 2 (left out)" in told
    assert "2.0 s: shard 2 excluded: no worker is left that holds shard 2" in told


def test_a_run_that_got_them_back_does_not_say_so(tmp_path):
    resumed = Resumed(4.0, journals.settings_of(workers=3, redundancy=1, scheme="cmc"))
    rest = journals.block(5.0, 2, n=30, first=10, shards=(2,), chain=0)
    told = checked(report(excluding(tmp_path, resumed, rest))).text
    assert "WITHOUT" not in told
    assert "Without the rows" not in told
    assert "40 of 40 global draws" in told


def half_normal(parameters):
    return -0.5 * parameters["scale"] ** 2


def exponential(parameters, shard):
    return float(np.sum(np.log(parameters["scale"]) - parameters["scale"] * shard["z"]))


def test_numbers_are_those_of_the_result_and_its_natural_scale(tmp_path, seed):
    model = from_functions(half_normal, exponential, {"scale": Positive()})
    rows = {"z": np.random.default_rng(seed).exponential(size=300)}
    with pytest.warns(ExcludedShardsWarning):
        result = quorate.sample(
            model, rows, workers=3, scheme="cmc", draws=100, sampler="ellipse", seed=seed,
            faults="dead:1@2", engine=Processes(restarts=0), on_lost_shard="exclude",
            run_dir=tmp_path, progress=False,
        )  # fmt: skip
    assert result.excluded == (2,)
    page = checked(report(tmp_path))
    (row,) = result.summary_rows().values()
    name, mean, sd, *_ = page.text.partition("MCSE ")[2].split()
    assert name == "scale"
    assert float(mean) == pytest.approx(row["mean"], rel=1e-3)
    assert float(sd) == pytest.approx(row["sd"], rel=1e-2)
    assert "The prior is complete" in page.text
    assert "On the natural scale" in page.text
    saved = Densities.from_json((tmp_path / "densities.json").read_bytes())
    assert saved.shards == [0, 1]
    (marginal,) = saved.marginals
    draws = result.variables["scale"]
    assert draws.min() <= marginal.merged.low < marginal.merged.high <= draws.max()
    with pytest.raises(BadInputError, match="without the rows of shard 2"):
        quorate.check(tmp_path)


# ---------------------------------------------------------------- densities


def densities_of(rng, constant=7.0):
    draws = {"a": rng.normal(size=50), NASTY: np.full(50, constant)}
    few = {"a": rng.normal(size=2), NASTY: np.full(2, constant)}
    shards = {0: np.stack(list(draws.values()), axis=1), 2: np.stack(list(few.values()), axis=1)}
    made = Densities.of(
        list(draws.items()), shards.items(), lambda of: dict(zip(draws, of.T, strict=True))
    )
    return replace(made, n_more=5)


def test_densities_are_read_back(rng, tmp_path):
    made = densities_of(rng)
    (tmp_path / "densities.json").write_text(json.dumps(made.as_json()))
    again = Densities.from_json((tmp_path / "densities.json").read_bytes())
    assert (again.shards, again.n_more) == ([0, 2], 5)
    for one, other in zip(made.thinned().marginals, again.marginals, strict=True):
        assert one.name == other.name
        for mine, theirs in zip(
            [one.merged, *one.shards], [other.merged, *other.shards], strict=True
        ):
            assert (mine.low, mine.high) == (theirs.low, theirs.high)
            np.testing.assert_allclose(mine.heights, theirs.heights, rtol=1e-3)


def test_saved_densities_are_shown(run, rng):
    (run / "summary.json").write_text(json.dumps({"a": ROW}))
    (run / "densities.json").write_text(json.dumps(densities_of(rng).as_json()))
    page = checked(report(run))
    assert "On the natural scale" in page.text
    assert "… and 5 more" in page.text
    assert NASTY in page.text


ONE_SCALAR = '{"shards": [%s], "n_more": 0, "scalars": [{"name": "a", "merged": %s, "shards": []}]}'


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"shards": [0], "n_more": 0, "scalars": [{"name": "a", "merged": [0, 1, [1]]}]}',
        ONE_SCALAR % ("0", "[0, 1, [1]]"),
        ONE_SCALAR % ("", '[0, 1, ["x"]]'),
        ONE_SCALAR % ("", "[0, NaN, [1]]"),
    ],
)
def test_densities_that_are_none_are_refused(content, run):
    (run / "summary.json").write_text(json.dumps({"a": ROW}))
    (run / "densities.json").write_text(content)
    with pytest.raises(BadInputError, match=r"densities\.json"):
        report(run)


# ---------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser.opened(tmp_path_factory.mktemp("profile")) as page:
        yield page


LOOKS = [(1280, "light", "screen"), (1280, "dark", "screen"), (390, "light", "screen")]
LOOKS += [(390, "dark", "screen"), (794, "light", "print")]


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """A run with all that a report has, much of it long."""
    names = (*NAMES, "a name that is much longer than any column of a table or picture is wide[12]")
    records = [
        journals.block(1.0 + i, k, n=30, first=30 * i, shards=(k,), chain=0, dim=len(names))
        for i in range(5)
        for k in range(12)
        if k != 11 or i < 2
    ]
    records += [
        journals.happened(3.5, "lost", 11, "ended by signal 9 " * 9),
        journals.happened(3.6, "retired", 11),
        Excluded(3.6, (11,)),
        journals.happened(4.5, "restarted", 3),
    ]
    records.sort(key=lambda record: record.time)
    for record in records:
        if isinstance(record, BlockRecord):
            record.payload[..., 1] *= 1e4
    run = journals.write(
        tmp_path_factory.mktemp("crowded"), records, names=names, scheme="cmc", workers=12,
        draws=150, cov_ridge=0.1, on_lost_shard="exclude",
    )  # fmt: skip
    raw = {name: {"mean": 1234.5, "sd": 0.5, "3%": -1.0, "50%": 0.0, "97%": 2.0} for name in names}
    shards = [{"shard": k, "draws": 100, "ess": 1e4, "r_hat": 1.01} for k in range(12)]
    told = {"verdict": "usable", "k_hat": 0.6, "importance_ess": 99.0, "advice": "draw more " * 20}
    told |= {"shards": shards, "raw": raw, "corrected": raw}
    (run / "verdict.json").write_text(json.dumps(told))
    write_report(run, run / "report.html")
    return run / "report.html"


@browser.needed
@pytest.mark.parametrize(("width", "scheme", "media"), LOOKS)
def test_nothing_overlaps_complains_or_leaves_the_file(width, scheme, media, crowded, page):
    page.look(crowded.as_uri(), width, scheme, media)
    for all_open in (False, True):
        if all_open:
            page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        texts = page.texts()
        assert len(texts) > 200
        assert browser.overlapping(texts) == []
        assert [text for text in texts if text["cut"] > 1] == []
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    assert any(NASTY in text["text"] for text in texts)
    assert page.complaints == []
    assert {address.partition(":")[0] for address in page.requests} <= {"file", "data"}
    assert {a for a in page.requests if not a.startswith("data:")} == {crowded.as_uri()}


@browser.needed
def test_a_page_on_which_all_of_that_happens_is_found_out(page, tmp_path):
    """The control."""
    path = tmp_path / "bad.html"
    path.write_text(
        "<p style='position:absolute;left:9px;top:9px'>one</p>"
        "<p style='position:absolute;left:15px;top:12px'>other</p><img src='nothing.png'>"
        "<svg width='40' height='20'><text x='20' y='15'>far too long</text></svg>"
        "<script>console.error('oh')</script>"
    )
    page.look(path.as_uri(), 390)
    texts = page.texts()
    assert browser.overlapping(texts) == [("other", "one")]
    assert [text["text"] for text in texts if text["cut"] > 1] == ["far too long"]
    assert any("oh" in complaint for complaint in page.complaints)
    assert any(address.endswith("nothing.png") for address in page.requests)
