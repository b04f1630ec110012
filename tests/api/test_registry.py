"""Registries: one idiom for all that users choose by name."""

from importlib.metadata import EntryPoint

import pytest

from quorate import _registry
from quorate._registry import Registry
from quorate.engines.latency import LATENCIES
from quorate.engines.options import ENGINES
from quorate.errors import BadInputError
from quorate.merging import RULES
from quorate.protocol.schemes import SCHEMES
from quorate.samplers import SAMPLERS


def test_all_kinds_have_entry_points():
    groups = {registry.group for registry in (SCHEMES, RULES, SAMPLERS, ENGINES, LATENCIES)}
    kinds = ("schemes", "rules", "samplers", "engines", "latencies")
    assert groups == {f"quorate.{kind}" for kind in kinds}


@pytest.fixture
def installed(monkeypatch):
    """A package that registers `far` as a colour, and one that would hide a built-in one."""
    points = [
        EntryPoint("far", "math:pi", "quorate.colours"),
        EntryPoint("red", "math:e", "quorate.colours"),
    ]
    monkeypatch.setattr(
        _registry, "entry_points", lambda group: [p for p in points if p.group == group]
    )
    return Registry("colour", "quorate.colours", {"red": 1.0})


def test_entry_points_are_found_and_hide_nothing(installed):
    assert installed["far"] == pytest.approx(3.14159, abs=1e-5)
    assert installed["red"] == 1.0
    assert list(installed) == ["red", "far"]


def test_an_unknown_name_is_refused_with_the_known_ones(installed):
    with pytest.raises(BadInputError, match=r"No colour is named 'blue'\. Choose red or far\."):
        installed["blue"]


def test_a_name_is_registered_once(installed):
    installed.register("blue", 2.0)
    installed.register("blue", 2.0)
    assert installed["blue"] == 2.0
    with pytest.raises(BadInputError, match="already a colour named 'red'"):
        installed.register("red", 3.0)
