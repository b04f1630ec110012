"""Schemes as pure state machines: identities over every case."""

from itertools import combinations, permutations

import numpy as np
import pytest

from helpers import schemes as make
from quorate.errors import BadInputError
from quorate.numerics.moments import Moments
from quorate.protocol.coding import code as coding
from quorate.protocol.messages import Block, Task
from quorate.protocol.schemes.coded import CodedCMC

DIM = 3
RIDGE = 0.7


def block(scheme, worker, draw, payload):
    """Worker `worker` sends one draw, whatever it was asked for."""
    shards = scheme.allocation.shards_of(worker)
    task = Task(worker, shards, scheme.chain_of(worker, shards[0]), draw, 1)
    return Block(task, draw, payload[None])


def payloads_of(scheme, draws):
    """What each worker sends of the draws of all shards, (n_shards, n, d)."""
    side, payloads = scheme.worker_side, []
    for worker, shards in enumerate(scheme.allocation.held):
        processed, _ = side.process(draws[list(shards)], side.start([None] * len(shards)))
        payloads.append(side.encode(worker, processed)[0])
    return payloads


def consensus(draws, received):
    """Eq. (8), written out: `draws[s]` go into global draws, `received[s]` into Ĉ_s."""
    precisions = [np.linalg.inv(np.cov(x.T, bias=True) + RIDGE * np.eye(DIM)) for x in received]
    total = np.linalg.inv(sum(precisions))
    return np.array(
        [
            total @ sum(p @ x[i] for p, x in zip(precisions, draws, strict=True))
            for i in range(len(draws[0]))
        ]
    )


# ---------------------------------------------------------------- CMC


def test_cmc_waits_for_all_and_uses_all_for_covariances(rng):
    """The example of Fig. 2: three workers, L = 3, 2, 2, so two global draws."""
    scheme = make.cmc(3, RIDGE)
    draws = rng.standard_normal((3, 3, DIM))
    counts = [
        scheme.receive(block(scheme, k, draw, draws[k, draw][None]))
        for k, draw in [(0, 0), (0, 1), (1, 0), (2, 0), (1, 1), (0, 2), (2, 1)]
    ]
    assert counts == [0, 0, 0, 1, 1, 1, 2]
    received = [draws[0, :3], draws[1, :2], draws[2, :2]]
    expected = consensus([x[:2] for x in received], received)
    np.testing.assert_allclose(scheme.received.global_draws(), expected, atol=1e-12)
    assert scheme.received.draw_counts() == (7, 6)


def test_cmc_order_of_arrivals_within_a_draw_does_not_matter(rng):
    draws = rng.standard_normal((2, 4, DIM))
    results = set()
    for order in permutations(range(4)):
        scheme = make.cmc(4, RIDGE)
        for draw in range(2):
            counts = [scheme.receive(block(scheme, k, draw, draws[draw, k][None])) for k in order]
            assert counts == [draw] * 3 + [draw + 1]
        results.add(scheme.received.global_draws().tobytes())
    assert len(results) == 1


# ---------------------------------------------------------------- G-CMC


def test_grouped_counts_every_member(rng):
    scheme = make.grouped(5, 2, RIDGE)
    batches = rng.standard_normal((5, 3, 2, DIM))
    arrivals = [(0, 0), (2, 0), (0, 1), (4, 0), (1, 0), (3, 0), (4, 1)]
    counts = [
        scheme.receive(block(scheme, k, i, batches[k, i, : 1 if k == 4 else 2]))
        for k, i in arrivals
    ]
    assert counts == [0, 0, 0, 1, 1, 1, 2]
    first, second = [[batches[k, i] for k, i in arrivals if k // 2 == g] for g in (0, 1)]
    last = [batches[4, 0], batches[4, 1]]
    received = [
        np.array([b[s] for b in group])
        for group, s in [(first, 0), (first, 1), (second, 0), (second, 1), (last, 0)]
    ]
    expected = consensus([x[:2] for x in received], received)
    np.testing.assert_allclose(scheme.received.global_draws(), expected, atol=1e-12)
    assert scheme.received.draw_counts() == (3 * 2 + 2 * 2 + 2, 2 * 5)


def test_grouped_members_draw_independently():
    scheme = make.grouped(6, 3, RIDGE)
    assert [scheme.chain_of(worker, worker) for worker in range(6)] == [0, 1, 2, 0, 1, 2]


def test_grouped_asks_for_no_more_than_is_lacking():
    scheme = make.grouped(4, 2, RIDGE)
    assert scheme.next_task(0, 10) == Task(0, (0, 1), 0, 0, 5)
    assert scheme.next_task(1, 10) == Task(1, (0, 1), 1, 0, 5)
    for draw in range(10):
        scheme.receive(block(scheme, 0, draw, np.zeros((2, DIM))))
    assert scheme.next_task(1, 10) is None
    assert scheme.next_task(2, 10) is not None


# ---------------------------------------------------------------- C-CMC

SMALL_CODES = [
    coding.make_code(name, k, r)
    for name in coding.CODES
    for k in range(1, 9)
    for r in range(1, k + 1)
]


@pytest.mark.parametrize(
    "code", SMALL_CODES, ids=lambda c: f"{c.name}-{c.n_workers}-{c.redundancy}"
)
def test_decoded_sum_is_the_direct_sum_for_every_survivor_set(code, rng):
    """Encoded by the workers, sent as blocks, decoded by the scheme: eqs (12) and (13)."""
    n_workers, n_draws = code.n_workers, 3
    draws = rng.standard_normal((n_workers, n_draws, DIM))
    covs = [
        [np.cov(x[: i + 1].T, bias=True) + RIDGE * np.eye(DIM) for i in range(n_draws)]
        for x in draws
    ]
    direct = np.array(
        [
            sum(np.linalg.solve(covs[s][i], draws[s, i]) for s in range(n_workers))
            for i in range(n_draws)
        ]
    )
    made = CodedCMC(code, DIM, RIDGE, 0.1)
    payloads = payloads_of(made, draws)
    for size in range(n_workers + 1):
        for survivors in combinations(range(n_workers), size):
            scheme = CodedCMC(code, DIM, RIDGE, 0.1)
            for draw in range(n_draws):
                for worker in survivors:
                    scheme.receive(block(scheme, worker, draw, payloads[worker][draw]))
            assert scheme.n_complete == (n_draws if code.decodable(survivors) else 0)
            got = scheme.precision_weighted_sums()
            np.testing.assert_allclose(got, direct[: scheme.n_complete], atol=1e-9)


def test_coded_draws_of_eq_14(rng):
    code = coding.grouped(4, 2)
    scheme = CodedCMC(code, DIM, RIDGE, precision_ridge=0.3)
    draws = rng.standard_normal((4, 6, DIM))
    payloads = payloads_of(scheme, draws)
    for draw in range(6):
        for worker in (0, 3):
            scheme.receive(block(scheme, worker, draw, payloads[worker][draw]))
    processed, _ = scheme.worker_side.process(draws, {})
    phi = processed.vectors.sum(axis=0)
    for draw, got in enumerate(scheme.received.global_draws()):
        d_hat = Moments.of(phi[: draw + 1]).covariance(ridge=0.3)
        np.testing.assert_allclose(got, np.linalg.solve(d_hat, phi[draw]), atol=1e-12)


def test_coded_draws_stay_as_they_were_released(rng):
    scheme = CodedCMC(coding.grouped(2, 1), DIM, RIDGE, 0.3)
    seen = np.empty((0, DIM))
    for draw in range(5):
        for worker in range(2):
            scheme.receive(block(scheme, worker, draw, rng.standard_normal(DIM)))
        now = scheme.received.global_draws()
        np.testing.assert_allclose(now[:draw], seen, atol=1e-13)
        seen = now


def test_coded_releases_exactly_when_decodable(rng):
    for _ in range(50):
        code = coding.make_code(rng.choice(list(coding.CODES)), 7, int(rng.integers(1, 8)))
        scheme, answered = CodedCMC(code, DIM, RIDGE, 0.1), set()
        for worker in rng.permutation(7).tolist():
            released = scheme.receive(block(scheme, worker, 0, np.zeros(2 * DIM)))
            answered.add(worker)
            assert released == int(code.decodable(answered))
            if released:
                break


def test_coded_order_of_answers_does_not_matter(rng):
    code = coding.reed_solomon(4, 2)
    scheme = CodedCMC(code, DIM, RIDGE, 0.1)
    payloads = payloads_of(scheme, rng.standard_normal((4, 1, DIM)))
    results = []
    for order in permutations((0, 1, 3)):
        scheme = CodedCMC(code, DIM, RIDGE, 0.1)
        for worker in order:
            scheme.receive(block(scheme, worker, 0, payloads[worker][0]))
        results.append(scheme.precision_weighted_sums())
    np.testing.assert_allclose(results, np.broadcast_to(results[0], np.shape(results)), atol=1e-13)


def test_answers_that_are_not_needed_are_counted_and_not_used():
    scheme = CodedCMC(coding.grouped(4, 2), DIM, RIDGE, 0.1)
    for worker in (0, 1, 2, 3):  # 1 says what 0 said, 3 is late
        scheme.receive(block(scheme, worker, 0, np.ones(DIM)))
    assert scheme.received.draw_counts() == (8, 4)


def test_blocks_of_many_draws_are_blocks_of_one(rng):
    draws = rng.standard_normal((2, 6, 1, DIM))
    one_by_one, at_once = make.cmc(2, RIDGE), make.cmc(2, RIDGE)
    for worker in range(2):
        for draw in range(6):
            one_by_one.receive(block(one_by_one, worker, draw, draws[worker, draw]))
        for first, last in ((0, 2), (2, 6)):
            task = Task(worker, (worker,), 0, 0, 6)
            at_once.receive(Block(task, first, draws[worker, first:last]))
    np.testing.assert_array_equal(
        one_by_one.received.global_draws(), at_once.received.global_draws()
    )


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize(
    ("scheme", "tolerable", "fatal"),
    [("cmc", set(), {2}), ("grouped", {0, 2}, {2, 3}), ("coded", {1, 3}, {0, 1})],
)
def test_what_can_still_be_reached(scheme, tolerable, fatal):
    made = make.started(scheme, 4, 2, DIM, RIDGE)
    everyone = set(range(4))
    assert not made.out_of_reach(5, everyone - tolerable)
    assert made.out_of_reach(5, everyone - fatal)


def test_the_dead_that_have_sent_all_are_not_missed():
    scheme = make.cmc(2, RIDGE)
    scheme.receive(block(scheme, 0, 0, np.zeros((1, DIM))))
    assert not scheme.out_of_reach(1, {1})
    assert scheme.out_of_reach(2, {1})
    grouped = make.grouped(4, 2, RIDGE)
    grouped.receive(block(grouped, 0, 0, np.zeros((2, DIM))))
    assert not grouped.out_of_reach(1, {2})
    assert grouped.out_of_reach(2, {2})
    coded = CodedCMC(coding.cyclic(3, 1), DIM, RIDGE, 0.1)
    coded.receive(block(coded, 0, 0, np.zeros(DIM)))
    assert not coded.out_of_reach(1, {1, 2})
    assert coded.out_of_reach(2, {1, 2})


def test_no_draws_yet():
    for name in ("cmc", "grouped", "coded"):
        assert len(make.started(name, 4, 2, DIM, RIDGE).received.global_draws()) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scheme": "magic"}, "cmc, grouped, coded"),
        ({"n_workers": 0}, "at least 1"),
        ({"redundancy": 9}, "from 1 to the number of workers, 4, not 9"),
        ({"redundancy": 0}, "from 1 to the number of workers, 4, not 0"),
        ({"cov_ridge": -1.0}, "0 or more"),
        ({"cov_ridge": np.inf}, "0 or more"),
        ({"precision_ridge": np.nan}, "0 or more"),
        ({"code": "turbo"}, "grouped, reed-solomon, cyclic"),
    ],
)
def test_bad_input(change, message):
    arguments = {"scheme": "coded", "n_workers": 4, "redundancy": 2, "dim": DIM, "cov_ridge": 1.0}
    with pytest.raises(BadInputError, match=message):
        make.started(**{**arguments, **change})
