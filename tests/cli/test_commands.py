"""The command line: output, exit codes, and one line for every mistake."""

import json

import pytest
from click.testing import CliRunner

from quorate.cli import main
from quorate.cli.console import Patience

KEYS = [
    "scheme",
    "workers",
    "redundancy",
    "draws",
    "median",
    "p90",
    "p99",
    "share_unfinished",
    "error",
    "wasted_share",
    "floats_per_draw",
    "method",
    "passes",
]
QUICK = ["--workers", "6", "--redundancy", "2", "--draws", "5", "--realisations", "4"]


def quorate(*arguments):
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


@pytest.mark.parametrize("scheme", ["cmc", "grouped", "coded", "adaptive", "genie"])
def test_simulate_prints_json(scheme):
    result = quorate("simulate", "--scheme", scheme, *QUICK, "--json")
    assert result.exit_code == 0
    summary = json.loads(result.stdout)
    assert list(summary) == KEYS
    assert summary["redundancy"] == {"cmc": 1, "genie": 6}.get(scheme, 2)
    assert ("ignores --redundancy" in result.stderr) == (scheme in ("cmc", "genie"))
    assert 0 < summary["median"] <= summary["p90"] <= summary["p99"]
    assert summary["share_unfinished"] == 0
    assert 0 <= summary["wasted_share"] < 1


def test_simulate_prints_a_table():
    result = quorate("simulate", "--scheme", "grouped", *QUICK)
    assert result.exit_code == 0
    assert "runs that never finish" in result.stdout
    assert "0.0%" in result.stdout


def test_simulate_is_deterministic_and_follows_the_seed():
    arguments = ["simulate", "--scheme", "coded", *QUICK, "--json", "--slow", "2x10", "--per-draw"]
    assert quorate(*arguments).stdout == quorate(*arguments).stdout
    assert quorate(*arguments).stdout != quorate(*arguments, "--seed", "1").stdout


@pytest.mark.parametrize("code", ["grouped", "reed-solomon", "cyclic"])
def test_simulate_with_the_dead(code):
    arguments = ["--scheme", "coded", *QUICK, "--code", code, "--dead", "1", "--json"]
    assert json.loads(quorate("simulate", *arguments).stdout)["share_unfinished"] == 0


def test_some_runs_never_finish():
    arguments = ["--workers", "4", "--redundancy", "2", "--draws", "3", "--dead", "2", "--json"]
    result = quorate("simulate", "--scheme", "grouped", "--realisations", "60", *arguments)
    summary = json.loads(result.stdout)
    assert 0 < summary["share_unfinished"] < 1  # one in three pairs is a group
    assert summary["p99"] is None


def test_runs_that_die_half_way_are_not_an_error():
    arguments = ["--scheme", "cmc", *QUICK, "--dead", "1@0.2", "--latency", "exponential:0.1"]
    summary = json.loads(quorate("simulate", *arguments, "--json").stdout)
    assert summary["share_unfinished"] > 0


def test_reproduce_writes_and_tells(tmp_path):
    result = quorate("reproduce", "fig3", "--realisations", "2", "--out", str(tmp_path))
    assert result.exit_code == 0
    assert "who wins when" in result.stdout
    assert {path.name for path in tmp_path.iterdir()} == {
        "curves.csv",
        "figure.png",
        "figure.svg",
        "summary.json",
    }


def test_reproduce_beyond(tmp_path):
    result = quorate("reproduce", "beyond", "--realisations", "1", "--out", str(tmp_path))
    assert result.exit_code == 0
    assert "10 for C-CMC" in result.stdout
    summaries = json.loads((tmp_path / "summary.json").read_text())
    curves = [set(one["errors"]) for one in summaries]
    assert curves == [
        {"CMC r=1", "G-CMC r=2", "adaptive r=2", "genie r=5"},
        {"C-CMC r=2"},
        {"CMC r=1", "G-CMC r=2", "G-CMC r=4", "adaptive r=2", "adaptive r=4", "genie r=40"},
        {"C-CMC r=2", "C-CMC r=4"},
    ]
    assert [one["experiment"]["cov_ridge"] for one in summaries] == [0.3, 10, 0.3, 10]
    assert (tmp_path / "curves.csv").read_text().count("\n") == 1 + 100 * (5 + 8)


def test_reproduce_exact(tmp_path):
    result = quorate("reproduce", "exact", "--realisations", "1", "--out", str(tmp_path))
    assert result.exit_code == 0
    assert "rare outcomes" in result.stdout
    assert "1 realisations, seed 0" in result.stdout
    cases = json.loads((tmp_path / "summary.json").read_text())["cases"]
    lines = {"CMC", "G-CMC, r = 2", "adaptive, r = 2", "exact, r = 1", "exact, r = 2"}
    assert {name: set(case["errors"]) for name, case in cases.items()} == {
        "rare": lines,
        "wells": lines,
    }
    assert {path.name for path in tmp_path.iterdir()} == {
        "curves.csv",
        "figure.png",
        "figure.svg",
        "summary.json",
    }


def test_reproduce_scale(tmp_path):
    result = quorate("reproduce", "scale", "--workers", "16", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "What ends first" in result.output
    told = json.loads((tmp_path / "summary.json").read_text())
    assert {run["workers"] for run in told["simulated"]} == {1, 4, 16}
    assert (tmp_path / "figure.svg").exists()


def test_reproduce_with_schemes_of_choice(tmp_path):
    arguments = ["--scheme", "adaptive", "--scheme", "cmc", "--realisations", "2"]
    assert quorate("reproduce", "fig3", *arguments, "--out", str(tmp_path)).exit_code == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert set(summary["errors"]) == {"CMC r=1", "adaptive r=2"}


def test_simulate_with_spare_slots_and_pairing():
    arguments = ["--scheme", "adaptive", *QUICK, "--slow", "2x50", "--json"]
    plain = json.loads(quorate("simulate", *arguments).stdout)
    spare = ["--gap", "2", "--copy-cost", "0.1", "--pairing", "paper"]
    with_spare = json.loads(quorate("simulate", *arguments, *spare).stdout)
    assert with_spare["p99"] < plain["p99"]
    assert plain["wasted_share"] == 0 < with_spare["wasted_share"]


def test_one_worker_is_a_cluster_too():
    result = quorate("simulate", "--scheme", "cmc", "--workers", "1", "--draws", "9", "--json")
    assert 0 < json.loads(result.stdout)["error"] < 5


def test_a_figure_without_a_single_draw_is_still_drawn(tmp_path):
    """Seed 38 of one realisation: CMC has no draw by t = 5."""
    arguments = ["--realisations", "1", "--seed", "38", "--out", str(tmp_path)]
    assert quorate("reproduce", "fig4", *arguments).exit_code == 0


def test_a_folder_that_cannot_be_made_is_told_before_the_work(tmp_path):
    (tmp_path / "file").touch()
    result = quorate("reproduce", "fig3", "--out", str(tmp_path / "file" / "x"))
    assert result.exit_code == 2
    assert "cannot be created" in result.stderr


MISTAKES = {
    "huge": (["--workers", "1000000000"], "Use fewer"),
    "huge draws": (["--workers", "4", "--draws", "99999999999999999999999"], "Use fewer"),
    "r > K": (["--workers", "4", "--redundancy", "5"], "from 1 to the number of workers, 4, not 5"),
    "K < 1": (["--workers", "0"], "workers must be at least 1"),
    "r < 1": (["--workers", "4", "--redundancy", "0"], "from 1 to the number of workers, 4, not 0"),
    "no draws": (["--workers", "4", "--draws", "0"], "at least 1"),
    "no realisations": (["--workers", "4", "--realisations", "0"], "at least 1"),
    "negative seed": (["--workers", "4", "--seed", "-1"], "0 or more"),
    "negative ridge": (["--workers", "4", "--cov-ridge", "-1"], "0 or more"),
    "negative ridge on D": (["--workers", "4", "--precision-ridge", "-1"], "0 or more"),
    "ridge not a number": (["--workers", "4", "--cov-ridge", "nan"], "0 or more"),
    "latency": (["--workers", "4", "--latency", "pareto"], "for example pareto:0.1,1.2"),
    "tail": (["--workers", "4", "--latency", "pareto:0.1,0.9"], "above 1"),
    "no trace": (["--workers", "4", "--latency", "trace:/nowhere"], "cannot be read"),
    "slow": (["--workers", "4", "--slow", "many"], "for example 4x10"),
    "too many slow": (["--workers", "4", "--slow", "5x10"], "only 4 workers"),
    "dead": (["--workers", "4", "--dead", "some"], "for example 1@2.5"),
    "code": (["--workers", "4", "--code", "turbo"], "grouped, reed-solomon, cyclic"),
    "too many dead": (
        ["--workers", "4", "--redundancy", "2", "--code", "cyclic", "--dead", "2"],
        "can never reach",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_line_and_exit_code_2(mistake):
    arguments, message = MISTAKES[mistake]
    result = quorate("simulate", "--scheme", "coded", "--realisations", "2", *arguments)
    assert result.exit_code == 2
    error = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(error) == 1
    assert message in error[0]
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "--scheme", "magic", "--workers", "3"], "cmc, grouped, coded"),
        (["simulate", "--scheme", "cmc", "--workers", "3", "--dead", "1"], "can never reach"),
        (["reproduce", "fig9"], "fig3"),
        (["reproduce", "fig3", "--scheme", "magic"], "cmc, grouped, coded, adaptive"),
        (["reproduce", "fig3", "--scheme", "genie", "--reading", "published"], "reading text"),
        (["reproduce", "beyond", "--reading", "published"], "a reading of its own"),
        (["reproduce", "exact", "--scheme", "cmc"], "exact has schemes"),
        (["reproduce", "exact", "--cov-ridge", "1"], "Leave out --cov-ridge"),
        (["reproduce", "exact", "--realisations", "0"], "at least 1"),
        (["reproduce", "scale", "--cov-ridge", "1"], "no ridge"),
        (["reproduce", "scale", "--workers", "0"], "at least one worker"),
        (["reproduce", "exact", "--workers", "4"], "--workers is for scale"),
        (["simulate", "--scheme", "adaptive", "--workers", "3", "--pairing", "x"], "paper, all"),
        (["simulate", "--scheme", "cmc", "--workers", "3", "--gap", "1"], "has no option gap"),
        (["simulate", "--scheme", "adaptive", "--workers", "3", "--copy-cost", "-1"], "0 or more"),
        (["reproduce", "fig3", "--cov-ridge", "0", "--realisations", "1"], "singular"),
        (["reproduce", "fig3", "--realisations", "-2"], "at least 1"),
    ],
)
def test_other_mistakes(arguments, message):
    result = quorate(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_progress_shows_only_after_a_while(capsys):
    with Patience("soon", seconds=60.0) as quick:
        quick.report(1, 2)
        assert not quick.bar.live.is_started
    with Patience("late", seconds=0.0) as slow:
        slow.timer.join()
        slow.report(1, 2)
        assert slow.bar.live.is_started
    assert not slow.bar.live.is_started


def test_version():
    assert quorate("--version").stdout.startswith("quorate, version ")
