"""The planner: its advice follows from the times, for any scheme."""

import json
import shlex
from dataclasses import dataclass, fields
from math import ceil
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from click.testing import CliRunner

from helpers import journals
from helpers.pareto_run import pareto_run
from quorate.cli import main
from quorate.engines.latency import Dying, Exponential, Pareto
from quorate.errors import BadInputError
from quorate.planner import plan
from quorate.planner.options import Option, front, ranked
from quorate.protocol.allocation import cyclic
from quorate.protocol.ledger import Ledger
from quorate.protocol.scheme import NOBODY
from quorate.protocol.schemes import CMC, SCHEMES, Adaptive, Coded, Grouped
from quorate.protocol.schemes.cmc import SendDraws
from quorate.protocol.task_numbers import DrawCounter
from quorate.run.history import History


def option(chosen=None, workers=4, p95=1.0, **others):
    chosen = chosen or Grouped(redundancy=2)
    redundancy = chosen.shards_per_worker(workers)
    values = {
        "median": p95 / 2,
        "share_unfinished": 0.0,
        "worker_hours": workers * p95 / 7200,
        "storage": redundancy / workers,
        "floats_per_draw": 1.0,
        "survives": redundancy - 1,
        "survives_typically": redundancy - 1,
        **others,
    }
    return Option(chosen, workers, redundancy, p95=p95, **values)


def test_the_cheapest_of_the_fast_is_advised():
    cmc = option(CMC(), p95=9.0)
    cheap, fast = option(p95=1.05), option(Adaptive(redundancy=3), p95=1.0)
    options = [cmc, cheap, fast]
    assert ranked(options, survive=0, max_storage=1.0) == [cheap, fast, cmc]
    assert ranked(options, survive=2, max_storage=1.0) == [fast]
    assert ranked(options, survive=0, max_storage=0.3) == [cmc]
    with pytest.raises(BadInputError, match="loss of any 3 workers with at most 100% of the data"):
        ranked(options, survive=3, max_storage=1.0)
    with pytest.raises(BadInputError, match=r"redundancy of 2\. Try larger"):
        ranked([option(p95=np.inf)], survive=0, max_storage=1.0)


def test_front():
    worse, cheap = option(Grouped(redundancy=3), p95=3.0), option(p95=2.0)
    fast = option(workers=2)
    assert front([worse, cheap, fast, option(p95=np.inf)], ("p95", "storage")) == [cheap, fast]


def test_heavy_tails_call_for_redundancy_and_equal_workers_do_not():
    heavy = plan("pareto:0.1,1.2", workers=[12], draws=50, realisations=50)
    assert heavy.recommended.scheme == "adaptive"
    even = plan("shifted-exponential:0.1,1e-6", workers=[12], draws=50, realisations=5)
    assert even.recommended.scheme == "cmc"
    assert even.command.endswith('"$DATA" --method merge --workers 12 --scheme cmc --draws 50')


def test_larger_shards_take_longer():
    made = [
        plan("exponential:0.1", workers=[4, 8], measured_at=4, draws=20, rows_share=share)
        for share in (0.0, 1.0)
    ]
    (fixed_4, fixed_8), (rows_4, rows_8) = (
        [o.median for o in plan.options if o.scheme == "cmc"] for plan in made
    )
    assert fixed_4 == rows_4
    assert rows_8 == pytest.approx(fixed_8 / 2)


@pytest.mark.parametrize(("workers", "tried"), [(1, {1}), (2, {1, 2}), (3, {1, 2, 3})])
def test_few_workers_have_no_more_holders_of_a_shard(workers, tried):
    made = plan("exponential:0.1", workers=[workers], draws=20, realisations=20)
    assert {option.redundancy for option in made.options} == tried


def test_a_latency_may_be_an_object():
    short = plan("pareto:0.1,1.2", dead="1@0.5", workers=[4], draws=20, realisations=20)
    given = Dying(Pareto(0.1, 1.2), 1, since=0.5)
    made = plan(given, workers=[4], draws=20, realisations=20)
    assert made.options == short.options
    assert repr(given) in made.explanation[0]
    with pytest.raises(BadInputError, match="wrapped in Slowed or Dying"):
        plan(given, slow="1x2")


# ---------------------------------------------------------------- schemes


@pytest.mark.parametrize("made_of", [CMC, Grouped, Coded, Adaptive])
def test_a_scheme_without_a_short_cut_has_the_same_times(made_of):
    """19 draws are tasks of one draw, for which both are exact."""

    class Longer(made_of):
        def finish_times(self, realisations):
            return None

    given = {} if made_of is CMC else {"redundancy": 2}
    made = plan(
        Exponential(0.1),
        workers=[5],
        schemes=[made_of(**given), Longer(**given)],
        draws=19,
        realisations=20,
    )
    ours, theirs = made.options
    for number in ("median", "p95", "survives", "survives_typically", "storage"):
        assert getattr(theirs, number) == pytest.approx(getattr(ours, number), rel=1e-9)


class BackupRun:
    """Worker k draws from shard k, and from shard k+1 when that is done."""

    worker_side = SendDraws()
    quarantined = NOBODY
    shares_starts = False

    def __init__(self, setup):
        self.allocation = cyclic(setup.n_workers, 2)
        self.received = Ledger([(shard,) for shard in range(setup.n_workers)])
        self._counter = DrawCounter(setup.n_workers)

    def chain_of(self, worker, shard):
        return self.allocation.rank(worker, shard)

    def next_task(self, worker, n_draws):
        lacking = self.received.lacking(n_draws)
        for shard in self.allocation.shards_of(worker):
            if shard in lacking:
                return self._counter.more(1, worker, shard, self.chain_of(worker, shard))
        return None

    def receive(self, block):
        (shard,) = block.task.shards
        self._counter.received(block.task.worker, shard, len(block.payload))
        return self.received.add(shard, block.payload, block.task.chain, block.extras)

    def take_back(self, worker):
        self._counter.take_back(worker)

    def out_of_reach(self, n_draws, alive):
        held = {shard for worker in alive for shard in self.allocation.shards_of(worker)}
        return tuple(shard for shard in self.received.lacking(n_draws) if shard not in held)

    def leave_out(self, shards):
        return self.received.leave_out(shards)


@dataclass(frozen=True)
class Backup:
    """A scheme from outside, without a short cut."""

    patience: int = 3

    name: ClassVar[str] = "backup"
    label: ClassVar[str] = "backup workers"
    colour: ClassVar[str] = "#cc79a7"

    def shards_per_worker(self, n_workers):
        if n_workers < self.patience:
            raise BadInputError(f"Take {self.patience} workers at least, not {n_workers}.")
        return 2

    def survives(self, n_workers):
        return 1

    def start(self, setup):
        return BackupRun(setup)

    def finish_times(self, realisations):
        return None


def times_of(options):
    return {(option.title, option.workers): (option.median, option.p95) for option in options}


def test_a_scheme_from_outside_is_compared_with_the_others(monkeypatch, tmp_path):
    """Its times are its own, those of the others stay, and the picture shows it."""
    monkeypatch.setitem(SCHEMES._known, "backup", Backup)
    built_in = plan("pareto:0.1,1.2", workers=[4, 6], draws=24, realisations=20)
    made = plan(
        "pareto:0.1,1.2",
        workers=[4, 6],
        schemes=["cmc", "grouped", "coded", "adaptive", "backup", Backup(patience=6)],
        draws=24,
        realisations=20,
    )
    times = times_of(made.options)
    assert times_of(built_in.options).items() <= times.items()
    assert ("backup patience=6", 4) not in times
    assert times["backup", 6] == times["backup patience=6", 6]
    assert len(set(times.values())) == len(times) - 1
    made.save_picture(tmp_path / "plan.svg")
    picture = (tmp_path / "plan.svg").read_text()
    assert "backup workers" in picture
    assert Backup.colour in picture


def test_the_times_of_a_scheme_from_outside_are_right():
    """A draw takes 1 s, and 10 s at one worker. After 24 s its neighbour helps: 20 s later it has
    made 20 draws and the slow worker 4. Of the other shards each may get one draw too many.
    """
    schemes = [Backup()]
    latency = "shifted-exponential:1,1e-9"
    made = plan(latency, slow="1x10", workers=[4], schemes=schemes, draws=24, realisations=5)
    (found,) = made.options
    assert found.median == pytest.approx(24 + 20)
    assert 4 * 24 <= 24 * found.floats_per_draw <= 4 * 24 + 3
    assert made.command == (
        'quorate sample "$MODEL" "$DATA" --method merge --workers 4 --scheme backup --draws 24'
    )


def test_all_registered_schemes_are_compared_but_limits(monkeypatch):
    monkeypatch.setitem(SCHEMES._known, "backup", Backup)
    made = plan("exponential:0.1", workers=[4], draws=10, realisations=5)
    assert {option.scheme for option in made.options} == {
        "cmc", "grouped", "coded", "adaptive", "backup",
    }  # fmt: skip


def test_objects_are_taken_as_they_are():
    given = [Adaptive(gap=5), Coded(redundancy=4, code="reed-solomon", checked=False)]
    made = plan("exponential:0.1", workers=[2, 4], schemes=given, draws=10, realisations=5)
    assert [(o.title, o.workers, o.redundancy) for o in made.options] == [
        ("adaptive gap=5", 2, 2),
        ("adaptive gap=5", 4, 2),
        ("coded code=reed-solomon checked=False", 4, 4),
    ]
    only = plan("exponential:0.1", workers=[4], schemes=given[1:], draws=10, realisations=5)
    assert only.command.endswith(
        "--workers 4 --redundancy 4 --scheme coded --code reed-solomon --no-checked --draws 10"
    )
    assert only.as_json()["recommended"]["settings"] == {"code": "reed-solomon", "checked": False}


def test_the_genie_has_one_option():
    made = plan("exponential:0.1", workers=[4], schemes=["genie"], draws=10, realisations=5)
    assert [option.redundancy for option in made.options] == [4]


def test_options_name_every_field():
    assert {field.name for field in fields(Option)} - {"chosen"} < set(option().as_json())


# ---------------------------------------------------------------- from a run


@pytest.fixture
def run(tmp_path, rng):
    return pareto_run(tmp_path / "run", rng, slow=10.0, dead=True)


def quorate_plan(*arguments):
    return CliRunner().invoke(main, ["plan", *map(str, arguments)])


def test_a_plan_from_a_run_in_six_lines(run, tmp_path):
    picture = tmp_path / "plan.svg"
    result = quorate_plan("--from", run, "-o", picture, "--realisations", 40)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    *words, gap, command = lines[-8:]
    begins = ["Measured:", "Without", "Ranked:", "Advised:", "Its", "It"]
    assert [line.split()[0] for line in words] == begins
    assert gap == ""
    assert command.startswith('quorate sample "$MODEL" "$DATA" --method merge --workers')
    assert "worker 3 was lost" in words[0]
    assert "heavy" in words[0]
    assert "<svg" in picture.read_text()


def test_a_plan_as_json(run):
    result = quorate_plan("--from", run, "--json", "--realisations", 20, "--draws", 50)
    found = json.loads(result.stdout)
    assert found["draws"] == 50
    assert found["recommended"] in found["options"]
    assert len(found["explanation"]) == 6
    assert {option["workers"] for option in found["options"]} == {2, 4}


def test_effective_draws_cost_as_many_draws_as_in_the_run(tmp_path):
    """Every draw is sent four times, so about a quarter of them count."""
    records = [journals.task(0.0, k, 0, 400) for k in range(2)]
    for i in range(25):
        for worker in range(2):
            record = journals.block(1.0 + i, worker, first=4 * i)
            records.append(record._replace(payload=np.repeat(record.payload[:1], 4, axis=0)))
    folder = journals.write(tmp_path, records, draws=100)
    with History(folder) as history:
        history.read()
    ess = history.view.least_ess()
    assert 0 < ess < 50 < history.view.n_draws
    made = plan(run=folder, target_ess=80, realisations=5)
    assert made.draws == ceil(80 / (ess / history.view.n_draws))
    assert made.command.endswith(f"--draws {made.draws} --target-ess 80")


def test_too_few_draws_for_an_ess_count_as_independent(tmp_path):
    records = [journals.block(1.0 + i, 0, first=4 * i, n=4) for i in range(2)]
    assert plan(run=journals.write(tmp_path, records), target_ess=80, realisations=5).draws == 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "either --latency or --from"),
        (["--latency", "fast"], "pareto"),
        (["--latency", "exponential:1", "--workers", "a"], "whole numbers"),
        (["--latency", "exponential:1", "--workers", "4", "--redundancy", "9"], "4, not 9"),
        (["--latency", "exponential:1", "--workers", "1", "--scheme", "coded"], "None of the"),
        (["--latency", "exponential:1", "--scheme", "magic"], "magic"),
        (["--latency", "exponential:1", "--rows-share", "2"], "from 0 to 1, not 2"),
        (["--latency", "exponential:1", "--draws", "0"], "--draws must be at least 1"),
        (
            ["--latency", "exponential:1", "--target-ess", "0"],
            "--target-ess must be above 0",
        ),
        (
            ["--latency", "exponential:1", "--realisations", "0"],
            "--realisations must be at least",
        ),
        (["--latency", "exponential:1", "--draws", "5", "-o", "plan.what"], "Cannot write"),
        (["--slow", "1x2", "--from", "nowhere"], "a run has its own"),
    ],
)
def test_mistakes_are_one_line(arguments, message):
    result = quorate_plan(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_the_command_of_a_run_of_the_command_line_can_be_pasted(tmp_path, rng, monkeypatch):
    """The plan repeats model and data of the run, quoted for a shell; the command is taken."""
    monkeypatch.chdir(tmp_path)
    data = Path("my data.csv")
    x = rng.normal(size=300)
    rows = "\n".join(f"{a},{a + b}" for a, b in zip(x, rng.normal(size=300), strict=True))
    data.write_text(f"x,y\n{rows}\n")
    quick = ["--workers", "2", "--draws", "200", "--method", "merge", "--sampler", "ellipse"]
    command = ["sample", "--formula", "y ~ x", str(data), *quick, "--run-dir", "run"]
    assert CliRunner().invoke(main, command).exit_code == 0
    found = plan(run="run", realisations=5)
    assert found.command.startswith("quorate sample 'my data.csv' --formula 'y ~ x' --method merge")
    _, *arguments = shlex.split(found.command)
    again = CliRunner().invoke(main, [*arguments, "--run-dir", "again"])
    assert again.exit_code == 0, again.output
