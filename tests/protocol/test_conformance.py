"""The conformance tests of schemes: every built-in one passes them, and broken ones do not."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from quorate.protocol.schemes import CMC, SCHEMES, Adaptive, Coded, Genie, Grouped
from quorate.testing import check_options, check_scheme

OPTIONS = [
    CMC(),
    CMC(pairing="paper", cov_ridge=1.0),
    Grouped(redundancy=2),
    Grouped(redundancy=3, pairing="paper", cov_ridge=1.0),
    Adaptive(redundancy=2),
    Adaptive(redundancy=3, gap=2),
    Genie(),
    Coded(redundancy=2),
    Coded(redundancy=3, code="reed-solomon", checked=False),
    Coded(redundancy=2, precision="estimated", cov_ridge=10.0, code="cyclic"),
]


@pytest.mark.filterwarnings("ignore::quorate.errors.IllConditionedCodeWarning")
@pytest.mark.parametrize("n_workers", [4, 5])
@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_built_in_schemes_conform(options, n_workers, seed):
    check_scheme(options, n_workers, seed)


class Broken:
    """A run of CMC with one promise broken."""

    def __init__(self, run, breaks):
        self._run = run
        self._breaks = breaks

    def __getattr__(self, name):
        return getattr(self._run, name)

    def receive(self, block):
        if self._breaks == "counts twice":
            self._run.received.add(block.task.worker, block.payload)
        return self._run.receive(block)

    def out_of_reach(self, n_draws, alive):
        return () if self._breaks == "hopes" else self._run.out_of_reach(n_draws, alive)

    def leave_out(self, shards):
        if self._breaks == "gives up":
            raise NotImplementedError
        return 0 if self._breaks == "leaves nothing out" else self._run.leave_out(shards)

    def next_task(self, worker, n_draws):
        task = self._run.next_task(worker, n_draws)
        if self._breaks == "other chain":
            return task and task._replace(chain=1)
        return None if self._breaks == "needs an end" and n_draws is None else task

    def take_back(self, worker):
        if self._breaks != "forgets":
            self._run.take_back(worker)


@dataclass(frozen=True)
class BrokenOptions(CMC):
    """CMC with one promise broken."""

    breaks: str = ""

    name: ClassVar[str] = "broken"
    published: ClassVar[Mapping[str, object]] = {}

    def survives(self, n_workers):
        return 1 if self.breaks == "boasts" else 0

    def start(self, setup):
        return Broken(CMC().start(setup), self.breaks)

    def finish_times(self, realisations):
        found = super().finish_times(realisations)
        return found._replace(times=found.times / 2) if self.breaks == "hurries" else found


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        ("counts twice", "counted once"),
        ("hopes", "out_of_reach is right"),
        ("forgets", "asked again"),
        ("boasts", "is survived"),
        ("hurries", "finish_times"),
        ("gives up", r"leave_out\(\(0,\)\) raises NotImplementedError.*can_leave_out = False"),
        ("leaves nothing out", r"leave_out\(\(0,\)\) excludes exactly these"),
        ("other chain", "the chain that chain_of names"),
        ("needs an end", r"workers \[0, 1, 2, 3\] are left without a task"),
    ],
)
def test_a_broken_scheme_is_found_out(breaks, message, monkeypatch):
    monkeypatch.setitem(SCHEMES._known, "broken", BrokenOptions)
    check_scheme(BrokenOptions())
    with pytest.raises(AssertionError, match=message):
        check_scheme(replace(BrokenOptions(), breaks=breaks))


GENERATED = ("__dict__", "__weakref__", "__init__", "__setattr__", "__delattr__", "__hash__")


def options_of_cmc(*lacking, frozen=True, **changed):
    """A class like CMC's options, but without some attributes, or with other ones."""
    body = {name: value for name, value in vars(CMC).items() if name not in (*GENERATED, *lacking)}
    return dataclass(frozen=frozen)(type("Odd", (), {**body, "name": "broken", **changed}))


@pytest.mark.parametrize(
    ("made_of", "message"),
    [
        (options_of_cmc(frozen=False), r"@dataclass\(frozen=True\)"),
        (options_of_cmc("label"), "label is None: give the class a label"),
        (options_of_cmc("colour"), "colour is None: give the class one"),
        (options_of_cmc(colour="bluish"), "colour is 'bluish'"),
        (options_of_cmc("published"), "published is None: make it a mapping"),
        (options_of_cmc(published={"redundancy": 2}), "published is .* a mapping of options"),
        (options_of_cmc("can_leave_out"), "can_leave_out is None: say True or False"),
        (options_of_cmc(pairing=("paper",), __post_init__=lambda self: None), "change in JSON"),
    ],
)
def test_options_that_do_not_describe_their_scheme_are_found_out(made_of, message, monkeypatch):
    as_they_should_be = options_of_cmc()
    monkeypatch.setitem(SCHEMES._known, "broken", as_they_should_be)
    check_options(as_they_should_be())
    monkeypatch.setitem(SCHEMES._known, "broken", made_of)
    with pytest.raises(AssertionError, match=message):
        check_scheme(made_of())


class SameChains:
    """A run of G-CMC in which all workers draw the same bits."""

    def __init__(self, run):
        self._run = run

    def __getattr__(self, name):
        return getattr(self._run, name)

    def chain_of(self, worker, shard):
        return 0


@dataclass(frozen=True)
class SameChainsOptions(Grouped):
    """G-CMC without independent chains."""

    name: ClassVar[str] = "broken"

    def start(self, setup):
        return SameChains(super().start(setup))


def test_holders_that_draw_the_same_bits_are_found_out(monkeypatch):
    monkeypatch.setitem(SCHEMES._known, "broken", SameChainsOptions)
    with pytest.raises(AssertionError, match=r"holders \(0, 1\) of shard 0 .* the same bits"):
        check_scheme(SameChainsOptions(redundancy=2))
