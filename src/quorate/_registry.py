"""Registries: names for the things that users choose, from quorate or from any installed package.

A package registers a thing of its own with an entry point in its `pyproject.toml`:

    [project.entry-points."quorate.schemes"]
    backup = "my_package:Backup"
"""

from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from quorate.errors import BadInputError

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


def _either(names: Iterator[str] | Registry[T]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
