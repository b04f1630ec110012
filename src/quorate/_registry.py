"""Registries: names for the things that users choose, from quorate or from any installed package.

A package registers a thing of its own with an entry point in its `pyproject.toml`:

    [project.entry-points."quorate.schemes"]
    backup = "my_package:Backup"
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from importlib.metadata import entry_points
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from quorate.errors import BadInputError, require

T = TypeVar("T")


class Registry(Generic[T]):
    """Things of one kind by name: built-in ones, registered ones, and those of entry points.

    Parameters
    ----------
    kind
        What one of them is called in errors, such as "scheme".
    group
        Name of the entry points, such as "quorate.schemes".
    built_in
        Those that quorate brings.
    """

    def __init__(self, kind: str, group: str, built_in: Mapping[str, T]) -> None:
        self.kind = kind
        self.group = group
        self._known = dict(built_in)
        self._has_looked = False

    def register(self, name: str, thing: T) -> None:
        """Give `thing` a name for the rest of this process."""
        if self._known.setdefault(name, thing) is not thing:
            raise BadInputError(f"There is already a {self.kind} named {name!r}. Choose another.")

    def __getitem__(self, name: str) -> T:
        if name not in self._known:
            self._look_around()
        if name not in self._known:
            raise BadInputError(f"No {self.kind} is named {name!r}. Choose {_either(self)}.")
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        self._look_around()
        return iter(tuple(self._known))

    def _look_around(self) -> None:
        """Load the entry points of installed packages, once."""
        if self._has_looked:
            return
        self._has_looked = True
        for found in entry_points(group=self.group):
            if found.name not in self._known:
                self._known[found.name] = found.load()


class Options(Protocol):
    """What a user chooses by name or as an object: a dataclass whose fields are its options.

    The fields are JSON values, so that the journal can hold them.
    """

    name: ClassVar[str]

    def __init__(self, **options: Any) -> None: ...


O = TypeVar("O", bound=Options)  # noqa: E741


class OptionsRegistry(Registry[type[O]]):
    """Dataclasses of options by name. A name alone stands for the options' defaults."""

    def chosen(
        self, choice: str | O, given: Mapping[str, Any] | None = None, ignored: Iterable[str] = ()
    ) -> O:
        """The options of a name, with those that were given; or an object as it is.

        Options that are None count as not given. `ignored` are dropped where they are unknown.
        """
        given = {name: value for name, value in (given or {}).items() if value is not None}
        if not isinstance(choice, str):
            listed = ", ".join(given)
            require(not given, f"Give {listed} to {type(choice).__name__}(...), not beside it.")
            return choice
        known = option_names(self[choice])
        unknown = [name for name in given if name not in (*known, *ignored)]
        require(
            not unknown,
            f"The {self.kind} {choice!r} has no option {' or '.join(unknown)}. "
            f"Its options are {', '.join(known) or 'none'}.",
        )
        return self[choice](**{name: value for name, value in given.items() if name in known})

    def as_json(self, options: O) -> dict[str, Any]:
        """The name of options and their values, for the journal."""
        return {"name": options.name, **asdict(options)}  # type: ignore[call-overload]

    def from_json(self, kept: Mapping[str, Any]) -> O:
        """The options that `as_json` wrote."""
        values = dict(kept)
        try:
            return self[values.pop("name")](**values)
        except (KeyError, TypeError):
            raise BadInputError(
                f"The run was made with a {self.kind} that this installation does not know: "
                f"{dict(kept)}. Use the version of the package that made the run."
            ) from None


def option_names(options: type[Any]) -> list[str]:
    """Names of the options that a dataclass of options has."""
    return [field.name for field in fields(options)]


def _either(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
