"""The reference documents every public name, and names nothing that is not there."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import quorate
from quorate import errors, models
from quorate.engines.latency import LATENCIES
from quorate.engines.options import ENGINES
from quorate.merging import RULES
from quorate.protocol.schemes import SCHEMES
from quorate.samplers import SAMPLERS

PAGES = sorted((Path(__file__).parents[2] / "docs" / "reference").glob("*.md"))
REGISTRIES = (ENGINES, LATENCIES, RULES, SAMPLERS, SCHEMES)
_DIRECTIVE = re.compile(
    r"^\.\. (currentmodule|auto\w+):: ([\w.]+)(?:\(\))?\n((?:   :.*\n)*)", re.MULTILINE
)


def found(path):
    """The object with a dotted path."""
    module, _, name = path.rpartition(".")
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        return getattr(found(module), name)


def members(module, options):
    """What `automodule` shows: all that is defined there, or those that it lists."""
    listed = re.search(r":members: (.*)", options)
    if listed:
        return [getattr(module, name) for name in listed[1].split(", ")]
    return [
        thing
        for name, thing in inspect.getmembers(module)
        if getattr(thing, "__module__", None) == module.__name__ and not name.startswith("_")
    ]


def documented(page):
    """All objects that a page documents."""
    module = "quorate"
    for kind, path, options in _DIRECTIVE.findall(page.read_text()):
        if kind == "currentmodule":
            module = path
        elif kind == "automodule":
            yield from members(found(path), options)
        else:
            yield found(path if path.startswith("quorate.") else f"{module}.{path}")


DOCUMENTED = [thing for page in PAGES for thing in documented(page)]


def public():
    """Every name that users are meant to write."""
    for module in (quorate, models):
        yield from (getattr(module, name) for name in module.__all__)
    for thing in (registry[name] for registry in REGISTRIES for name in registry):
        if thing.__module__.startswith("quorate."):  # others come with packages of their own
            yield thing
    yield from (thing for thing in members(errors, "") if inspect.isclass(thing))


@pytest.mark.parametrize("thing", list(dict.fromkeys(public())), ids=lambda thing: thing.__name__)
def test_every_public_name_is_in_the_reference(thing):
    assert thing in DOCUMENTED


def test_nothing_is_documented_twice():
    names = [f"{thing.__module__}.{thing.__qualname__}" for thing in DOCUMENTED]
    assert sorted(names) == sorted(set(names))


def test_a_name_that_is_missing_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(".. currentmodule:: quorate\n.. autoclass:: Ray\n.. autofunction:: no_such\n")
    listed = documented(page)
    assert next(listed) is quorate.Ray
    with pytest.raises(AttributeError, match="no_such"):
        next(listed)
