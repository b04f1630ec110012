"""Names of options as people type them: in errors, and in commands to paste."""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

from quorate._warnings import warn
from quorate.cli.options import doubles
from quorate.errors import BadInputError, QuorateWarning


class WithFlags(click.Command):
    """A command whose errors name options as they are typed: `--target-ess`, not `target_ess`.

    Functions put the names of their parameters between backticks. `also` has those that the
    command calls otherwise. An option of an outside class that is named like another option is left
    out, with a warning where that class is chosen.
    """

    def __init__(self, *args: Any, also: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._left_out = doubles(self.params)
        self.params = [each for each in self.params if each not in self._left_out]
        self._flags = {str(each.name): _typed(each) for each in self.params} | dict(also or {})

    def invoke(self, ctx: click.Context) -> Any:
        for option in self._left_out:
            if ctx.params.get(option.kind) == option.owner:
                warn(
                    f"The option {_typed(option)} of the {option.kind} {option.owner!r} keeps its "
                    f"default: `quorate {self.name}` has another option of this name. Set it in "
                    "Python, or have it renamed.",
                    QuorateWarning,
                )
        try:
            return super().invoke(ctx)
        except BadInputError as error:
            raise BadInputError(self._with_flags(str(error))) from error

    def _with_flags(self, message: str) -> str:
        return re.sub(r"`(\w+)`", lambda found: self._flags.get(found[1], found[0]), message)


def as_typed(context: click.Context, words: Sequence[str], names: Collection[str]) -> str:
    """The command with these words and the options among `names` that were given, to paste."""
    return shlex.join(["quorate", str(context.info_name), *words, *options_given(context, names)])


def options_given(context: click.Context, names: Collection[str]) -> list[str]:
    """The options among `names` that were given, word by word."""
    line: list[str] = []
    for option in context.command.params:
        name = str(option.name)
        if name in names and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            given = context.params[name]
            if isinstance(given, bool):
                line.append(_typed(option) if given else option.secondary_opts[0])
            else:
                values = given if isinstance(given, tuple) else (given,)
                line += _pairs(_typed(option), values)
    return line


def _pairs(flag: str, values: Sequence[object]) -> list[str]:
    return [word for value in values for word in (flag, str(value))]


def _typed(option: click.Parameter) -> str:
    """The option as it is typed: its longest name."""
    return max(option.opts, key=len)
