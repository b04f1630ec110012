"""Runs in virtual time against the formulas of the paper."""

import numpy as np
import pytest

from quorate.engines.latency import Dying, Pareto, Slowed, Trace
from quorate.engines.virtual import engine as virtual
from quorate.errors import BadInputError
from quorate.models.gaussian import paper_subposteriors
from quorate.numerics.streams import Streams
from quorate.protocol.coding import code as coding
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.ledger import Merging
from quorate.protocol.scheme import Setup
from quorate.protocol.schemes import as_published
from quorate.protocol.schemes.cmc import PlainCMC
from quorate.protocol.schemes.coded import CodedCMC
from quorate.protocol.schemes.grouped import GroupedCMC

N_DRAWS = 25
PARETO = Pareto(0.1, 1.2)
EIGHTHS = Trace(((0.125,),), shuffle=False)  # seconds that add up exactly
SIZES = [(1, 1), (5, 1), (5, 2), (6, 3), (7, 3), (8, 8)]


def cluster(n_workers, seed, latency=PARETO, **options):
    return virtual.Cluster(latency, paper_subposteriors(n_workers), Streams(seed), **options)


def run(scheme, seed, n_draws=N_DRAWS, until=np.inf, latency=PARETO, **options):
    n_workers = scheme.allocation.n_workers
    coordinator = Coordinator(scheme, n_draws)
    return virtual.run(coordinator, cluster(n_workers, seed, latency, **options), until)


def cmc(n_workers):
    return PlainCMC(n_workers, Merging(cov_ridge=10.0))


def grouped(n_workers, redundancy):
    return GroupedCMC(n_workers, redundancy, Merging(cov_ridge=10.0))


def arrival_times(n_workers, n_shards, seed, n=N_DRAWS, latency=PARETO):
    """T_k^l = Σ ΔT_k, with ΔT of mean η times the shards held: shape (n_workers, n)."""
    times = latency.times(Streams(seed), n_workers, 0, n)
    return np.cumsum(times * np.reshape(n_shards, (-1, 1)), axis=1)


@pytest.mark.parametrize("n_workers", [1, 5, 12])
def test_release_times_of_cmc(n_workers, seed):
    expected = arrival_times(n_workers, 1, seed).max(axis=0)  # T^l = max over k of T_k^l
    timeline = run(cmc(n_workers), seed)
    np.testing.assert_allclose(timeline.release_times, expected)
    assert timeline.finished


@pytest.mark.parametrize(("n_workers", "redundancy"), SIZES)
def test_release_times_of_grouped(n_workers, redundancy, seed):
    scheme = grouped(n_workers, redundancy)
    held = [len(shards) for shards in scheme.allocation.held]
    arrivals = arrival_times(n_workers, held, seed)
    order_statistics = [np.sort(arrivals[list(g)].ravel())[:N_DRAWS] for g in scheme.worker_groups]
    timeline = run(scheme, seed)
    np.testing.assert_allclose(timeline.release_times, np.max(order_statistics, axis=0))


@pytest.mark.parametrize("code", ["reed-solomon", "cyclic"])
@pytest.mark.parametrize(("n_workers", "redundancy"), SIZES)
def test_release_times_of_coded(code, n_workers, redundancy, seed):
    made = CodedCMC(coding.make_code(code, n_workers, redundancy), 5, 10.0, 0.5)
    arrivals = np.sort(arrival_times(n_workers, redundancy, seed), axis=0)
    expected = arrivals[n_workers - redundancy]  # the (K-r+1)-th order statistic
    np.testing.assert_allclose(run(made, seed).release_times, expected)


@pytest.mark.parametrize(("n_workers", "redundancy"), SIZES)
def test_grouped_code_decodes_when_every_group_does(n_workers, redundancy, seed):
    made = CodedCMC(coding.grouped(n_workers, redundancy), 5, 10.0, 0.5)
    arrivals = arrival_times(n_workers, redundancy, seed)

    def first_decodable(times):
        moments = np.sort(times)
        return next(t for t in moments if made.code.decodable(np.flatnonzero(times <= t).tolist()))

    expected = [first_decodable(times) for times in arrivals.T]
    np.testing.assert_allclose(run(made, seed).release_times, expected)


@pytest.mark.parametrize("per_draw", [False, True])
def test_grouped_with_r_1_is_cmc_bit_for_bit(per_draw, seed):
    schemes = cmc(6), grouped(6, 1)
    one, other = (run(scheme, seed, per_draw=per_draw) for scheme in schemes)
    assert one == other
    np.testing.assert_array_equal(*(scheme.received.global_draws() for scheme in schemes))


def test_coded_and_cmc_draw_the_same_from_every_shard(seed):
    """Common randomness: without a ridge on weights, both are Σ Ĉ⁻¹θ of the same draws."""
    one, coded = cmc(5), CodedCMC(coding.grouped(5, 2), 5, 10.0, 0.5)
    run(one, seed)
    run(coded, seed)
    draws = np.concatenate([one.received.batches(k) for k in range(5)], axis=1)
    processed, _ = coded.worker_side.process(np.moveaxis(draws, 0, 1), {})
    direct = coded.code.unpack(processed.vectors.sum(axis=0), 5)
    np.testing.assert_allclose(coded.precision_weighted_sums(), direct, atol=1e-12)


def test_all_codes_give_the_same_draws(seed):
    results = []
    for code in coding.CODES:
        scheme = CodedCMC(coding.make_code(code, 7, 3), 5, 10.0, 0.7)
        run(scheme, seed)
        results.append(scheme.received.global_draws())
    np.testing.assert_allclose(results[0], results[1], atol=1e-9)
    np.testing.assert_allclose(results[0], results[2], atol=1e-9)


def test_per_draw_times_are_sums(seed):
    scheme = grouped(4, 2)
    times = PARETO.times(Streams(seed), 4, 0, 2 * N_DRAWS).reshape(4, N_DRAWS, 2)
    arrivals = np.cumsum(times.sum(axis=2), axis=1)
    groups = [np.sort(arrivals[list(g)].ravel())[:N_DRAWS] for g in scheme.worker_groups]
    timeline = run(scheme, seed, per_draw=True)
    np.testing.assert_allclose(timeline.release_times, np.max(groups, axis=0))


@pytest.mark.parametrize("name", ["cmc", "grouped", "coded", "adaptive"])
def test_runs_are_deterministic(name, seed):
    options = as_published(name, {"cov_ridge": 10.0}, {"redundancy": 2})
    one, other = (options.start(Setup(6, 5, N_DRAWS, seed=seed)) for _ in range(2))
    latency = Dying(Slowed(PARETO, 2, 3.0), 1, since=100.0)
    assert run(one, seed, latency=latency) == run(other, seed, latency=latency)
    np.testing.assert_array_equal(one.received.global_draws(), other.received.global_draws())


def test_a_deadline_ends_an_open_ended_run(seed):
    scheme = cmc(3)
    timeline = run(scheme, seed, n_draws=None, until=4.0)
    expected = arrival_times(3, 1, seed, n=500)
    np.testing.assert_allclose(timeline.release_times, [t for t in expected.max(axis=0) if t <= 4])
    assert scheme.received.n_received == (expected <= 4).sum(axis=1).tolist()


def test_a_block_that_comes_at_the_deadline_is_in_time(seed):
    latency = Trace(((1.0,),), shuffle=False)
    assert run(cmc(2), seed, None, until=3.0, latency=latency).release_times == [1, 2, 3]


def test_an_open_ended_run_outlives_its_dead(seed):
    """Worker 0 dies after 8 draws: they are still paired with what the slower one sends."""
    latency = Dying(Slowed(EIGHTHS, (1,), 4.0), (0,), since=1.0625)
    scheme = cmc(2)
    timeline = run(scheme, seed, None, until=50.0, latency=latency)
    assert scheme.received.n_received == [8, 100]
    assert timeline.release_times == [0.5 * (1 + draw) for draw in range(8)]


def test_a_run_must_have_an_end():
    with pytest.raises(BadInputError, match="needs a time to end at"):
        run(cmc(3), 0, n_draws=None)


def test_deaths_that_are_survived(seed):
    """Worker 0 dies after 4 batches; the other member of its group carries on."""
    scheme = grouped(4, 2)
    timeline = run(scheme, seed, latency=Dying(EIGHTHS, (0,), since=1.0625))
    assert timeline.finished
    assert timeline.block_workers.count(0) == 4
    assert timeline.block_workers.count(1) == N_DRAWS - 4


def test_deaths_that_are_not(seed):
    timeline = run(cmc(4), seed, latency=Dying(EIGHTHS, (2,), since=1.0625))
    assert not timeline.finished
    assert timeline.block_times[-1] == 1.0


def test_a_straggler_holds_up_cmc_and_not_grouped(seed):
    latency = Slowed(EIGHTHS, (1,), 50.0)
    slow = run(cmc(4), seed, latency=latency).release_times[-1]
    fast = run(grouped(4, 2), seed, latency=latency).release_times[-1]
    assert slow == N_DRAWS * 50 / 8
    assert fast == N_DRAWS * 2 / 8  # a batch has two draws


def test_replayed_traces_time_runs(seed):
    scheme = cmc(2)
    latency = Trace(((1.0, 2.0), (3.0,)), shuffle=False)
    timeline = run(scheme, seed, n_draws=3, latency=latency)
    assert timeline.release_times == [3.0, 6.0, 9.0]
    assert timeline.block_times == [1.0, 3.0, 3.0, 4.0, 6.0, 9.0]
    assert timeline.block_workers == [0, 0, 1, 0, 1, 1]


def test_many_workers():
    scheme = cmc(2_000)
    assert run(scheme, 1, n_draws=5).finished
    assert scheme.received.draw_counts() == (10_000, 10_000)


def test_tasks_that_queue_at_a_worker_are_done_one_after_the_other(seed):
    """Whatever the depth of the queues, a worker computes the same draws at the same times."""
    plain, queued = grouped(4, 2), grouped(4, 2)
    one = virtual.run(Coordinator(plain), cluster(4, seed), 4.0)
    other = virtual.run(Coordinator(queued, queue_depth=3), cluster(4, seed), 4.0)
    assert one == other
    np.testing.assert_array_equal(plain.received.global_draws(), queued.received.global_draws())


def test_blocks_are_kept_on_request(seed):
    scheme, again = grouped(4, 2), grouped(4, 2)
    timeline = virtual.run(Coordinator(scheme, 5), cluster(4, seed), keep_blocks=True)
    assert [block.task.shards for block in timeline.blocks] == timeline.block_shards
    assert [block.task.worker for block in timeline.blocks] == timeline.block_workers
    for block in timeline.blocks:
        again.receive(block)
    np.testing.assert_array_equal(again.received.global_draws(), scheme.received.global_draws())
