"""Command-line options made from dataclasses, with the docstrings of these; the argument RUN."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click

from quorate._registry import OptionsRegistry, option_names

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
RUN = click.argument("run_dir", type=click.Path(path_type=Path, file_okay=False), metavar="RUN")
_METAVARS: dict[type, str] = {int: "N", float: "X", str: "TEXT"}


class RegisteredOption(click.Option):
    """An option of a registered class: `owner` is its name, and `kind` that of the registry.

    `is_outside` says whether another package brings the class.
    """

    def __init__(
        self, *args: Any, kind: str, owner: str, is_outside: bool, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self.kind, self.owner, self.is_outside = kind, owner, is_outside


def options_of(
    made_of: type[Any],
    names: Iterable[str] | None = None,
    flags: Mapping[str, str] | None = None,
    metavars: Mapping[str, str] | None = None,
    show_defaults: bool = True,
    **attributes: Any,
) -> Decorator:
    """One command-line option for each field of a dataclass, in order.

    The help is the first sentence that the docstring says of the field. An option that is not given
    is None, so that the dataclass's own default holds.

    Parameters
    ----------
    names
        Which fields; all by default.
    flags
        Names of options that are not those of their fields. Metadata of a field may give one too.
    metavars
        What stands for the value in the help, where neither metadata nor the type say it.
    show_defaults
        Whether the help tells the defaults of the dataclass.
    attributes
        More that `click.option` takes.
    """
    types, texts = get_type_hints(made_of), parameter_texts(made_of)
    flags, metavars = flags or {}, metavars or {}
    wanted = option_names(made_of) if names is None else list(names)
    of_fields = {field.name: field for field in fields(made_of)}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(wanted):
            told, default = of_fields[name].metadata, of_fields[name].default
            flag = flags.get(name) or told.get("flag") or name.replace("_", "-")
            text, kind = _sentence(texts.get(name, "")), _simple_type(types[name])
            metavar = metavars.get(name) or told.get("metavar") or _METAVARS.get(kind)
            is_shown = show_defaults and default not in (None, MISSING) and kind is not bool
            shown = f"  [default: {default}]" if is_shown else ""
            declared = f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}"
            command = click.option(
                declared,
                name,
                type=kind,
                default=None,
                metavar=metavar,
                help=text + shown,
                **attributes,
            )(command)
        return command

    return decorate


def options_of_registry(
    registry: OptionsRegistry[Any],
    leave_out: Iterable[str] = (),
    show_defaults: bool = True,
) -> Decorator:
    """The options of all registered classes, each name once."""
    seen, decorators = set(leave_out), []
    for name in registry:
        made_of = registry[name]
        new = [option for option in option_names(made_of) if option not in seen]
        seen.update(new)
        attributes: dict[str, Any] = {
            "cls": RegisteredOption,
            "kind": registry.kind,
            "owner": name,
            "is_outside": name not in registry.built_in,
        }
        decorators.append(options_of(made_of, new, show_defaults=show_defaults, **attributes))

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
    """The options of registered classes that the running command has, removed from `options`."""
    of_command = click.get_current_context().command.params
    of_classes = [option for option in of_command if isinstance(option, RegisteredOption)]
    return taken(options, [str(each.name) for each in of_classes if each.kind == registry.kind])


def doubles(options: Sequence[click.Parameter]) -> list[RegisteredOption]:
    """Options of outside classes that have the name or the flag of another option."""
    outside = [each for each in options if isinstance(each, RegisteredOption) and each.is_outside]
    known = {"--help"}.union(*(_words(each) for each in options if each not in outside))
    found = []
    for option in outside:
        if known & _words(option):
            found.append(option)
        known |= _words(option)
    return found


def _words(option: click.Parameter) -> set[str]:
    return {str(option.name), *option.opts, *option.secondary_opts}


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
