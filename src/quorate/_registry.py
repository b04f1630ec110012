"""Registries: names for the things that users choose, from quorate or from any installed package.

A package registers a thing of its own with an entry point in its `pyproject.toml`:

    [project.entry-points."quorate.schemes"]
    backup = "my_package:Backup"
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Generic, Protocol, TypeVar, get_type_hints

from quorate._warnings import warn
from quorate.errors import BadInputError, EntryPointWarning, require

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
        self.built_in = frozenset(built_in)
        self._known = dict(built_in)
        self._broken: dict[str, Exception] = {}  # why an entry point cannot be used, by name
        self._has_looked = False

    def register(self, name: str, thing: T) -> None:
        """Give `thing` a name for the rest of this process."""
        if self._known.setdefault(name, thing) is not thing:
            raise BadInputError(f"There is already a {self.kind} named {name!r}. Choose another.")

    def __getitem__(self, name: str) -> T:
        if name not in self._known:
            self._look_around()
        if name in self._broken:
            error = self._broken[name]
            raise BadInputError(
                f"The {self.kind} {name!r} cannot be loaded ({_told(error)}). Mend or remove the "
                f"package that brings it, or choose {_either(self)}."
            ) from error
        if name not in self._known:
            raise BadInputError(f"No {self.kind} is named {name!r}. Choose {_either(self)}.")
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        self._look_around()
        return iter(tuple(self._known))

    def _look_around(self) -> None:
        """Load the entry points of installed packages, once. A broken one must not hide others."""
        if self._has_looked:
            return
        self._has_looked = True
        refused = []
        for found in entry_points(group=self.group):
            if found.name in self._known:
                continue
            try:
                self._known[found.name] = self._checked(found.load())
            except Exception as error:  # whatever code of others raises
                self._broken[found.name] = error
                refused.append(found)
        for found in refused:
            warn(self._refusal(found), EntryPointWarning)

    def _checked(self, thing: T) -> T:
        """What an entry point has loaded, if it is of this kind at all."""
        return thing

    def _refusal(self, found: EntryPoint) -> str:
        package = "A package" if found.dist is None else f"The package {found.dist.name!r}"
        return (
            f"{package} registers the {self.kind} {found.name!r} as {found.value!r}, which cannot "
            f"be loaded ({_told(self._broken[found.name])}). Everything else works. Mend or remove "
            "the package."
        )


class Options(Protocol):
    """What a user chooses by name or as an object: a dataclass whose fields are its options.

    The fields are JSON values, so that the journal can hold them. Their metadata may say what the
    command line calls them (`flag`) and what stands for the value in its help (`metavar`).
    """

    name: ClassVar[str]

    def __init__(self, **options: Any) -> None: ...


O = TypeVar("O", bound=Options)  # noqa: E741


class OptionsRegistry(Registry[type[O]]):
    """Dataclasses of options by name. A name alone stands for the options' defaults."""

    def _checked(self, thing: type[O]) -> type[O]:
        require(is_dataclass(thing), f"{thing!r} is not a dataclass of options.")
        get_type_hints(thing)  # raises if an annotation means nothing, which options are made of
        return thing

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


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(".")


def _either(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
