"""Declared parameters: names, and the map from an unconstrained vector to natural values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from quorate._types import Array
from quorate.errors import BadInputError, require
from quorate.models.arrays import AnyArray, Namespace, indexed
from quorate.models.supports import Positive, Real, Support, UnitInterval

Path = tuple[str, ...]
Declaration = Mapping[str, Any] | Sequence[str] | Support | int
_SCALARS: dict[str, Support] = {
    "real": Real(),
    "positive": Positive(),
    "unit_interval": UnitInterval(),
}


@dataclass(frozen=True)
class Parameters:
    """All parameters of a model, in the order of the unconstrained vector.

    Parameters
    ----------
    supports
        Each support with its path: the keys that lead to it in the (nested) dictionary, or () for
        a single value without a name.
    coordinates
        Names of the entries of a real vector without keys, if the user gave any.
    """

    supports: tuple[tuple[Path, Support], ...]
    coordinates: tuple[str, ...] = ()

    @cached_property
    def dim(self) -> int:
        """Number of coordinates d."""
        return sum(support.dim for _, support in self.supports)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """One name for each unconstrained coordinate."""
        return self.coordinates or tuple(
            label for path, support in self.supports for label in support.labels(_dotted(path))
        )

    @property
    def value_names(self) -> tuple[str, ...]:
        """One name for each entry of the variables on their natural scale."""
        return self.coordinates or tuple(
            label
            for path, support in self.supports
            for label in indexed(_dotted(path), support.shape)
        )

    def constrain(self, x: AnyArray, xp: Namespace = np) -> Any:
        """The argument of a user's function: a value, or a (nested) dictionary of values."""
        values = {path: support.constrain(part, xp) for path, support, part in self.parts(x)}
        return values[()] if () in values else _nested(values)

    def constrained_one_by_one(self, points: Array) -> Iterator[Any]:
        """`constrain` of each of `points` (n, d). All are mapped at once, which is far cheaper."""
        values = {path: support.constrain(part) for path, support, part in self.parts(points)}
        for i in range(len(points)):
            if self._flat_names:
                yield dict(zip(self._flat_names, [v[i, ...] for v in values.values()], strict=True))
            else:
                here = {path: value[i, ...] for path, value in values.items()}
                yield here[()] if () in here else _nested(here)

    def unconstrain(self, values: Any, what: str = "initial") -> Array:
        """The inverse of `constrain`, for one point; `what` is where the values come from."""
        parts = [
            support.unconstrain(_checked(path, support, values, what))
            for path, support in self.supports
        ]
        return np.concatenate(parts)

    def of_values(self, values: Array) -> Any:
        """The argument of a user's function from natural values (..., r), as in `value_names`."""
        found, start = {}, 0
        for path, support in self.supports:
            part = values[..., start : start + prod(support.shape)]
            found[path] = part.reshape(*values.shape[:-1], *support.shape)
            start += prod(support.shape)
        return found[()] if () in found else _nested(found)

    def values_of(self, given: Any, n: int, what: str) -> Array:
        """The inverse of `of_values` for n groups, (n, r); `what` is where the values come from."""
        parts = []
        for path, support in self.supports:
            value, shape = _found(path, given, what), (n, *support.shape)
            require(
                value.shape == shape,
                f"{what} gives {_dotted(path)} of shape {value.shape}. For {n} groups its shape "
                f"must be {shape}.",
            )
            parts.append(value.reshape(n, -1))
        return np.concatenate(parts, axis=1)

    def log_jacobian(self, x: AnyArray, xp: Namespace = np) -> AnyArray:
        """log |dθ/dx| of all parameters together."""
        return sum(support.log_jacobian(part, xp) for _, support, part in self.parts(x))

    def named(self, draws: AnyArray, xp: Namespace = np) -> dict[str, AnyArray]:
        """Variables on their natural scale: (n, d) to (n, *shape) each."""
        if self.coordinates:
            return {name: draws[..., i] for i, name in enumerate(self.coordinates)}
        return {
            _dotted(path): xp.asarray(support.constrain(part, xp))
            for path, support, part in self.parts(draws)
        }

    def parts(self, x: AnyArray) -> Iterator[tuple[Path, Support, AnyArray]]:
        """Each parameter: its path, its support, and its part of x (..., d)."""
        for path, support, where in self._places:
            yield path, support, x[..., where]

    @cached_property
    def _flat_names(self) -> tuple[str, ...]:
        """Names of the parameters of a dictionary that is not nested; empty for other forms."""
        flat = all(len(path) == 1 for path, _ in self.supports)
        return tuple(path[0] for path, _ in self.supports) if flat else ()

    @cached_property
    def _places(self) -> tuple[tuple[Path, Support, slice], ...]:
        """Where each parameter lies in the unconstrained vector."""
        ends = np.cumsum([support.dim for _, support in self.supports]).tolist()
        return tuple(
            (path, support, slice(end - support.dim, end))
            for (path, support), end in zip(self.supports, ends, strict=True)
        )


def declared(parameters: Declaration) -> Parameters:
    """Parameters from a user's declaration.

    A number or a list of names is a real vector; a support is a single value; a dictionary, which
    may be nested, has a support for each name, or for a scalar the words `real`, `positive` or
    `unit_interval`.
    """
    if isinstance(parameters, int | np.integer):
        require(parameters >= 1, f"parameters is {parameters}. A model has at least one.")
        return Parameters((((), Real((int(parameters),))),))
    if isinstance(parameters, Mapping):
        supports = tuple(_leaves((), parameters))
        require(len(supports) > 0, "parameters is empty. Declare at least one, with its support.")
        return Parameters(supports)
    if _is_support(parameters):
        return Parameters((((), parameters),))  # type: ignore[arg-type]
    names = tuple(parameters) if isinstance(parameters, Sequence) else ()
    valid = not isinstance(parameters, str) and names and all(isinstance(n, str) for n in names)
    require(
        bool(valid),
        f"parameters cannot be {parameters!r}. Give their number, a list of names, or a dictionary "
        'of supports such as {"beta": Real(3), "sigma": Positive()}.',
    )
    twice = sorted({name for name in names if names.count(name) > 1})
    require(not twice, f"Names of parameters must differ. Rename {', '.join(twice)}.")
    return Parameters((((), Real((len(names),))),), names)


def _leaves(path: Path, tree: Mapping[str, Any]) -> Iterator[tuple[Path, Support]]:
    for name, node in tree.items():
        here = (*path, name)
        if isinstance(node, Mapping):
            yield from _leaves(here, node)
        elif isinstance(node, str) and node in _SCALARS:
            yield here, _SCALARS[node]
        elif _is_support(node):
            yield here, node
        else:
            raise BadInputError(
                f"parameters[{_dotted(here)!r}] cannot be {node!r}. Give a support such as Real(3) "
                f"or Simplex(4), or one of the words {', '.join(_SCALARS)}."
            )


def _is_support(node: object) -> bool:
    return hasattr(node, "log_jacobian") and not isinstance(node, type)


def _dotted(path: Path) -> str:
    return ".".join(path) if path else "x"


def _nested(values: Mapping[Path, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in values.items():
        node = tree
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = value
    return tree


def _found(path: Path, values: Any, what: str) -> Array:
    """The value of a parameter among those that a user gave."""
    for key in path:
        known = isinstance(values, Mapping) and key in values
        require(known, f"{what} has no value for {_dotted(path)}. Each parameter needs one.")
        values = values[key]
    return np.asarray(values, dtype=np.float64)


def _checked(path: Path, support: Support, values: Any, what: str) -> Array:
    value = _found(path, values, what)
    got = f"{what} gives {_dotted(path)} the value {value}"
    require(value.shape == support.shape, f"{got}. Its shape must be {support.shape}.")
    with np.errstate(all="ignore"):
        inside = bool(np.isfinite(support.unconstrain(value)).all())
    require(inside, f"{got}. It must lie inside its support, {type(support).__name__}.")
    return value
