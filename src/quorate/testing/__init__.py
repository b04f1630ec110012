"""Conformance tests of a scheme. A package that brings a scheme runs them on its own class.

>>> from quorate.testing import check_scheme
>>> check_scheme(Backup(redundancy=2), n_workers=4)

`check_scheme` runs all of them. Each drives the scheme with the real coordinator and real blocks,
and raises `AssertionError` with a sentence where a promise of `quorate.protocol.scheme` is broken.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from itertools import combinations
from typing import Any

import numpy as np

from quorate._types import Array
from quorate.engines.virtual import engine as virtual
from quorate.models.gaussian import paper_subposteriors
from quorate.numerics.streams import Streams
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.scheme import FirstDraws, Received, SchemeOptions, Setup
from quorate.protocol.schemes import SCHEMES
from quorate.protocol.sums import summed_values
from quorate.protocol.times import Realisations, Work
from quorate.testing.fleet import DIM, LATENCY, Fleet, started

__all__ = [
    "check_any_order",
    "check_chains",
    "check_leave_out",
    "check_losses",
    "check_open_ended",
    "check_options",
    "check_replay_and_resume",
    "check_scheme",
    "check_short_cuts",
    "check_sums",
]

_MOST_SETS = 20  # of workers that die together


def check_scheme(options: SchemeOptions, n_workers: int = 4, seed: int = 0) -> None:
    """Run all conformance tests on a scheme with K workers. Takes about a second."""
    check_options(options, n_workers)
    check_chains(options, n_workers, seed)
    for order in range(5):
        check_any_order(options, n_workers, seed + order)
    check_open_ended(options, n_workers, seed)
    check_losses(options, n_workers, seed)
    check_leave_out(options, n_workers, seed)
    check_replay_and_resume(options, n_workers, seed)
    check_short_cuts(options, n_workers, seed)
    check_sums(options, n_workers, seed)


def check_options(options: SchemeOptions, n_workers: int = 4) -> None:
    """Options are a registered, frozen dataclass of JSON values that describes its scheme."""
    made_of: Any = type(options)
    is_frozen = is_dataclass(options) and made_of.__dataclass_params__.frozen
    assert is_frozen, "options are not frozen: decorate their class with @dataclass(frozen=True)"
    _check_description(made_of)
    assert SCHEMES[options.name] is made_of, f"{options.name!r} is not registered as this class"
    journalled = json.loads(json.dumps(SCHEMES.as_json(options)))
    assert SCHEMES.from_json(journalled) == options, "options change in JSON: use JSON values only"
    r = options.shards_per_worker(n_workers)
    allocation = started(options, n_workers).allocation
    assert allocation.n_workers == allocation.n_shards == n_workers, "K workers and K shards"
    assert max(map(len, allocation.held)) == r, "shards_per_worker is what a worker holds"
    assert 0 <= options.survives(n_workers) < n_workers, "survives is below the number of workers"


def _check_description(made_of: Any) -> None:
    """Class attributes are what figures, the planner and the checks of settings need."""
    told: dict[str, Any] = {
        name: getattr(made_of, name, None) for name in SchemeOptions.__annotations__
    }
    for name in ("name", "label"):
        is_text = isinstance(told[name], str) and told[name]
        assert is_text, f"{name} is {told[name]!r}: give the class a {name}, a string"
    is_colour = re.fullmatch(r"#[0-9a-fA-F]{6}", str(told["colour"]))
    assert is_colour, f"colour is {told['colour']!r}: give the class one such as '#0072b2'"
    for name in ("needs_common_randomness", "can_leave_out"):
        assert isinstance(told[name], bool), f"{name} is {told[name]!r}: say True or False"
    published, known = told["published"], {field.name for field in fields(made_of)}
    is_of_options = isinstance(published, Mapping) and known.issuperset(published)
    assert is_of_options, f"published is {published!r}: make it a mapping of options, maybe empty"
    made_of(**published)


def check_chains(options: SchemeOptions, n_workers: int = 4, seed: int = 0) -> None:
    """Holders of a shard draw different chains, or all the same one with common randomness."""
    scheme = started(options, n_workers, seed=seed)
    for shard in range(n_workers):
        holders = scheme.allocation.holders_of(shard)
        chains = {scheme.chain_of(worker, shard) for worker in holders}
        if options.needs_common_randomness:
            advice = "return one chain for all holders, or set needs_common_randomness = False"
            assert len(chains) == 1, f"chain_of gives shard {shard} the chains {chains}: {advice}"
        else:
            advice = (
                "they would draw the same bits. Return the rank of the worker among the holders, "
                "or set needs_common_randomness = True"
            )
            is_own = len(chains) == len(holders)
            assert is_own, (
                f"chain_of gives the holders {holders} of shard {shard} {chains}: {advice}"
            )


def check_any_order(options: SchemeOptions, n_workers: int = 4, seed: int = 0) -> None:
    """Whatever the order of arrivals, the run reaches its draws, and uses none twice."""
    n_draws = 15
    fleet = Fleet(started(options, n_workers, n_draws, seed), n_draws, seed)
    fleet.run()
    assert fleet.finished, "all draws are reached when nobody dies"
    assert fleet.released == sorted(fleet.released), "L(t) never falls while nobody is left out"
    received = fleet.scheme.received
    assert received.n_complete >= n_draws, "the last release counts the draws that are complete"
    draws = received.global_draws()
    assert draws.shape[0] >= n_draws, "there are as many global draws as were released"
    assert draws.shape[1] == DIM, "a global draw has d coordinates"
    assert np.isfinite(draws).all(), "global draws are finite"
    _check_readers(received, draws, n_workers)
    _check_tasks(fleet)
    counts = received.draw_counts()
    sent = sum(len(block.payload) * len(block.task.shards) for block in fleet.blocks)
    assert counts.received == sent, "every draw that arrives is counted once"
    assert 0 < counts.used <= counts.received, "draws that are used have arrived"


def _check_readers(received: Received, draws: Array, n_workers: int) -> None:
    """What results and reports read fits the global draws."""
    is_between = received.n_complete <= received.n_offered <= len(draws)
    assert is_between, "n_offered is from n_complete to the number of global draws"
    assert received.n_chains >= 1, "n_chains is at least 1, which stands for merged draws"
    if isinstance(received, FirstDraws):
        same = np.allclose(received.first_draws(3), draws[:3])
        assert same, "first_draws(n) are the first n of global_draws"
    of_shards, weights = received.shard_draws(), received.weights()
    shapes = [np.shape(each)[1:] for each in of_shards]
    is_right = shapes in ([], [(DIM,)] * n_workers)
    assert is_right, "shard_draws has an (n, d) array for each shard, or nothing if only sums come"
    if weights is not None:
        assert weights.shape == (n_workers, DIM, DIM), "weights has a (d, d) matrix for each shard"
        assert np.allclose(weights.sum(axis=0), np.eye(DIM)), "weights sum to the identity"


def _check_tasks(fleet: Fleet) -> None:
    """Blocks are such as the supervisor of real workers accepts."""
    reached: dict[tuple[int, tuple[int, ...], int], int] = {}
    for block in fleet.blocks:
        task = block.task
        chains = {fleet.scheme.chain_of(task.worker, shard) for shard in task.shards}
        assert chains == {task.chain}, "a task is for the chain that chain_of names"
        chain = task.worker, task.shards, task.chain
        expected = reached.get(chain, 0)
        assert block.first_draw == expected, (
            "a task continues where the last one of its chain ended"
        )
        reached[chain] = block.first_draw + len(block.payload)
        shapes = fleet.scheme.worker_side.payload_shapes(len(task.shards), DIM)
        assert block.payload.shape[1:] in shapes, "payload_shapes has the shape of every payload"


def check_open_ended(options: SchemeOptions, n_workers: int = 4, seed: int = 0) -> None:
    """A run that only time ends always has work for everybody, also in blocks of several draws."""
    scheme = options.start(Setup(n_workers, DIM, None, block_size=3, seed=seed))
    fleet = Fleet(scheme, None, seed)
    fleet.run(n_blocks=20 * n_workers)
    assert not fleet.idle, f"without n_draws, workers {fleet.idle} are left without a task"
    assert scheme.received.n_complete > 0, "without n_draws, global draws are complete on the way"


def check_losses(options: SchemeOptions, n_workers: int = 4, seed: int = 0) -> None:
    """Any `survives(K)` workers may be dead; a scheme that cannot finish says so at once.

    A worker that dies and is restarted is asked again for what it had not sent.
    """
    n_draws = 10
    restarted = Fleet(started(options, n_workers, n_draws, seed), n_draws, seed)
    restarted.run(restart=0)
    assert restarted.finished, "a restarted worker is asked again for what it had not sent"
    everybody = range(n_workers)
    for n_dead in range(n_workers):
        for dead in list(combinations(everybody, n_dead))[:_MOST_SETS]:
            scheme = started(options, n_workers, n_draws, seed)
            missing = scheme.out_of_reach(n_draws, set(everybody) - set(dead))
            if n_dead <= options.survives(n_workers):
                assert not missing, f"the loss of workers {dead} is survived"
            fleet = Fleet(scheme, n_draws, seed)
            fleet.run(dead=dead)
            assert fleet.finished == (not missing), f"out_of_reach is right without {dead}"


def check_leave_out(options: SchemeOptions, n_workers: int = 4, seed: int = 0) -> None:
    """With `can_leave_out`, a run continues without the shards that nobody alive holds."""
    n_draws, everybody = 10, range(n_workers)
    fresh = started(options, n_workers, n_draws, seed)
    sets = (dead for n in everybody[1:] for dead in combinations(everybody, n))
    lost = {dead: fresh.out_of_reach(n_draws, set(everybody) - set(dead)) for dead in sets}
    dead = next((dead for dead, shards in lost.items() if 0 < len(shards) < n_workers), None)
    if not options.can_leave_out or dead is None:
        return
    shards = lost[dead]
    try:
        fresh.leave_out(shards)
    except Exception as error:
        advice = "let it leave out these shards, or set can_leave_out = False"
        raise AssertionError(f"leave_out({shards}) raises {error!r}: {advice}") from error
    assert set(fresh.received.excluded) == set(shards), (
        f"leave_out({shards}) excludes exactly these"
    )
    fresh.leave_out(())
    assert not fresh.received.excluded, "leave_out(()) brings all shards back"
    fleet = Fleet(started(options, n_workers, n_draws, seed), n_draws, seed, may_exclude=True)
    fleet.run(dead=dead)
    received, n_left = fleet.scheme.received, n_workers - len(shards)
    assert fleet.finished, f"without shards {shards} the run reaches its draws"
    assert np.isfinite(received.global_draws()).all(), "global draws of the other shards are finite"
    assert len(received.shard_draws()) == n_left, "shard_draws has the included shards only"
    prior = np.random.default_rng(seed).normal(size=(n_draws, DIM))
    received.add_factor(prior, None)
    *_, last = received.shard_draws()
    assert np.array_equal(last, prior), "a factor that is added is the last of shard_draws"
    assert np.isfinite(received.global_draws()).all(), (
        "global draws with one more factor are finite"
    )


def check_replay_and_resume(options: SchemeOptions, n_workers: int = 4, seed: int = 0) -> None:
    """Replayed blocks give the same bits; a run that is resumed half-way reaches its draws."""
    n_draws = 12
    fleet = Fleet(started(options, n_workers, n_draws, seed), n_draws, seed)
    fleet.run()
    replayed = started(options, n_workers, n_draws, seed)
    for block in fleet.blocks:
        replayed.receive(block)
    expected = fleet.scheme.received.global_draws()
    assert np.array_equal(replayed.received.global_draws(), expected), "a replay has the same bits"
    resumed = Fleet(started(options, n_workers, n_draws, seed), n_draws, seed + 1)
    for block in fleet.blocks[: len(fleet.blocks) // 2]:
        resumed.coordinator.handle(block)
    resumed.coordinator.take_all_back()
    resumed.run()
    assert resumed.finished, "a resumed run reaches its draws"


def check_short_cuts(options: SchemeOptions, n_workers: int = 4, seed: int = 0) -> None:
    """`looks` and `finish_times`, where they are offered, agree with running the scheme."""
    n_draws = 20
    scheme = started(options, n_workers, n_draws, seed)
    cluster = virtual.Cluster(LATENCY, paper_subposteriors(n_workers, DIM), Streams(seed, 0))
    timeline = virtual.run(Coordinator(scheme, n_draws), cluster)
    looks = scheme.received.looks(np.ones((1, len(timeline.block_times)), dtype=np.bool_))
    if looks is not None:
        draws: Array = looks.draws[0, : looks.counts[0]]
        same = np.allclose(draws, scheme.received.global_draws(), rtol=1e-9, atol=1e-12)
        assert same, "the last look shows the global draws of now"
    times = options.finish_times(Realisations(Work(LATENCY, n_workers, n_draws, seed=seed), 0, 1))
    if times is not None:
        simulated = timeline.release_times[n_draws - 1]
        assert np.isclose(times.times[0], simulated), "finish_times are those of a simulated run"


def check_sums(options: SchemeOptions, n_workers: int = 4, seed: int = 0) -> None:
    """Sums over shards are right from all answers, and from those of any workers that suffice."""
    sums = options.sums(n_workers, seed)
    shards = np.random.default_rng(seed).integers(-1000, 1000, (n_workers, 6)).astype(float)
    parts = {
        part.number: summed_values([shards[s] for s in part.shards], part.coefficients)
        for worker in range(n_workers)
        for part in sums.parts_of(worker)
    }
    assert sums.is_complete(parts), "all answers together give the sum"
    givers = [(w, part.number) for w in range(n_workers) for part in sums.parts_of(w)]
    assert all(w in sums.givers_of(number) for w, number in givers), "givers can give their parts"
    r = options.shards_per_worker(n_workers)
    for n_lost in range(min(options.survives(n_workers), r - 1) + 1):
        for lost in list(combinations(range(n_workers), n_lost))[:_MOST_SETS]:
            alive = [worker for worker in range(n_workers) if worker not in lost]
            numbers = {part.number for worker in alive for part in sums.parts_of(worker)}
            known = {number: parts[number] for number in numbers}
            assert sums.is_complete(known), f"without workers {lost} the sum is still known"
            total = sums.total(known, shards.shape[1])
            assert np.allclose(total, shards.sum(axis=0)), f"it is right without workers {lost}"
    assert sums.lost_shards((), ()), "nobody alive means that shards are lost"
