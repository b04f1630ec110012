"""The adaptive scheme: its rule under any order of events, and its runs in virtual time."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

import quorate
from helpers import schemes as make
from helpers.assertions import FALSE_FAIL_RATE, assert_known, assert_mean, assert_often
from quorate.engines.latency import Dying, Exponential, Pareto, Slowed, Trace
from quorate.engines.virtual import engine as virtual
from quorate.errors import BadInputError
from quorate.models.gaussian import GaussianSubposteriors, paper_subposteriors
from quorate.numerics.streams import Streams
from quorate.protocol.allocation import cyclic, overlapping, random_regular
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.ledger import Merging
from quorate.protocol.messages import Block, Release, Stop, Task, WorkerJoined, WorkerLost
from quorate.protocol.schemes.adaptive import AdaptiveCMC
from quorate.protocol.stretches import by_chain

DIM = 2
PARETO = Pareto(0.1, 1.2)
ONE_EACH = Trace(((1.0,),), shuffle=False)


# ---------------------------------------------------------------- the rule, whatever happens


class Referee:
    """Plays the workers to a coordinator, keeps its own books, and checks every task by them."""

    def __init__(self, scheme, n_draws, queue_depth=1, gap=None):
        self.scheme = scheme
        self.n_draws = n_draws
        self.gap = gap
        self.coordinator = Coordinator(scheme, n_draws, queue_depth)
        n = scheme.allocation.n_workers
        self.queues = {worker: [] for worker in range(n)}
        self.received = [0] * n
        self.seen = set()  # (shard, chain, draw) received
        self.out = Counter()  # draws under way, by shard
        self.sent_of_first = dict.fromkeys(range(n), 0)
        self.spare = {}
        self.stopped = None
        for worker in range(n):
            self.tell(WorkerJoined(worker))

    def tell(self, event):
        for command in self.coordinator.handle(event):
            if isinstance(command, Task):
                self.check(command)
            elif isinstance(command, Stop):
                self.stopped = command

    def check(self, task):
        (shard,) = task.shards
        at_hand = [*self.scheme.allocation.shards_of(task.worker)]
        if task.worker in self.spare:
            at_hand.append(self.spare[task.worker])
        lacking = [s for s, n in enumerate(self.received) if n < self.n_draws]
        started = {s: self.received[s] + self.out[s] for s in lacking}
        best_at_hand = min((started[s] for s in at_hand if s in lacking), default=np.inf)
        if shard in at_hand:
            assert started[shard] == best_at_hand
        else:
            assert started[shard] == min(started.values())
            self.spare[task.worker] = shard
        if self.gap is None:
            assert shard in at_hand
        else:
            assert (best_at_hand - min(started.values()) > self.gap) == (shard not in at_hand)
        assert task.chain == self.scheme.chain_of(task.worker, shard)
        for draw in range(task.first_draw, task.first_draw + task.n_draws):
            address = (shard, task.chain, draw)
            assert address not in self.seen
            assert all(address not in self.addresses(queue) for queue in self.queues.values())
        self.out[shard] += task.n_draws
        self.queues[task.worker].append(task)

    @staticmethod
    def addresses(tasks):
        return {
            (task.shards[0], task.chain, task.first_draw + i)
            for task in tasks
            for i in range(task.n_draws)
        }

    def send(self, worker, n=1):
        """`worker` sends the next `n` draws of its first task, or as many as are left of it."""
        task, sent = self.queues[worker][0], self.sent_of_first[worker]
        n = min(n, task.n_draws - sent)
        first, shard = task.first_draw + sent, task.shards[0]
        self.seen |= {(shard, task.chain, first + i) for i in range(n)}
        self.received[shard] += n
        self.out[shard] -= n
        self.sent_of_first[worker] = sent + n
        if sent + n == task.n_draws:
            self.queues[worker].pop(0)
            self.sent_of_first[worker] = 0
        self.tell(Block(task, first, np.zeros((n, 1, DIM))))
        assert self.scheme.received.n_received == self.received

    def lose(self, worker):
        sent = self.sent_of_first[worker]
        for i, task in enumerate(self.queues[worker]):
            self.out[task.shards[0]] -= task.n_draws - (sent if i == 0 else 0)
        self.queues[worker], self.sent_of_first[worker] = [], 0
        self.tell(WorkerLost(worker))

    @property
    def busy(self):
        return [worker for worker, queue in self.queues.items() if queue]


@pytest.mark.parametrize(("n_workers", "redundancy"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_every_order_of_arrivals(n_workers, redundancy):
    n_draws = 2
    ends = set()
    for order in product(range(n_workers), repeat=n_draws * n_workers + 1):
        referee = Referee(make.adaptive(n_workers, redundancy, 1.0), n_draws)
        for worker in order:
            if referee.stopped:
                break
            if worker in referee.busy:
                referee.send(worker)
        ends.add(referee.stopped)
        if referee.stopped:
            assert min(referee.received) == n_draws
            assert len(referee.seen) == sum(referee.received)
    assert Stop(finished=True) in ends


@given(
    n_workers=st.integers(1, 6),
    redundancy=st.integers(1, 4),
    n_draws=st.integers(1, 8),
    block_size=st.integers(1, 3),
    queue_depth=st.integers(1, 2),
    gap=st.sampled_from([None, 0, 2]),
    data=st.data(),
)
def test_any_order_of_arrivals_losses_and_returns(
    n_workers, redundancy, n_draws, block_size, queue_depth, gap, data
):
    """No draw lost, none doubled, the shard furthest behind first; and the run ends with all."""
    scheme = make.adaptive(
        n_workers, min(redundancy, n_workers), 1.0, block_size=block_size, gap=gap, seed=3
    )
    referee = Referee(scheme, n_draws, queue_depth, gap)
    lost = set()
    while not referee.stopped:
        what = data.draw(st.integers(0, 9))
        alive = set(range(n_workers)) - lost
        if what == 0 and lost:
            back = data.draw(st.sampled_from(sorted(lost)))
            lost.discard(back)
            referee.tell(WorkerJoined(back))
        elif what == 1 and alive:
            gone = data.draw(st.sampled_from(sorted(alive)))
            if not scheme.out_of_reach(n_draws, alive - {gone}):
                lost.add(gone)
                referee.lose(gone)
        else:
            worker = data.draw(st.sampled_from(referee.busy))
            referee.send(worker, data.draw(st.integers(1, 3)))
    assert referee.stopped == Stop(finished=True)
    assert min(referee.received) >= n_draws
    assert len(referee.seen) == sum(referee.received)
    assert scheme.received.draw_counts() == (sum(referee.received),) * 2


def test_a_worker_that_comes_back_goes_on_after_its_last_draw():
    scheme = make.adaptive(1, 1, 1.0, block_size=3)
    task = scheme.next_task(0, None)
    assert task == Task(0, (0,), 0, 0, 3)
    scheme.receive(Block(task, 0, np.zeros((2, 1, DIM))))
    assert scheme.next_task(0, None).first_draw == 3
    scheme.take_back(0)
    assert scheme.next_task(0, None) == Task(0, (0,), 0, 2, 3)


def test_nobody_waits_for_a_draw_under_way():
    """All draws wanted are under way; worker 1 draws on, since worker 0 may take for ever."""
    scheme = make.adaptive(2, 2, 1.0)
    tasks = [scheme.next_task(0, 1), scheme.next_task(0, 1)]
    assert {task.shards for task in tasks} == {(0,), (1,)}
    more = [scheme.next_task(1, 1), scheme.next_task(1, 1)]
    assert {task.shards for task in more} == {(0,), (1,)}
    for task in more:
        scheme.receive(Block(task, 0, np.zeros((1, 1, DIM))))
    assert scheme.next_task(1, 1) is None


def test_ties_follow_the_seed():
    firsts = {
        tuple(make.adaptive(9, 3, 1.0, seed=seed).next_task(k, None).shards[0] for k in range(9))
        for seed in range(8)
    }
    assert len(firsts) == 8


def test_chains_of_the_holders_of_a_shard_differ():
    scheme = make.adaptive(7, 3, 1.0, gap=1)
    for shard in range(7):
        chains = [scheme.chain_of(worker, shard) for worker in range(7)]
        assert len(set(chains)) == 7
        holders = scheme.allocation.holders_of(shard)
        assert [scheme.chain_of(worker, shard) for worker in holders] == [0, 1, 2]


def test_placement():
    assert overlapping(8, 2, 5) == cyclic(8, 2)
    assert overlapping(8, 3, 5) == random_regular(8, 3, 5)
    assert overlapping(4, 4, 5) == cyclic(4, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_size": 0}, "at least 1"),
        ({"pairing": "none"}, "paper, all"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(BadInputError, match=message):
        make.adaptive(4, 2, 1.0, **options)


def test_a_gap_is_not_negative():
    with pytest.raises(BadInputError, match="0 or more, not -1"):
        make.started("adaptive", 4, 2, DIM, 1.0, gap=-1)


def test_only_the_adaptive_scheme_has_spare_slots():
    with pytest.raises(BadInputError, match=r"'cmc' has no option gap\. Its options are pairing"):
        make.started("cmc", 4, 2, DIM, 1.0, gap=3)


def test_what_can_still_be_reached():
    scheme = make.adaptive(4, 2, 1.0)
    assert not scheme.out_of_reach(3, {0, 2})  # shards 0, 1 and 2, 3
    assert scheme.out_of_reach(3, {0, 1})
    scheme.receive(Block(Task(2, (3,), 0, 0, 3), 0, np.zeros((3, 1, DIM))))
    assert not scheme.out_of_reach(3, {0, 1})
    with_spare = make.adaptive(4, 2, 1.0, gap=5)
    assert not with_spare.out_of_reach(3, {0})
    assert with_spare.out_of_reach(3, set())


# ---------------------------------------------------------------- runs in virtual time


def run(scheme, seed, n_draws=25, until=np.inf, latency=PARETO, realisation=0, **options):
    subposteriors = paper_subposteriors(scheme.allocation.n_workers)
    cluster = virtual.Cluster(latency, subposteriors, Streams(seed, realisation), **options)
    return virtual.run(Coordinator(scheme, n_draws), cluster, until)


@pytest.mark.parametrize("latency", [PARETO, Slowed(Exponential(0.1), 2, 7.0)])
def test_with_r_1_it_is_cmc_bit_for_bit(latency, seed):
    cmc, adaptive = make.cmc(6, 10.0), make.adaptive(6, 1, 10.0, pairing="paper")
    one, other = (run(scheme, seed, latency=latency) for scheme in (cmc, adaptive))
    assert one == other
    np.testing.assert_array_equal(cmc.received.global_draws(), adaptive.received.global_draws())
    assert cmc.received.draw_counts() == adaptive.received.draw_counts()


def test_runs_are_deterministic(seed):
    latency = Dying(Slowed(PARETO, 2, 3.0), 1, since=1.0)
    one, other = (make.adaptive(8, 3, 10.0, gap=2) for _ in range(2))
    assert run(one, seed, latency=latency) == run(other, seed, latency=latency)
    np.testing.assert_array_equal(one.received.global_draws(), other.received.global_draws())


def test_draws_are_those_of_their_addresses(seed):
    """Of holders and of spare slots alike: what arrives is what the streams say."""
    scheme = make.adaptive(6, 2, 10.0, gap=0)
    run(scheme, seed, latency=Slowed(PARETO, (0, 1), 50.0))
    subposteriors, n_chains = paper_subposteriors(6), 0
    for shard in range(6):
        stretches = scheme.received._stretches[shard]
        chains = by_chain(scheme.received.batches(shard), stretches)
        names = sorted({stretch.chain for stretch in stretches})
        n_chains += len(names)
        for chain, draws in zip(names, chains, strict=True):
            expected = subposteriors.draws(Streams(seed), [(shard, chain)], 0, len(draws))[0]
            np.testing.assert_allclose(draws[:, 0], expected, atol=1e-12)
    assert n_chains > 12  # some shards were copied


def test_a_run_that_one_can_follow():
    """Two workers, both hold both shards: four draws each take four times one."""
    timeline = run(make.adaptive(2, 2, 1.0), 0, n_draws=4, latency=ONE_EACH)
    assert timeline.block_times == [1, 1, 2, 2, 3, 3, 4, 4]
    assert timeline.release_times == [1, 2, 3, 4]
    assert Counter(timeline.block_shards) == {(0,): 4, (1,): 4}


def test_copies_take_their_time_and_stay():
    """Worker 1 is too slow to count: worker 0 copies its shard once, and alternates."""
    scheme = make.adaptive(2, 1, 1.0, gap=0)
    latency = Trace(((1.0,), (1000.0,)), shuffle=False)
    timeline = run(scheme, 0, n_draws=3, latency=latency, copy_cost=5.0)
    # 0: shard 0 (started 1, as shard 1), then again (2 against 1), so from now on shard 1 leads
    assert timeline.block_times[0] == 1.0
    assert timeline.release_times[0] == min(
        t
        for t, shards in zip(timeline.block_times, timeline.block_shards, strict=True)
        if shards == (1,)
    )
    assert set(timeline.block_workers) == {0}
    assert timeline.block_times[-1] == len(timeline.block_times) + 5.0


@pytest.mark.parametrize("since", [0.0, 1.0])
def test_the_dead_are_survived(since, seed):
    latency = Dying(Exponential(0.1), (2, 5), since=since)
    assert run(make.adaptive(8, 2, 10.0), seed, latency=latency).finished
    both_holders = Dying(Exponential(0.1), (2, 3), since=since)  # of shard 3
    assert not run(make.adaptive(8, 2, 10.0), seed, latency=both_holders).finished
    assert run(make.adaptive(8, 2, 10.0, gap=3), seed, latency=both_holders).finished


def test_slow_workers_leave_their_shards_to_others(seed):
    """Four workers that take 1 for each of 500 draws need 125, and a few for the last of them."""
    scheme = make.adaptive(5, 2, 10.0, seed=seed)
    timeline = run(scheme, seed, n_draws=100, latency=Slowed(ONE_EACH, (0,), 1000.0))
    assert 125 <= timeline.release_times[-1] <= 130
    assert max(scheme.received.n_received) <= 101


def times_of(made, redundancy, seed, n=31):
    """Until 12 workers have made 100 global draws, in each of `n` realisations."""
    runs = (
        run(made(12, redundancy, 10.0, seed=seed), seed, 100, realisation=z, per_draw=True)
        for z in range(n)
    )
    return np.array([timeline.release_times[-1] for timeline in runs])


def test_it_takes_less_time_than_groups_and_the_genie_less_still(seed):
    """In one realisation after the other, where all have the same times.

    Of 300 realisations the genie was not slower in 95 %, and `grouped` slower in 97 %. Nobody can
    be done before as many draws have come as make up the global ones.
    """
    grouped = times_of(make.grouped, 4, seed)
    adaptive, genie = (times_of(make.adaptive, r, seed) for r in (4, 12))
    arrivals = [np.cumsum(PARETO.times(Streams(seed, z), 12, 0, 1200), axis=1) for z in range(31)]
    earliest = np.array([np.sort(times, axis=None)[12 * 100 - 1] for times in arrivals])
    for times in (grouped, adaptive, genie):
        assert np.all(times >= (1 - 1e-12) * earliest)
    assert_often(genie <= adaptive, 0.9)
    assert_often(adaptive < grouped, 0.9)
    with pytest.raises(AssertionError):
        assert_often(adaptive > grouped, 0.9)


def test_a_genie_has_every_shard_at_every_worker_and_wastes_nothing(seed):
    options = {"draws": 20, "realisations": 3, "seed": seed}
    grouped, adaptive, genie = (
        quorate.simulate(scheme, 12, 4, **options) for scheme in ("grouped", "adaptive", "genie")
    )
    assert adaptive.wasted_share == genie.wasted_share == 0 < grouped.wasted_share
    assert genie.redundancy == 12


def test_every_draw_of_grouped_counts_too(seed):
    """Errors were 0.613 ± 0.045 of those of pairing in order, over 60 seeds."""
    paper, every = (
        quorate.simulate("grouped", 8, 2, draws=20, pairing=pairing, seed=seed, realisations=40)
        for pairing in ("paper", "all")
    )
    assert every.median == paper.median
    assert every.wasted_share == 0 < paper.wasted_share
    assert_known(every.error / paper.error, 0.613, 0.045)
    with pytest.raises(AssertionError):
        assert_known(1.0, 0.613, 0.045)


def test_the_genie_holds_every_shard_at_every_worker():
    held = make.started("genie", 4, 2, DIM, 1.0).allocation.held
    assert all(sorted(shards) == [0, 1, 2, 3] for shards in held)


UNIT = GaussianSubposteriors(np.zeros((4, 1)), np.ones((4, 1, 1)))


class Recorded(AdaptiveCMC):
    """Remembers what was asked for, in order."""

    def __init__(self, n_workers, redundancy, cov_ridge):
        super().__init__(n_workers, redundancy, Merging(cov_ridge, "all"))
        self.tasks = []

    def next_task(self, worker, n_draws):
        task = super().next_task(worker, n_draws)
        if task is not None:
            self.tasks.append(task)
        return task


def exponential_in_the_draw(draws):
    return np.exp(draws[..., 0])


def means_of_shards(n_draws, realisations, seed):
    """Means of the first draws received of a shard, and of the first started, one each a run."""
    received, started = [], []
    for realisation in range(realisations):
        scheme, streams = Recorded(4, 2, 1.0), Streams(seed, realisation)
        cluster = virtual.Cluster(
            Exponential(0.1), UNIT, streams, draw_cost=exponential_in_the_draw
        )
        virtual.run(Coordinator(scheme, n_draws), cluster)
        received.append(np.mean(scheme.received.batches(0)[:n_draws]))
        where = [(task.chain, task.first_draw) for task in scheme.tasks if task.shards == (0,)]
        draws = UNIT.draws(streams, [(0, 0), (0, 1)], 0, n_draws)[..., 0]
        started.append(np.mean([draws[address] for address in where[:n_draws]]))
    return np.array(received)[:, None], np.array(started)[:, None]


@pytest.fixture(scope="module")
def few(seed):
    return means_of_shards(2, 600, seed)


def test_in_order_of_start_draws_are_unbiased_and_in_order_of_arrival_not_quite(few):
    """What is decided before a draw is made cannot favour it; the first to arrive are quick."""
    received, started = few
    assert_mean(started, [0.0])
    with pytest.raises(AssertionError):
        assert_mean(received, [0.0])
    assert received.mean() < 0


def test_the_bias_of_arrivals_goes_away_with_their_number(few, seed):
    """Less than one draw under way a shard, worth one sd here: below 1/n, plus noise."""
    received, _ = means_of_shards(40, 80, seed)
    error = received.std(ddof=1) / np.sqrt(len(received))
    limit = 1 / 40 + t.isf(FALSE_FAIL_RATE / 2, len(received) - 1) * error
    assert abs(received.mean()) < limit
    assert abs(few[0].mean()) > limit


def test_to_cancel_the_slower_of_two_would_not_go_away(rng):
    draws = rng.standard_normal((2000, 60, 2))
    times = np.exp(draws) * rng.exponential(size=draws.shape)
    quicker = np.take_along_axis(draws, times.argmin(axis=2)[..., None], axis=2)[..., 0]
    with pytest.raises(AssertionError):
        assert_mean(quicker.mean(axis=1, keepdims=True), [0.0])
    assert quicker.mean() < -0.2


def test_time_of_batches_that_depends_on_their_draws(seed):
    """A batch takes one time for each of its draws, times what that draw costs."""
    scheme = make.started("grouped", 2, 2, 1, 1.0)
    two = GaussianSubposteriors(np.zeros((2, 1)), np.ones((2, 1, 1)))
    for per_draw in (False, True):
        cluster = virtual.Cluster(
            ONE_EACH, two, Streams(seed), per_draw, draw_cost=exponential_in_the_draw
        )
        scheme = make.started("grouped", 2, 2, 1, 1.0)
        timeline = virtual.run(Coordinator(scheme, 1), cluster)
        costs = np.exp(two.draws(Streams(seed), [(0, 0), (1, 0), (0, 1), (1, 1)], 0, 1)).ravel()
        assert timeline.block_times == pytest.approx([min(costs[:2].sum(), costs[2:].sum())])


def test_releases_are_told_when_the_last_shard_has_its_draw():
    coordinator = Coordinator(make.adaptive(2, 2, 1.0), n_draws=1)
    [first], [second] = (coordinator.handle(WorkerJoined(worker)) for worker in (0, 1))
    assert {first.shards, second.shards} == {(0,), (1,)}
    assert coordinator.handle(Block(first, 0, np.zeros((1, 1, DIM))))[0].shards == second.shards
    told = coordinator.handle(Block(second, 0, np.zeros((1, 1, DIM))))
    assert told == [Release(1), Stop(finished=True)]
