"""Registries: one idiom for all that users choose by name."""

import json
import os
import re
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


@pytest.fixture
def with_package(tmp_path):
    """Runs the command line where a package is installed that registers a scheme."""

    def install(entry, source):
        (tmp_path / "outside_package.py").write_text(source)
        metadata = tmp_path / "outside_package-1.0.dist-info"
        metadata.mkdir()
        about = "Metadata-Version: 2.1\nName: outside-package\nVersion: 1.0"
        (metadata / "METADATA").write_text(about)
        (metadata / "entry_points.txt").write_text(f"[quorate.schemes]\n{entry}\n")
        path = os.pathsep.join([str(tmp_path), str(Path(_registry.__file__).parents[1])])

        def quorate(*words):
            return subprocess.run(
                [sys.executable, "-c", "from quorate.cli import main; main()", *words],
                env={**os.environ, "PYTHONPATH": path},
                capture_output=True,
                text=True,
                check=False,
            )

        return quorate

    return install


def test_the_command_line_works_beside_a_broken_package(with_package):
    quorate = with_package("bad = outside_package:Bad", "raise RuntimeError('half installed')")
    helped = quorate("--help")
    assert helped.returncode == 0
    assert "Commands:" in helped.stdout
    assert "The package 'outside-package' registers the scheme 'bad'" in helped.stderr
    assert "RuntimeError: half installed" in helped.stderr
    chosen = quorate("simulate", "--scheme", "bad", "--workers", "4")
    assert chosen.returncode == 2
    assert "Error: The scheme 'bad' cannot be loaded" in chosen.stderr
    assert "Traceback" not in helped.stderr + chosen.stderr


# ---------------------------------------------------------------- options of outside schemes

OWN = """
from dataclasses import dataclass
from typing import ClassVar
from quorate.protocol.schemes import CMC

@dataclass(frozen=True)
class Own(CMC):
    \"\"\"CMC with options of its own.

    Parameters
    ----------
    spare
        Number of spare workers.
    seed, processes
        Named like options of commands and of engines.
    \"\"\"

    spare: int = 0
    seed: int = 7
    processes: int = 8
    name: ClassVar[str] = "own"

    def start(self, setup):
        assert (self.spare, self.seed, self.processes) == (2, 7, 8)
        assert setup.seed == 3
        return super().start(setup)
"""
DOUBLE = "The option --seed of the scheme 'own' keeps its default"


def test_options_of_an_outside_scheme_are_options_of_simulate(with_package):
    quorate = with_package("own = outside_package:Own", OWN)
    few = ["--workers", "4", "--draws", "5", "--realisations", "2", "--seed", "3", "--json"]
    done = quorate("simulate", "--scheme", "own", "--spare", "2", *few)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["scheme"] == "own"
    assert DOUBLE in done.stderr
    other = quorate("simulate", "--scheme", "cmc", *few)
    assert (other.returncode, other.stderr.strip()) == (0, "")


@pytest.mark.parametrize("command", ["simulate", "sample"])
def test_an_option_named_like_one_of_ours_gives_way(command, with_package):
    helped = with_package("own = outside_package:Own", OWN)(command, "--help")
    assert helped.returncode == 0
    assert helped.stderr == ""
    flags = re.findall(r"^  (--[\w-]+)", helped.stdout, re.M)
    assert len(flags) == len(set(flags))
    assert {"--spare", "--seed"} <= set(flags)
