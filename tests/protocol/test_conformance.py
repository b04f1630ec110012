"""The conformance tests of schemes: every built-in one passes them, and broken ones do not."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from quorate.protocol.schemes import CMC, SCHEMES, Adaptive, Coded, Genie, Grouped
from quorate.testing import check_scheme

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
    ],
)
def test_a_broken_scheme_is_found_out(breaks, message, monkeypatch):
    monkeypatch.setitem(SCHEMES._known, "broken", BrokenOptions)
    check_scheme(BrokenOptions())
    with pytest.raises(AssertionError, match=message):
        check_scheme(replace(BrokenOptions(), breaks=breaks))
