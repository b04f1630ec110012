"""Command-line options made from dataclasses, with the docstrings of these; the argument RUN."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click

from quorate._registry import OptionsRegistry, option_names

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
RUN = click.argument("run_dir", type=click.Path(path_type=Path, file_okay=False), metavar="RUN")
_METAVARS: dict[type, str] = {int: "N", float: "X", str: "TEXT"}


def options_of(
    made_of: type[Any],
    names: Iterable[str] | None = None,
    flags: Mapping[str, str] | None = None,
    metavars: Mapping[str, str] | None = None,
    show_defaults: bool = True,
) -> Decorator:
    """One command-line option for each field of a dataclass, in order.

    The help is the first sentence that the docstring says of the field. An option that is not given
    is None, so that the dataclass's own default holds.

    Parameters
    ----------
    names
        Which fields; all by default.
    flags
        Names of options that are not those of their fields.
    metavars
        What stands for the value in the help, where it is not that of its type.
    show_defaults
        Whether the help tells the defaults of the dataclass.
    """
    types, texts = get_type_hints(made_of), parameter_texts(made_of)
    flags, metavars = flags or {}, metavars or {}
    wanted = option_names(made_of) if names is None else list(names)
    defaults = {field.name: field.default for field in fields(made_of)}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(wanted):
            flag, kind = flags.get(name, name.replace("_", "-")), _simple_type(types[name])
            text, default = _sentence(texts.get(name, "")), defaults[name]
            is_shown = show_defaults and default not in (None, MISSING) and kind is not bool
            shown = f"  [default: {default}]" if is_shown else ""
            declared = f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}"
            command = click.option(
                declared,
                name,
                type=kind,
                default=None,
                metavar=None if kind is bool else metavars.get(name, _METAVARS[kind]),
                help=text + shown,
            )(command)
        return command

    return decorate


def options_of_registry(
    registry: OptionsRegistry[Any],
    leave_out: Iterable[str] = (),
    flags: Mapping[str, str] | None = None,
    metavars: Mapping[str, str] | None = None,
    show_defaults: bool = True,
) -> Decorator:
    """The options of all registered classes, each name once."""
    seen, decorators = set(leave_out), []
    for name in registry:
        made_of = registry[name]
        new = [option for option in option_names(made_of) if option not in seen]
        seen.update(new)
        decorators.append(options_of(made_of, new, flags, metavars, show_defaults))

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def taken(options: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Remove the options in `names` from `options`; return the ones that were given."""
    found = {name: options.pop(name, None) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def taken_of_registry(options: dict[str, Any], registry: OptionsRegistry[Any]) -> dict[str, Any]:
    """Remove the options of registered classes from `options`; return the ones given."""
    names = {option for name in registry for option in option_names(registry[name])}
    return taken(options, names & options.keys())


def parameter_texts(made_of: type[Any]) -> dict[str, str]:
    """What the docstring of a class says of each parameter, in numpydoc's form."""
    doc = "".join(
        inspect.getdoc(base) or "" for base in reversed(made_of.__mro__) if base is not object
    )
    texts: dict[str, str] = {}
    for section in doc.split("Parameters\n----------\n")[1:]:
        for names, text in re.findall(r"^(\w[\w, ]*)\n((?:    .*\n?)+)", section, re.M):
            words = " ".join(text.split())
            texts |= {name.strip(): words for name in names.split(",")}
    return texts


def _sentence(text: str) -> str:
    """The first sentence, up to a period or semicolon that ends it."""
    found = re.match(r".*?[.;](?= |$)", text)
    return found.group().rstrip(";").rstrip(".") + "." if found else text


def _simple_type(hint: Any) -> type:
    """The type of an option that may also be None or an object: bool, int, float or text."""
    kinds = {hint, *get_args(hint)}
    return next((kind for kind in (bool, int, float) if kind in kinds), str)
