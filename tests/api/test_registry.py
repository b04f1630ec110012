"""Registries: one idiom for all that users choose by name."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from quorate import _registry
from quorate._registry import OptionsRegistry, Registry
from quorate.engines.latency import LATENCIES
from quorate.engines.options import ENGINES
from quorate.errors import BadInputError, EntryPointWarning
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


# ---------------------------------------------------------------- broken entry points

GROUP = "quorate.colours"
BROKEN = {
    "no module": (EntryPoint("bad", "nowhere_at_all:Bad", GROUP), "ModuleNotFoundError"),
    "no such name": (EntryPoint("bad", "math:tau_squared", GROUP), "AttributeError"),
    "no options": (EntryPoint("bad", "math:pi", GROUP), "not a dataclass of options"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_entry_point_is_warned_of_and_hides_no_other(case, monkeypatch):
    broken, message = BROKEN[case]
    points = [broken, EntryPoint("far", "quorate.protocol.schemes:Coded", GROUP)]
    monkeypatch.setattr(_registry, "entry_points", lambda group: points)
    colours = OptionsRegistry("colour", GROUP, {"red": SCHEMES["cmc"]})
    with pytest.warns(EntryPointWarning, match=rf"'bad' as '{broken.value}'.*{message}"):
        assert list(colours) == ["red", "far"]
    assert colours.chosen("far", {"redundancy": 3}).redundancy == 3
    with pytest.raises(BadInputError, match=rf"'bad' cannot be loaded.*{message}") as caught:
        colours.chosen("bad")
    assert caught.value.__cause__ is not None


def test_the_command_line_works_beside_a_broken_package(tmp_path):
    """As installed: a package with metadata, whose module raises when it is imported."""
    (tmp_path / "broken_package.py").write_text("raise RuntimeError('half installed')")
    metadata = tmp_path / "broken_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-package\nVersion: 1.0")
    (metadata / "entry_points.txt").write_text("[quorate.schemes]\nbad = broken_package:Bad\n")

    def quorate(*words):
        path = os.pathsep.join([str(tmp_path), str(Path(_registry.__file__).parents[1])])
        return subprocess.run(
            [sys.executable, "-c", "from quorate.cli import main; main()", *words],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

    helped = quorate("--help")
    assert helped.returncode == 0
    assert "Commands:" in helped.stdout
    assert "The package 'broken-package' registers the scheme 'bad'" in helped.stderr
    assert "RuntimeError: half installed" in helped.stderr
    chosen = quorate("simulate", "--scheme", "bad", "--workers", "4")
    assert chosen.returncode == 2
    assert "Error: The scheme 'bad' cannot be loaded" in chosen.stderr
    assert "Traceback" not in helped.stderr + chosen.stderr
