"""Plans of exact runs: passes in virtual time take as long as those of a run."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from helpers import journals
from quorate.engines.latency import Dying, Exponential, Pareto, Slowed
from quorate.engines.virtual.passes import VirtualPasses
from quorate.errors import BadInputError
from quorate.lab.scale import Pooled
from quorate.numerics.streams import Streams
from quorate.passes.inquiry import Inquiry
from quorate.planner import plan
from quorate.planner.measured import measured
from quorate.planner.passes import ExactRun, passes_in_virtual_time
from quorate.protocol.exact import ExactScheme
from quorate.protocol.passes import PassCoordinator
from quorate.protocol.schemes import CMC, Adaptive, Grouped
from quorate.protocol.times import Work

SCHEMES = [CMC(), Grouped(redundancy=2), Adaptive(redundancy=2), Adaptive(redundancy=4)]
LATENCY = Slowed(Pareto(0.1, 1.2), workers=1, factor=5.0)
WORKERS, DRAWS, DIM = 4, 300, 3


class Noted(Inquiry):
    """Notes the sizes of all questions."""

    def __init__(self, *args, **options):
        self.before, self.of_lanes = [], ([], [])
        super().__init__(*args, **options)

    def take(self, lane, values, gradients=None):
        asked = self.open[lane]
        sizes = self.of_lanes[lane] if asked.phase == "draw" else self.before
        sizes.append(len(asked.points))
        super().take(lane, values, gradients)


@dataclass(frozen=True)
class OneTimeEach(ExactRun):
    """Every task takes one computing time, as in runs in virtual time."""

    def units(self, task):
        return 1.0


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: f"{s.name}-{s.shards_per_worker(4)}")
def test_times_are_those_of_a_run_that_asks_the_same_questions(scheme, seed):
    """Run by run: the schedule is the same, and the answers do not matter to it."""
    names = [f"x{i}" for i in range(DIM)]
    inquiry = Noted(np.zeros(DIM), names, DRAWS, seed, has_gradient=False)
    whole = ExactScheme(scheme.sums(WORKERS, seed), inquiry)
    coordinator = PassCoordinator(whole, DRAWS)
    answering = Pooled(WORKERS, DIM)
    timeline = VirtualPasses(coordinator, answering, LATENCY, Streams(seed, 0)).run()
    asked = OneTimeEach(tuple(inquiry.before), tuple(map(tuple, inquiry.of_lanes)))
    work = Work(LATENCY, WORKERS, DRAWS, seed=seed)
    times, _ = passes_in_virtual_time(scheme, work, asked, DIM, 1)
    assert times[0] == pytest.approx(timeline.release_times[-1], rel=1e-12)


def test_a_worker_that_dies_ends_an_exact_run_without_redundancy_only(seed):
    """Exponential times of mean 0.1: the death after a second comes in all of 20 runs."""
    found = plan(
        Dying(Exponential(0.1), workers=1, since=1.0),
        method="exact",
        schemes=["cmc", "adaptive", "coded"],
        redundancies=[2],
        workers=[4],
        dim=2,
        seed=seed,
    )
    by_name = {option.scheme: option for option in found.options}
    assert by_name["cmc"].share_unfinished == 1.0
    assert by_name["adaptive"].share_unfinished == by_name["coded"].share_unfinished == 0.0
    assert found.recommended.scheme == "adaptive"
    assert "--method exact --workers 4 --redundancy 2 --scheme adaptive" in found.command


def test_a_worker_a_thousand_times_as_fast_does_all_if_it_holds_all():
    """With r = K a run is as fast as the fast worker alone, but for what it waits for in surveys.

    Times are constant, so nothing is left to chance.
    """
    times = Slowed(Exact(0.001), workers=(1, 2, 3, 4), factor=1000.0)
    found = plan(times, method="exact", schemes=["adaptive"], redundancies=[2, 5], workers=[5])
    few, all_shards = found.options
    alone = plan(Exact(0.005), method="exact", schemes=["cmc"], workers=[1], measured_at=1)
    assert all_shards.median == pytest.approx(alone.recommended.median, rel=0.02)
    assert few.median > 100 * all_shards.median


@dataclass(frozen=True)
class Exact:
    """The same time for everything."""

    seconds: float

    def times(self, streams, n_workers, first, n):
        return np.full((n_workers, n), self.seconds)

    def death_times(self, streams, n_workers):
        return np.full(n_workers, np.inf)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """An exact run of three workers in one process."""
    folder = tmp_path_factory.mktemp("run")
    journals.exact_run(folder)
    return folder


def test_workers_that_answer_together_are_one_machine(finished):
    times, history = measured(finished)
    assert times.n_workers == 1
    assert times.silent == ()
    blocks = history.blocks()
    busy = float((blocks.ends - blocks.begins)[blocks.n_draws > 0].sum())
    per_point = times.levels[0] * float(times.factors @ times.shares)
    n_points = int((blocks.n_draws * blocks.n_shards).sum())
    assert per_point == pytest.approx(busy / n_points, rel=1e-6)
    asked = ExactRun.of_history(history, times, history.settings.draws)
    assert asked.n_machines == 1
    points = {phase.name: phase.n_points for phase in history.passes.phases()}
    n_floats = sum(points.values()) + history.dim * points["fit"]  # with gradients
    assert asked.floats == pytest.approx(n_floats / sum(points.values()))
    told = {phase.name: phase.n_answers for phase in history.passes.phases()}
    assert len(asked.before) == told["fit"] + told["weigh"]
    assert sum(map(len, asked.draws)) == pytest.approx(told["draw"], rel=0.15)  # sizes are rounded


def test_more_draws_are_made_by_more_chains(finished):
    """A hundred times the draws take a hundred times the points, in ensembles that are larger."""
    times, history = measured(finished)
    few, many = (ExactRun.of_history(history, times, n) for n in (200, 20_000))
    assert sum(map(sum, many.draws)) == pytest.approx(100 * sum(map(sum, few.draws)), rel=0.15)
    assert many.draws[0][0] == pytest.approx(5 * few.draws[0][0], rel=0.15)  # 125 chains, not 25


@pytest.mark.parametrize("n_passes", [1, 4])
def test_a_run_without_a_draw_says_too_little(finished, tmp_path, n_passes):
    """Shards are surveyed, then the fit: a run that was killed before its first draw."""
    run = journals.killed(finished, tmp_path / "run", 3 + n_passes)
    with pytest.raises(BadInputError, match=r"Let it run for longer"):
        plan(run=run)


def test_a_plan_from_an_exact_run_is_for_exact_runs(finished):
    found = plan(run=finished, redundancies=[2])
    assert {option.workers for option in found.options} == {2, 3}
    assert all(np.isfinite(option.p95) for option in found.options)
    assert found.explanation[0].startswith("Measured: 3 workers in 1 process, ")
    assert "--method exact" in found.command
    assert "--method exact" in plan(run=finished, redundancies=[2], method="exact").command
    with pytest.raises(BadInputError, match=r"made by method='exact'.*nothing of 'merge'"):
        plan(run=finished, method="merge")


def test_more_machines_make_it_faster_unless_workers_share_them(finished):
    """Two workers in one process take as long as one: shards are done one after the other."""
    times, history = measured(finished)
    together = ExactRun.of_history(history, times, 200)
    apart = replace(together, n_machines=None)
    work = Work(Exact(0.01), 3, 200)
    slow, fast = (
        passes_in_virtual_time(CMC(), work, asked, 2, 1).times[0] for asked in (together, apart)
    )
    assert slow == pytest.approx(3 * fast, rel=1e-9)
