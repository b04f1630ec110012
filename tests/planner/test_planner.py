"""The planner: its times are those of the schemes, its advice follows from them."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import ks_2samp, norm

import quorate
from helpers import journals
from helpers.assertions import FALSE_FAIL_RATE, assert_known
from helpers.journals import block, happened, task
from quorate.cli import main
from quorate.engines import virtual
from quorate.engines.latency import Dying, Exponential, Pareto, Slowed, Trace
from quorate.errors import BadInputError
from quorate.models.gaussian import paper_subposteriors
from quorate.numerics.streams import Streams
from quorate.planner.fast_times import (
    Realisations,
    Work,
    losses_survived,
    losses_survived_at_worst,
    simulated,
)
from quorate.planner.measured import Begun, Tail, measured, with_longer
from quorate.planner.options import Option, best, front
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.schemes import SCHEMES, scheme_maker

N_RUNS = 8
DRAWS = 12


def in_virtual_time(scheme, workers, redundancy, latency, realisation, seed, draws, task=1):
    """When a run of the scheme itself ends, and the vectors that were sent for it."""
    held = 1 if scheme == "cmc" else redundancy
    made = scheme_maker(scheme, workers, held, 5, 1.0, seed=seed, block_size=task)()
    coordinator = Coordinator(made, draws)
    cluster = virtual.Cluster(latency, paper_subposteriors(workers), Streams(seed, realisation))
    timeline = virtual.run(coordinator, cluster)
    return timeline.release_times[-1] if timeline.finished else np.inf


LATENCIES = {
    "pareto": Pareto(0.1, 1.2),
    "slow": Slowed(Exponential(0.1), 2, 10.0),
    "dying": Dying(Exponential(0.1), 1, since=0.7),
    "many dying": Dying(Exponential(0.1), 3, since=0.7),
}


@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize(("workers", "redundancy"), [(6, 2), (7, 3), (6, 4)])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_times_are_those_of_the_scheme_run_by_run(scheme, workers, redundancy, latency, seed):
    """7 and 3, 6 and 4: a smaller last group, and copied codes."""
    model = LATENCIES[latency]
    work = Work(model, workers, DRAWS, seed=seed)
    times = simulated(scheme, redundancy, Realisations(work, 0, N_RUNS)).times
    expected = [
        in_virtual_time(scheme, workers, redundancy, model, i, seed, DRAWS) for i in range(N_RUNS)
    ]
    np.testing.assert_allclose(times, expected, rtol=1e-9)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_vectors_are_about_those_that_are_sent(scheme, seed):
    """All of them, but for late answers of groups: 0.967 ± 0.009 of what is sent, over 25 seeds."""
    runs = quorate.simulate(scheme, 6, 2, draws=40, realisations=N_RUNS, seed=seed, cov_ridge=1.0)
    work = Work(Pareto(0.1, 1.2), 6, 40, seed=seed)
    sent = simulated(scheme, 2, Realisations(work, 0, N_RUNS)).n_vectors.mean() / 40
    share = sent / (runs.floats_per_draw / 5)
    if scheme == "grouped":
        assert_known(share, 0.967, 0.0095)
        with pytest.raises(AssertionError):
            assert_known(0.9, 0.967, 0.0095)
    else:
        assert share == pytest.approx(1)


def test_large_tasks_are_nearly_right_and_the_test_can_tell(seed):
    """With tasks of 3 of 60 draws times have the distribution of the event simulation, as far as
    80 runs of each can tell; the control, with a quarter more work, does not.
    """
    n, draws = 80, 60
    model = Exponential(0.1)
    work = Work(model, 6, draws, task=3, seed=seed)
    ours = simulated("adaptive", 2, Realisations(work, 1000, n)).times
    theirs = [in_virtual_time("adaptive", 6, 2, model, i, seed, draws, 3) for i in range(n)]
    assert ks_2samp(ours, theirs).pvalue > FALSE_FAIL_RATE
    assert ks_2samp(1.25 * ours, theirs).pvalue < FALSE_FAIL_RATE


def test_blocks_share_a_time_and_warm_up_comes_first():
    """Every draw takes 1: 3 blocks of 4 draws of 2 shards, a warm-up worth 5 of each, from 7 on."""
    ones = Trace(((1.0,),), shuffle=False)
    work = Work(ones, 2, 12, block=8, task=4, warm_up=5.0, start=7.0)
    runs = Realisations(work, 0, 1)
    assert simulated("coded", 2, runs).times == 7 + 10 + 24
    assert simulated("cmc", 1, runs).times == 7 + 5 + 12
    assert simulated("grouped", 2, runs).times == 7 + 10 + 16  # blocks 1, 2 then 3, 4
    assert simulated("adaptive", 2, runs).times == 7 + 5 + 12


def test_losses(rng):
    orders = rng.permuted(np.tile(np.arange(7), (50, 1)), axis=1)
    for scheme, redundancy in [("cmc", 1), ("grouped", 3), ("coded", 3), ("adaptive", 3)]:
        made = scheme_maker(scheme, 7, redundancy, 2, 1.0)()
        survived = losses_survived(scheme, 7, redundancy, orders)
        for order, n in zip(orders, survived, strict=True):
            assert made.can_reach(5, np.flatnonzero(order >= n).tolist())
            assert not made.can_reach(5, np.flatnonzero(order >= n + 1).tolist())
        assert survived.min() >= losses_survived_at_worst(scheme, 7, redundancy)


# ---------------------------------------------------------------- measured times


def pareto_run(folder, rng, index=1.3, n_blocks=80, slow=1.0, dead=False):
    """Four workers, blocks of 4 draws of 2 shards with Pareto times; the first is slower."""
    records = []
    for worker in range(4):
        shards = (0, 1) if worker < 2 else (2, 3)
        times = 0.1 * rng.uniform(size=n_blocks) ** (-1 / index) * (slow if worker == 0 else 1)
        ends = 3.0 + np.cumsum(times)
        records.append(task(1.0, worker, 0, 4 * n_blocks, shards))
        n = n_blocks // 2 if dead and worker == 3 else n_blocks
        records += [block(ends[i], worker, first=4 * i, shards=shards) for i in range(n)]
        if n < n_blocks:
            records.append(happened(ends[n - 1] + 0.1, "lost", worker))
    records.sort(key=lambda record: record.time)
    return journals.write(folder, records, workers=4, draws=200)


def test_what_is_read_from_a_journal(tmp_path, rng):
    """A warm-up of 1 s for each shard, at about 0.02 s a draw, is worth 46 draws, times or by 1.08;
    a worker 5 times slower is 4.6 times slower than the median, times or by 1.08: over 40 seeds.
    """
    taken, _ = measured(pareto_run(tmp_path, rng, slow=5.0, dead=True))
    assert taken.n_workers == 4
    assert taken.block == 8
    assert taken.start == 1.0
    assert_known(np.log(taken.warm_up), np.log(45.6), 0.08)
    assert_known(np.log(taken.levels[0] / np.median(taken.levels)), np.log(4.62), 0.08)
    with pytest.raises(AssertionError):
        assert_known(np.log(taken.levels[1] / np.median(taken.levels)), np.log(4.62), 0.08)
    assert np.isfinite(taken.deaths).tolist() == [False, False, False, True]
    tail = taken.tail
    assert tail is not None
    assert abs(np.log(tail.index / 1.3)) < norm.isf(FALSE_FAIL_RATE / 2) / np.sqrt(tail.n_blocks)
    assert not tail.is_light


SIZES = [(1.0, 2, 0), (2.0, 10, 2), (4.0, 1, 12), (6.0, 3, 13)]


def test_totals_are_kept(tmp_path, rng):
    """Resampled blocks take as long as measured ones on average, whatever their sizes."""
    records = [
        task(0.0, 0, 0, 99, (0,), 0),
        *(block(t, 0, n=n, first=f, shards=(0,), chain=0) for t, n, f in SIZES),
    ]
    taken, _ = measured(journals.write(tmp_path, records, workers=1, redundancy=1))
    per_draw = taken.levels[0] * float(taken.factors @ taken.shares)
    assert per_draw == pytest.approx((SIZES[-1][0] - SIZES[0][0]) / 14)


NONE_BEGUN = Begun(np.empty(0), np.empty(0), np.empty(0, dtype=np.int64))


def tail_of(factors, begun=NONE_BEGUN):
    n = len(factors)
    return Tail.of(factors, np.full(n, 1 / n), np.zeros(n, dtype=np.int64), begun)


def test_light_and_unknown_tails(rng):
    light = tail_of(np.sort(1 + 0.1 * rng.uniform(size=400)))
    assert light is not None
    assert light.is_light
    assert tail_of(np.sort(rng.uniform(size=20))) is None
    flat = tail_of(np.ones(400))
    assert flat is not None
    assert flat.index == np.inf


def test_blocks_under_way_stand_for_longer_ones():
    """Kaplan and Meier by hand: a block gone on for 1.5 is as likely to take 2 as 3."""
    values, weights = with_longer(
        np.array([1.0, 2.0, 3.0]), np.ones(3), np.array([1.5, 9.0]), np.array([1.0, 0.5])
    )
    np.testing.assert_allclose(values, [1.0, 2.0, 3.0, 9.0])
    np.testing.assert_allclose(weights, [1.0, 1.5, 1.5, 0.5])


def test_the_tail_index_is_right_where_long_blocks_are_cut_off_and_not_if_that_is_ignored(rng):
    """Blocks are cut off at a factor of 4. A tail of n blocks has a relative error of 1/√n."""
    n, index, cut = 20_000, 1.5, 4.0
    factors = np.sort(rng.uniform(size=n) ** (-1 / index))
    ended, begun = factors[factors < cut], factors[factors >= cut]
    under_way = Begun(
        np.full(len(begun), cut),
        np.full(len(begun), 1 / len(ended)),
        np.zeros(len(begun), dtype=np.int64),
    )
    right, ignoring = tail_of(ended, under_way), tail_of(ended)
    assert right is not None
    assert ignoring is not None
    limit = norm.isf(FALSE_FAIL_RATE / 2) / np.sqrt(right.n_blocks)
    assert abs(np.log(right.index / index)) < limit
    assert abs(np.log(ignoring.index / index)) > limit


def test_what_is_under_way_in_the_end_is_read_from_a_journal(tmp_path):
    """Worker 1 has gone on with its block for 3 s, where others of its took 1 s."""
    records = [task(0.0, k, 0, 400) for k in range(2)]
    records += [block(1.0 + i, 1, first=4 * i) for i in range(8)]
    records += [block(1.0 + i, 0, first=4 * i) for i in range(11)]
    records.sort(key=lambda record: record.time)
    taken, _ = measured(journals.write(tmp_path, records))
    assert taken.begun.workers.tolist() == [0, 1]
    np.testing.assert_allclose(taken.begun.factors, [0.0, 3.0], atol=1e-12)
    np.testing.assert_allclose(taken.begun.shares, 1 / 17)


def test_time_away_belongs_to_the_next_block(tmp_path):
    records = [task(0.0, 0, 0, 400), *(block(1.0 + i, 0, first=4 * i) for i in range(4))]
    records += [happened(4.5, "lost", 0), task(8.0, 0, 16, 400)]
    records += [block(9.0, 0, first=16, attempt=1), block(10.0, 0, first=20, attempt=1)]
    taken, _ = measured(journals.write(tmp_path, records))
    np.testing.assert_allclose(taken.factors, [1.0, 1.0, 1.0, 1.0, 5.0])


def test_a_worker_that_sent_nothing_is_slow(tmp_path):
    records = [task(0.0, k, 0, 40) for k in range(2)]
    records += [block(1.0 + 0.5 * i, 0, first=4 * i) for i in range(11)]
    taken, _ = measured(journals.write(tmp_path, records))
    assert taken.silent == (1,)
    assert taken.levels[1] == pytest.approx(6 * taken.levels[0])  # 6 s, where another took 1


def test_a_run_without_blocks_cannot_be_planned_from(tmp_path):
    with pytest.raises(BadInputError, match="let the run go on"):
        quorate.plan(run=journals.write(tmp_path, [block(1.0, 0)]))


# ---------------------------------------------------------------- advice


def option(scheme="grouped", workers=4, redundancy=2, p95=1.0, **others):
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
    return Option(scheme, workers, redundancy, p95=p95, **values)


def test_the_cheapest_of_the_fast_is_advised():
    cmc = option("cmc", redundancy=1, p95=9.0)
    cheap, fast = option(p95=1.05), option("adaptive", redundancy=3, p95=1.0)
    options = [cmc, cheap, fast]
    assert best(options, survive=0, max_storage=1.0) is cheap
    assert best(options, survive=2, max_storage=1.0) is fast
    assert best(options, survive=0, max_storage=0.3) is cmc
    with pytest.raises(BadInputError, match="survive"):
        best(options, survive=3, max_storage=1.0)
    with pytest.raises(BadInputError, match="too many workers die"):
        best([option(p95=np.inf)], survive=0, max_storage=1.0)


def test_front():
    worse, cheap, fast = option(p95=3.0, redundancy=3), option(p95=2.0), option(workers=2)
    assert front([worse, cheap, fast, option(p95=np.inf)], ("p95", "storage")) == [cheap, fast]


def test_heavy_tails_call_for_redundancy_and_equal_workers_do_not():
    heavy = quorate.plan("pareto:0.1,1.2", workers=[12], draws=50, realisations=50)
    assert heavy.recommended.scheme == "adaptive"
    even = quorate.plan("shifted-exponential:0.1,1e-6", workers=[12], draws=50, realisations=5)
    assert even.recommended.scheme == "cmc"
    assert "--redundancy" not in even.command


def test_larger_shards_take_longer():
    made = [
        quorate.plan("exponential:0.1", workers=[4, 8], measured_at=4, draws=20, rows_share=share)
        for share in (0.0, 1.0)
    ]
    (fixed_4, fixed_8), (rows_4, rows_8) = (
        [o.median for o in plan.options if o.scheme == "cmc"] for plan in made
    )
    assert fixed_4 == rows_4
    assert rows_8 == pytest.approx(fixed_8 / 2)


@pytest.mark.parametrize(("workers", "tried"), [(1, {1}), (2, {1, 2}), (3, {1, 2, 3})])
def test_few_workers_have_no_more_holders_of_a_shard(workers, tried):
    made = quorate.plan("exponential:0.1", workers=[workers], draws=20, realisations=20)
    assert {option.redundancy for option in made.options} == tried


@pytest.fixture
def run(tmp_path, rng):
    return pareto_run(tmp_path / "run", rng, slow=10.0, dead=True)


def quorate_plan(*arguments):
    return CliRunner().invoke(main, ["plan", *map(str, arguments)])


def test_a_plan_from_a_run_in_five_lines(run, tmp_path):
    picture = tmp_path / "plan.svg"
    result = quorate_plan("--from", run, "-o", picture, "--realisations", 40)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    *words, gap, command = lines[-7:]
    assert [line.split()[0] for line in words] == ["Measured:", "Waiting", "Advised:", "Its", "It"]
    assert gap == ""
    assert command.startswith("quorate sample MODEL.py:NAME DATA --workers")
    assert "worker 3 was lost" in words[0]
    assert "heavy" in words[0]
    assert "<svg" in picture.read_text()


def test_a_plan_as_json(run):
    result = quorate_plan("--from", run, "--json", "--realisations", 20, "--target-ess", 50)
    found = json.loads(result.stdout)
    assert found["draws"] == 50  # there is no summary: draws count as independent
    assert found["recommended"] in found["options"]
    assert len(found["explanation"]) == 5
    assert {option["workers"] for option in found["options"]} == {2, 4}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "either that or a run"),
        (["--latency", "fast"], "pareto"),
        (["--latency", "exponential:1", "--workers", "a"], "whole numbers"),
        (["--latency", "exponential:1", "--workers", "4", "--redundancy", "9"], "at most 4"),
        (["--latency", "exponential:1", "--scheme", "magic"], "magic"),
        (["--latency", "exponential:1", "--rows-share", "2"], "share"),
        (["--latency", "exponential:1", "--draws", "5", "-o", "plan.what"], "cannot be written"),
        (["--slow", "1x2", "--from", "nowhere"], "a run has its own"),
    ],
)
def test_mistakes_are_one_line(arguments, message):
    result = quorate_plan(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
