"""Cutting the data of a probabilistic program along named axes, and checks that it may be cut."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate._types import Array
from quorate.errors import BadInputError, require
from quorate.models.arrays import AnyArray, Namespace
from quorate.models.protocol import Shard

_MOST_ROWS = 64  # kept of the data to examine a program with
_RELATIVE_ERROR = 1e-9
PER_ROW = (
    "Such a variable lives on one shard only, so draws of shards cannot be combined. Integrate it "
    "out, or make it one per group and name its plate or dimension as `local`."
)


@dataclass(frozen=True)
class Split:
    """The arrays that are cut, and the axis along which each is cut."""

    axes: tuple[tuple[str, int], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arrays that are cut."""
        return tuple(name for name, _ in self.axes)

    def rows(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The arrays that are cut, rows first, as shards hold them."""
        arrays = {name: np.moveaxis(np.asarray(data[name]), axis, 0) for name, axis in self.axes}
        lengths = {name: len(array) for name, array in arrays.items()}
        same = len(set(lengths.values())) == 1
        require(same, f"Arrays that are cut must have equal lengths, not {lengths}.")
        return arrays

    def restored(self, shard: Mapping[str, AnyArray], xp: Namespace = np) -> dict[str, AnyArray]:
        """The arrays of a shard with their axes in the order of the program."""
        if not all(name in shard for name in self.names):
            raise BadInputError(
                f"A shard of this model holds {', '.join(self.names)}. This one holds "
                f"{', '.join(sorted(shard))}."
            )
        return {name: xp.moveaxis(shard[name], 0, axis) for name, axis in self.axes}


def read_split(split: Mapping[str, int], data: Mapping[str, Any]) -> Split:
    """A user's split, {"X": 0, "y": 0}, checked against the data."""
    require(
        isinstance(split, Mapping) and bool(split),
        f"split is {split!r}. Say which arrays are cut and along which axis, as in "
        '{"X": 0, "y": 0}.',
    )
    for name, axis in split.items():
        listed = ", ".join(sorted(map(str, data))) or "empty"
        require(
            name in data, f"split names {name!r}, which is not in the data. These are {listed}."
        )
        n_axes = np.ndim(data[name])
        fine = isinstance(axis, int) and 0 <= axis < n_axes
        require(fine, f"split[{name!r}] is {axis}. {name} has {n_axes} axes, counted from 0.")
    return Split(tuple(split.items()))


def few_rows(rows: Shard) -> dict[str, Any]:
    """Some rows to examine a program with, spread over all of them."""
    n = len(next(iter(rows.values())))
    require(n >= 2, f"The data have {n} rows. At least 2 are needed to check the model.")
    chosen = np.unique(np.linspace(0, n - 1, min(n, _MOST_ROWS)).astype(int))
    return {name: np.ascontiguousarray(array[chosen]) for name, array in rows.items()}


def some_missing(
    split: Split, rows: Mapping[str, Any], held: Shard, optional: Sequence[str]
) -> dict[str, Any]:
    """Rows first, of the arrays that a user gives. Those that are optional may be missing.

    A row of `held`, which are rows of the model, then stands in for each row.
    """
    needed = [name for name in split.names if name not in optional]
    lacking = [name for name in needed if name not in rows]
    require(
        not lacking,
        f"The rows have no {' and no '.join(lacking)}. Give a dictionary with "
        f"{', '.join(needed)}; {', '.join(optional) or 'nothing else'} may be missing.",
    )
    given = Split(tuple((name, axis) for name, axis in split.axes if name in rows))
    require(bool(given.axes), f"Give at least one of {', '.join(split.names)}, to count the rows.")
    arrays = given.rows(rows)
    n_rows = len(next(iter(arrays.values())))
    stand_ins = {
        name: np.repeat(np.asarray(held[name])[:1], n_rows, axis=0)
        for name in split.names
        if name not in rows
    }
    return {name: (arrays | stand_ins)[name] for name in split.names}


def part(rows: Shard, which: Any) -> dict[str, Any]:
    """The rows that `which` selects."""
    return {name: np.ascontiguousarray(array[which]) for name, array in rows.items()}


def halves(rows: Shard) -> list[list[dict[str, Any]]]:
    """The rows cut in halves, in two ways: first and last, and alternating."""
    n = len(next(iter(rows.values())))
    middle = n // 2
    return [
        [part(rows, slice(None, middle)), part(rows, slice(middle, None))],
        [part(rows, slice(None, None, 2)), part(rows, slice(1, None, 2))],
    ]


def probes(dim: int, n: int = 3) -> Array:
    """Points to examine a program at, near the origin, where densities are tame."""
    return np.random.default_rng(0).standard_normal((n, dim)) * 0.5


def require_factors(
    log_likelihood: Callable[[Array, Shard], float], points: Sequence[Array], rows: Shard
) -> None:
    """Refuse a likelihood of all rows that is not the sum over parts of them."""
    for x in points:
        whole = log_likelihood(x, rows)
        for cut in halves(rows):
            total = sum(log_likelihood(x, piece) for piece in cut)
            if not np.isfinite(whole) and not np.isfinite(total):
                continue
            close = abs(whole - total) <= _RELATIVE_ERROR * (1 + abs(whole) + abs(total))
            if not close:
                raise BadInputError(
                    f"The log-likelihood is {whole:.8g} for all rows but {total:.8g} summed over "
                    "two halves. It does not factor over rows, so shards cannot be drawn from "
                    "separately. Rows may depend on each other (a time series, a normalisation "
                    "over rows), or something observed is not named in `split` and is counted "
                    "once for each shard."
                )


def require_same_prior(name: str, first: Array, second: Array) -> None:
    """Refuse a prior that changes with the rows."""
    require(
        bool(np.allclose(first, second, rtol=1e-9, atol=1e-9)),
        f"The prior of {name} depends on the rows, so shards would have different priors. Compute "
        "what it takes from the data once, beforehand, as a number.",
    )


def refuse_row_latent(name: str, shape: tuple[int, ...], fewer: tuple[int, ...]) -> None:
    """Refuse a latent variable whose shape changes with the number of rows."""
    require(
        shape == fewer,
        f"Latent variable {name} is one per row: its shape is {shape} for all rows and {fewer} for "
        f"some of them. {PER_ROW}",
    )


def refuse_discrete(name: str) -> None:
    """Refuse a discrete latent variable."""
    raise BadInputError(
        f"Latent variable {name} is discrete. Consensus takes weighted means of draws, and a mean "
        "of whole numbers is not a whole number: sum it out of the likelihood."
    )


def read_roles(names: Sequence[str], roles: Mapping[str, str] | None, what: str) -> dict[str, str]:
    """The role, `prior` or `likelihood`, that the user gives each factor or potential."""
    given = dict(roles or {})
    for name in names:
        require(
            given.get(name) in ("prior", "likelihood"),
            f"The role of {what} {name} is {given.get(name)!r}. It belongs to the prior (counted "
            "once) or to the likelihood (counted once for each row): say which, "
            f'{what}s={{"{name}": "prior"}} or {{"{name}": "likelihood"}}.',
        )
    unknown = sorted(set(given) - set(names))
    listed = ", ".join(names) or "none"
    require(not unknown, f"The model has no {what} named {unknown}. It has {listed}.")
    return given
