"""C-CMC with decoded precisions, and the checks of its answers."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import schemes as make
from helpers.assertions import assert_known
from quorate.engines.latency import Pareto
from quorate.engines.virtual import engine as virtual
from quorate.errors import BadInputError, QuorateWarning, SingularCovarianceError
from quorate.lab.error import relative_error, second_moment
from quorate.merging.centres import shift_of
from quorate.merging.fit import Fit
from quorate.merging.weights import shrunk_covariance
from quorate.models.gaussian import paper_subposteriors
from quorate.numerics.moments import Moments
from quorate.numerics.streams import Streams
from quorate.protocol.coding import code as coding
from quorate.protocol.coding.agreement import check_determinism
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.messages import Block, Task
from quorate.protocol.schemes.coded import CodedCMC
from quorate.protocol.schemes.exact_sums import ExactCodedCMC
from quorate.protocol.schemes.exact_sums_worker import Checkpoints, default_floor, shrunk
from quorate.samplers import make_sampler

DIM = 3
FLOOR = default_floor(DIM)
N_DRAWS = 40


def draws_of(rng, n_shards, n_draws=N_DRAWS, dim=DIM):
    """Draws of shards with means, scales and correlations of their own."""
    mixing = rng.uniform(-1, 1, (n_shards, dim, dim)) + 2 * np.eye(dim)
    means = rng.standard_normal((n_shards, 1, dim))
    return rng.standard_normal((n_shards, n_draws, dim)) @ mixing + means


def blocks_of(scheme, worker, draws, sizes=None, fits=None):
    """The blocks that a worker sends of the draws of all shards, cut into these sizes."""
    side, shards = scheme.worker_side, list(scheme.allocation.shards_of(worker))
    state = side.start([fits[s] if fits else None for s in shards])
    task = Task(worker, tuple(shards), 0, 0, draws.shape[1])
    blocks, first = [], 0
    for size in sizes or [draws.shape[1]]:
        processed, state = side.process(draws[shards, first : first + size], state)
        blocks.append(Block(task, first, *side.encode(worker, processed)))
        first += size
    return blocks


def receive_all(scheme, draws, workers=None, sizes=None, fits=None):
    for worker in range(scheme.code.n_workers) if workers is None else workers:
        for block in blocks_of(scheme, worker, draws, sizes, fits):
            scheme.receive(block)
    return scheme


def consensus(draws, covs):
    """Eq. (8), written out."""
    precisions = np.linalg.inv(covs)
    sums = np.einsum("sij,slj->li", precisions, draws)
    return np.linalg.solve(precisions.sum(axis=0), sums.T).T


def sample_covariances(draws, n):
    return np.array([np.cov(shard[:n].T, bias=True) for shard in draws])


SMALL_CODES = [
    coding.make_code(name, k, r)
    for name in coding.CODES
    for k in range(1, 6)
    for r in range(1, k + 1)
]
IDS = [f"{code.name}-{code.n_workers}-{code.redundancy}" for code in SMALL_CODES]

# ---------------------------------------------------------------- draws


@pytest.mark.parametrize("code", SMALL_CODES, ids=IDS)
def test_draws_are_those_of_cmc_for_every_survivor_set(code, rng):
    draws = draws_of(rng, code.n_workers)
    expected = consensus(draws, sample_covariances(draws, N_DRAWS))
    made = ExactCodedCMC(code, DIM, last=N_DRAWS)
    blocks = [blocks_of(made, worker, draws) for worker in range(code.n_workers)]
    for size in range(code.n_workers + 1):
        for survivors in combinations(range(code.n_workers), size):
            scheme = ExactCodedCMC(code, DIM, last=N_DRAWS)
            for worker in survivors:
                for block in blocks[worker]:
                    scheme.receive(block)
            assert scheme.n_complete == (N_DRAWS if code.decodable(survivors) else 0)
            got = scheme.received.global_draws()
            np.testing.assert_allclose(got, expected[: scheme.n_complete], atol=1e-8)


def test_all_draws_have_the_weights_of_the_newest_checkpoint(rng):
    draws = draws_of(rng, 4)
    scheme = ExactCodedCMC(coding.grouped(4, 2), DIM)
    numbers = Checkpoints(FLOOR).within(0, N_DRAWS, with_fits=False)
    streams = [blocks_of(scheme, worker, draws, [1] * N_DRAWS) for worker in (0, 3)]
    for draw, pair in enumerate(zip(*streams, strict=True)):
        n_global = [scheme.receive(block) for block in pair][-1]
        newest = max((number for number in numbers if number <= draw + 1), default=0)
        assert n_global == (draw + 1 if newest else 0)
        if newest:
            expected = consensus(draws[:, : draw + 1], sample_covariances(draws, newest))
            np.testing.assert_allclose(scheme.received.global_draws(), expected, atol=1e-10)


def test_nothing_is_released_before_the_floor(seed):
    """Then all at once; later draws when the paper's scheme has them."""
    runs = []
    for scheme in (
        CodedCMC(coding.grouped(12, 3), 5, 10.0, 1.0),
        ExactCodedCMC(coding.grouped(12, 3), 5),
    ):
        cluster = virtual.Cluster(Pareto(0.1, 1.2), paper_subposteriors(12), Streams(seed))
        runs.append(virtual.run(Coordinator(scheme, N_DRAWS), cluster).release_times)
    paper, exact = np.array(runs)
    floor = default_floor(5)
    np.testing.assert_array_equal(exact, np.maximum(paper, paper[floor - 1]))


def test_error_in_the_paper_s_experiment_is_that_of_cmc_s_weights(seed):
    """K = 40, r = 4, t = 3. The ratio to the error of the weights of all released draws was
    1.008 ± 0.024 over 12 seeds, and 1.77 for eq. (14), which is the control.
    """
    subposteriors, code, ridge = paper_subposteriors(40), coding.grouped(40, 4), 0.1
    expected = subposteriors.posterior_second_moment()
    errors = []
    for realisation in range(40):
        streams = Streams(seed, realisation)
        cluster = virtual.Cluster(Pareto(0.1, 1.2), subposteriors, streams)
        exact, estimated = ExactCodedCMC(code, 5, ridge), CodedCMC(code, 5, ridge, 40 / ridge)
        for scheme in (exact, estimated):
            virtual.run(Coordinator(scheme), cluster, until=3.0)
        assert exact.n_complete == (estimated.n_complete if estimated.n_complete >= 13 else 0)
        if not exact.n_complete:
            continue
        draws = subposteriors.draws(streams, [(s, 0) for s in range(40)], 0, exact.n_complete)
        covs = sample_covariances(draws, exact.n_complete) + ridge * np.eye(5)
        results = (
            exact.received.global_draws(),
            estimated.received.global_draws(),
            consensus(draws, covs),
        )
        errors.append([relative_error(second_moment(result), expected) for result in results])
    by_exact, by_estimate, by_cmc = np.mean(errors, axis=0)
    assert_known(by_exact / by_cmc, 1.0, 0.03)
    with pytest.raises(AssertionError):
        assert_known(by_estimate / by_cmc, 1.0, 0.03)


def test_a_run_for_fewer_draws_than_the_floor_draws_up_to_it(seed):
    scheme = ExactCodedCMC(coding.grouped(4, 2), 5, last=3)
    cluster = virtual.Cluster(Pareto(0.1, 1.2), paper_subposteriors(4), Streams(seed))
    timeline = virtual.run(Coordinator(scheme, 3), cluster)
    assert timeline.finished
    assert scheme.n_complete == default_floor(5)


def test_weights_sum_to_one_exactly(rng):
    """Where all shards draw the same, so do all of them together, however noisy the weights."""
    common = rng.standard_normal((1, N_DRAWS, DIM)) * [1e-4, 1.0, 1e5]
    noise = draws_of(rng, 6, FLOOR) * [1e-4, 1.0, 1e5]
    draws = np.concatenate([noise, np.repeat(common, 6, axis=0)], axis=1)
    scheme = receive_all(ExactCodedCMC(coding.grouped(6, 3), DIM), draws)
    np.testing.assert_allclose(scheme.received.global_draws()[FLOOR:], common[0], rtol=1e-8)


@settings(max_examples=20)
@given(data=st.data())
def test_bits_depend_neither_on_blocks_nor_on_who_answered_when(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    draws = draws_of(rng, 6)
    expected = receive_all(ExactCodedCMC(coding.grouped(6, 3), DIM), draws).global_draws()
    scheme = ExactCodedCMC(coding.grouped(6, 3), DIM, checked=data.draw(st.booleans()))
    members = [data.draw(st.sets(st.sampled_from(g), min_size=1)) for g in ([0, 1, 2], [3, 4, 5])]
    streams = []
    for worker in sorted(members[0] | members[1]):
        cuts = sorted(data.draw(st.sets(st.integers(1, N_DRAWS - 1), max_size=6)))
        sizes = np.diff([0, *cuts, N_DRAWS]).tolist()
        streams.append(blocks_of(scheme, worker, draws, sizes))
    while streams:
        stream = data.draw(st.sampled_from(streams))
        scheme.receive(stream.pop(0))
        streams = [stream for stream in streams if stream]
    assert scheme.received.global_draws().tobytes() == expected.tobytes()


def test_a_restarted_worker_goes_on_bit_for_bit(rng):
    scheme = ExactCodedCMC(coding.grouped(4, 2), DIM, checked=True)
    side, draws = scheme.worker_side, draws_of(rng, 2)
    state = side.start([None, None])
    sent = dict(state)
    for first in range(0, N_DRAWS, 5):
        before = {name: array.copy() for name, array in state.items()}
        processed, after = side.process(draws[:, first : first + 5], state)
        assert all(np.array_equal(state[name], before[name]) for name in before)
        sent |= {name: a.copy() for name, a in after.items() if state.get(name) is not a}
        again, _ = side.process(draws[:, first : first + 5], before)
        for one, other in zip(side.encode(1, processed), side.encode(1, again), strict=True):
            np.testing.assert_equal(one, other)
        state = after
    assert sent.keys() == state.keys()
    np.testing.assert_equal(sent, dict(state))


def test_fits_are_weights_from_the_first_draw(rng):
    draws = draws_of(rng, 4)
    fits = [Fit(np.zeros(DIM), cov) for cov in sample_covariances(draws_of(rng, 4), N_DRAWS)]
    scheme = ExactCodedCMC(coding.grouped(4, 2), DIM)
    receive_all(scheme, draws[:, :5], workers=(1, 2), fits=fits)
    expected = consensus(draws[:, :5], [fit.covariance for fit in fits])
    np.testing.assert_allclose(scheme.received.global_draws(), expected, atol=1e-10)


def test_draws_are_shifted_as_those_of_cmc(rng):
    """The coded sum is that of the draws, shrunk as the coordinator would shrink them."""
    draws = draws_of(rng, 4)
    covs = sample_covariances(draws_of(rng, 4), N_DRAWS)
    fits = [
        Fit(shard.mean(axis=0) + 0.1, cov, worth=90.0)
        for shard, cov in zip(draws, covs, strict=True)
    ]
    scheme = ExactCodedCMC(coding.grouped(4, 2), DIM, last=N_DRAWS, estimate=shrunk)
    receive_all(scheme, draws, workers=(1, 2), fits=fits)
    known = list(zip(map(Moments.of, draws), fits, strict=True))
    shifts = np.array([shift_of(*of) for of in known])
    assert np.abs(shifts).min() > 0.01
    expected = consensus(draws + shifts[:, None], [shrunk_covariance(*of) for of in known])
    np.testing.assert_allclose(scheme.received.global_draws(), expected, atol=1e-10)


@pytest.mark.parametrize("n_draws", [2, FLOOR - 1])
def test_a_few_draws_do_not_say_where_others_belong(n_draws, rng):
    """The first checkpoint is at the first draw, of which all up to the next one know."""
    draws = draws_of(rng, 4, n_draws)
    fits = [Fit(np.zeros(DIM), np.eye(DIM), worth=worth) for worth in (900.0, 0.0)]
    with_means, without = (
        receive_all(
            ExactCodedCMC(coding.grouped(4, 2), DIM, estimate=shrunk), draws, (1, 2), fits=[fit] * 4
        ).global_draws()
        for fit in fits
    )
    np.testing.assert_array_equal(with_means, without)


def test_one_shard_without_a_fit_has_all_wait_for_the_floor(rng):
    draws = draws_of(rng, 4)
    fits = [Fit(np.zeros(DIM), np.eye(DIM))] * 3 + [None]
    scheme = ExactCodedCMC(coding.grouped(4, 2), DIM)
    streams = [blocks_of(scheme, worker, draws, [1] * N_DRAWS, fits) for worker in (1, 2)]
    counts = [scheme.receive(block) for pair in zip(*streams, strict=True) for block in pair]
    assert counts[1::2] == [0] * (FLOOR - 1) + list(range(FLOOR, N_DRAWS + 1))
    newest = Checkpoints(FLOOR).within(0, N_DRAWS, with_fits=False)[-1]
    expected = consensus(draws, sample_covariances(draws, newest))
    np.testing.assert_allclose(scheme.received.global_draws(), expected, atol=1e-10)


def test_checkpoints():
    assert Checkpoints(13).within(0, 130, False) == [13, 16, 20, 24, 29, 35, 42, 51, 62, 124]
    assert Checkpoints(13, 100).within(13, 200, False) == [25, 50, 100, 200]
    assert Checkpoints(13, 5).within(0, 16, False) == [13, 16]
    assert Checkpoints(13).within(0, 13, True) == [1, 13]
    assert Checkpoints(1).within(0, 2, True) == [1, 2]


@pytest.mark.parametrize("checked", [False, True])
def test_floats_are_counted_as_sent(checked, seed):
    """d for each draw, c d again and d(d+1)/2 at checkpoint c; r more for each row if checked."""
    scheme = ExactCodedCMC(coding.grouped(1, 1), 5, last=52, checked=checked)
    cluster = virtual.Cluster(Pareto(0.1, 1.2), paper_subposteriors(1), Streams(seed))
    timeline = virtual.run(Coordinator(scheme, 52), cluster, keep_blocks=True)
    n_rows = (52 - 12) + (13 + 26 + 52)  # the block of a first checkpoint has its last draw
    n_rows -= 1  # which has no weights before it
    n_checkpoints = 3
    expected = 5 * n_rows + 15 * n_checkpoints + checked * (n_rows + n_checkpoints)
    assert sum(block.n_floats for block in timeline.blocks) == expected


@pytest.mark.parametrize("value", ["constant", "in one line", "not a number"])
def test_a_singular_covariance_is_told_in_words(value, rng):
    draws = draws_of(rng, 2, FLOOR)
    draws[1, :, 1] = {"constant": 2.0, "in one line": 2 * draws[1, :, 0], "not a number": np.nan}[
        value
    ]
    with pytest.raises(SingularCovarianceError):
        receive_all(ExactCodedCMC(coding.grouped(2, 1), DIM), draws)


# ---------------------------------------------------------------- checks


@dataclass(frozen=True)
class Fault:
    """What is done to one worker's draws or messages."""

    worker: int
    shards: tuple[int, ...] = (0,)  # which of those it holds
    first: int = 20
    redraws: bool = False
    size: float = 0.0  # of a relative error in its draws
    in_coded: bool = False  # the error is in its coded vectors alone

    def apply(self, rng, draws, shards):
        """To the draws of the worker."""
        if self.in_coded:
            return draws
        draws = draws.copy()
        for shard in self.shards:
            part = draws[shards[shard], self.first :]
            factor = 1 + self.size * rng.uniform(0.5, 1, part.shape)
            draws[shards[shard], self.first :] = part[::-1] if self.redraws else part * factor
        return draws

    def spoil(self, rng, block):
        """What it sends."""
        if not self.in_coded:
            return block
        payload = block.payload.copy()
        first = max(self.first - block.first_draw, 0)
        part = payload[first:]
        payload[first:] += self.size * np.abs(part).max(initial=0) * rng.uniform(0.5, 1, part.shape)
        return block._replace(payload=payload)


def faulty_run(code, fault, rng, sizes=(8, 8, 8, 8, 8), order=None, n_draws=N_DRAWS):
    draws = draws_of(rng, code.n_workers, n_draws)
    scheme = ExactCodedCMC(code, DIM, checked=True, last=n_draws)
    honest = receive_all(ExactCodedCMC(code, DIM, last=n_draws), draws)
    streams = []
    for worker in range(code.n_workers):
        shards = scheme.allocation.shards_of(worker)
        theirs = fault.apply(rng, draws, shards) if worker == fault.worker else draws
        blocks = blocks_of(scheme, worker, theirs, list(sizes))
        spoilt = [fault.spoil(rng, b) if worker == fault.worker else b for b in blocks]
        streams.append(spoilt)
    for turn in zip(*streams, strict=True):
        for worker in order or rng.permutation(code.n_workers).tolist():
            scheme.receive(turn[worker])
    return scheme, honest


NAMED = [coding.grouped(8, 4), coding.grouped(7, 3), coding.cyclic(6, 2), coding.reed_solomon(7, 3)]
FAULTS = [{"redraws": True}, {"size": 1e-6}, {"size": 1e-6, "in_coded": True}]


@pytest.mark.parametrize("code", NAMED, ids=lambda c: f"{c.name}-{c.n_workers}-{c.redundancy}")
@pytest.mark.parametrize("fault", FAULTS, ids=["redrawn", "relative error", "coded alone"])
def test_a_faulty_worker_is_named_and_taken_out(code, fault, rng):
    for trial in range(8):
        worker = trial % code.n_workers
        shards = (int(rng.integers(code.redundancy)),) if code.redundancy > 2 else (0, 1)
        scheme, honest = faulty_run(code, Fault(worker, shards, **fault), rng)
        assert scheme.checks.quarantined == {worker: 20}, (trial, scheme.checks.disputed)
        assert "draw 20" in scheme.quarantined[worker]
        assert not scheme.checks.disputed
        np.testing.assert_allclose(
            scheme.received.global_draws(), honest.received.global_draws(), atol=1e-8
        )
        assert scheme.next_task(worker, 2 * N_DRAWS) is None
        assert scheme.next_task((worker + 1) % code.n_workers, 2 * N_DRAWS) is not None


def test_two_holders_alone_are_both_named(rng):
    scheme, _ = faulty_run(coding.grouped(6, 2), Fault(3, (0, 1), redraws=True), rng)
    assert not scheme.quarantined
    assert scheme.checks.disputed == {(2, 3): 20}


def test_one_shard_of_two_holders_names_both(rng):
    """Another shard would tell them apart, but all others are well."""
    scheme, _ = faulty_run(coding.cyclic(6, 2), Fault(3, redraws=True), rng)
    assert not scheme.quarantined
    assert scheme.checks.disputed == {(2, 3): 20}


def test_two_holders_alone_are_told_apart_if_one_contradicts_itself(rng):
    scheme, _ = faulty_run(coding.grouped(6, 2), Fault(3, size=1e-6, in_coded=True), rng)
    assert scheme.checks.quarantined == {3: 20}


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (1, 3, 0, 2, 4), (3, 0, 1, 2, 4)])
def test_two_faulty_workers_of_a_group_of_five_are_named(order, rng):
    code, faults = coding.grouped(5, 5), {1: 20, 3: 25}
    draws = draws_of(rng, 5)
    scheme = ExactCodedCMC(code, DIM, checked=True)
    for worker in order:
        theirs = draws.copy()
        if worker in faults:
            theirs[2, faults[worker] :] = rng.standard_normal((N_DRAWS - faults[worker], DIM))
        for block in blocks_of(scheme, worker, theirs, [10] * 4):
            scheme.receive(block)
    assert scheme.checks.quarantined == faults


def test_draws_that_cannot_do_without_a_faulty_answer_are_wrong_until_they_can(rng):
    """Its group has not answered since; when it does, all is well."""
    draws, code = draws_of(rng, 6), coding.grouped(6, 3)
    scheme = ExactCodedCMC(code, DIM, checked=True)
    fault = Fault(0, redraws=True)
    bad = blocks_of(scheme, 0, fault.apply(rng, draws, (0, 1, 2)), [20, 20])
    good = [blocks_of(scheme, worker, draws, [20, 5, 15]) for worker in (1, 2, 3)]
    for block in [*bad, *good[2]]:
        scheme.receive(block)
    released = scheme.n_complete
    assert released == N_DRAWS
    for worker in (0, 1):
        scheme.receive(good[worker][0])
        scheme.receive(good[worker][1])
    assert scheme.checks.quarantined == {0: 20}
    assert scheme.n_complete == released
    honest = receive_all(ExactCodedCMC(code, DIM), draws).received.global_draws()
    assert not np.allclose(scheme.received.global_draws(), honest)
    assert not scheme.out_of_reach(N_DRAWS + 5, {0, 1, 2, 3})
    assert scheme.out_of_reach(N_DRAWS + 5, {0, 3})
    scheme.receive(good[0][2])
    np.testing.assert_array_equal(scheme.received.global_draws(), honest)


@pytest.mark.parametrize("name", ["precisions", "again", "precisions_products", "again_products"])
@pytest.mark.parametrize("value", ["off by a millionth", "not a number"])
def test_what_is_sent_at_checkpoints_is_checked(name, value, rng):
    draws, code = draws_of(rng, 6), coding.grouped(6, 3)
    scheme = ExactCodedCMC(code, DIM, checked=True)
    for worker in range(6):
        (block,) = blocks_of(scheme, worker, draws)
        if worker == 4:
            spoilt = block.extras[f"checkpoints/{FLOOR}/{name}"].copy()
            spoilt[0] = np.nan if value == "not a number" else spoilt[0] * (1 + 1e-6)
            block = block._replace(extras={**block.extras, f"checkpoints/{FLOOR}/{name}": spoilt})
        scheme.receive(block)
    assert scheme.checks.quarantined == {4: FLOOR - 1}


def test_parity_finds_what_hides_from_products(rng):
    """An error at a right angle to the shared vector: only another coded vector shows it."""
    draws, code = draws_of(rng, 6), coding.grouped(6, 3)
    scheme = ExactCodedCMC(code, DIM, checked=True)
    vectors = scheme.worker_side.shared.of_draws(0, N_DRAWS, DIM)
    for worker in range(6):
        (block,) = blocks_of(scheme, worker, draws)
        if worker == 4:
            payload = block.payload.copy()
            payload[30] += 1e-3 * np.array([vectors[30, 1], -vectors[30, 0], 0.0])
            block = block._replace(payload=payload)
        scheme.receive(block)
    assert scheme.checks.quarantined == {4: 30}


@pytest.mark.parametrize(
    "code",
    [
        coding.grouped(20, 4),
        coding.grouped(10, 4),
        coding.reed_solomon(20, 3),
        coding.cyclic(20, 3),
    ],
    ids=lambda c: f"{c.name}-{c.n_workers}-{c.redundancy}",
)
def test_no_false_alarms_in_10000_honest_blocks(code, rng):
    """Though holders round differently, as on other processors, and units differ widely."""
    n_blocks = 0
    while n_blocks < 2500:
        scheme = ExactCodedCMC(code, DIM, checked=True, last=75)
        draws = draws_of(rng, code.n_workers, 75) * 10.0 ** rng.uniform(-6, 6, DIM)
        streams = []
        for worker in range(code.n_workers):
            rounded = draws * (1 + 2e-15 * rng.uniform(-1, 1, draws.shape))
            streams.append(blocks_of(scheme, worker, rounded, [3] * 25))
        while any(streams):
            left = [worker for worker, stream in enumerate(streams) if stream]
            scheme.receive(streams[int(rng.choice(left))].pop(0))
            n_blocks += 1
        assert not scheme.quarantined
        assert not scheme.checks.disputed


@pytest.mark.parametrize("code", SMALL_CODES, ids=IDS)
def test_parity_vectors_of_every_set_of_answers(code):
    n_workers = code.n_workers
    for size in range(1, n_workers + 1):
        for received in combinations(range(n_workers), size):
            for worker in received:
                vector = code.parity(worker, received)
                if vector is None:
                    continue
                assert vector[worker]
                assert not np.any(vector[sorted(set(range(n_workers)) - set(received))])
                scale = np.abs(vector) @ np.abs(code.encoding)
                assert np.all(np.abs(vector @ code.encoding) <= 1e-9 * scale.max())
    if code.redundancy > 1:
        assert code.parity(0, range(n_workers)) is not None


# ---------------------------------------------------------------- input


@dataclass(frozen=True)
class Unsteady:
    name: str = "unsteady"
    determinism: str = "none"


def test_samplers_must_draw_the_same_everywhere():
    check_determinism(make_sampler("ellipse"))
    with pytest.warns(QuorateWarning, match="same library versions"):
        check_determinism(make_sampler("nuts"))
    with pytest.raises(BadInputError, match=r"unsteady.*Use 'ellipse'"):
        check_determinism(Unsteady())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"precision": "guessed"}, "exact or estimated"),
        ({"precision": "estimated", "checked": True}, "precision='exact'"),
        ({"floor": 0}, "floor must be a whole number, at least 1"),
        ({"floor": "3"}, "floor must be a whole number, at least 1"),
        ({"code": []}, "code must be the name of a code"),
        ({"precision_ridge": -1.0}, "precision_ridge must be a finite number"),
        ({"cov_ridge": -1.0}, "0 or more"),
    ],
)
def test_bad_input(change, message):
    options = {"cov_ridge": 1.0, "precision": "exact", **change}
    with pytest.raises(BadInputError, match=message):
        make.started("coded", 4, 2, DIM, **options)
