"""Cutting the data of a probabilistic program along named axes, and whether that is allowed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate._types import Array
from quorate.errors import BadInputError, require
from quorate.models.arrays import AnyArray, Namespace
from quorate.models.protocol import Shard

_MOST_ROWS = 64  # kept of the data to look at a program with
_RELATIVE_ERROR = 1e-9


@dataclass(frozen=True)
class Split:
    """Which arrays are data, and the axis along which each is cut."""

    axes: tuple[tuple[str, int], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the arrays that are cut."""
        return tuple(name for name, _ in self.axes)

    def rows(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The arrays that are cut, rows first: what shards are made of."""
        arrays = {name: np.moveaxis(np.asarray(data[name]), axis, 0) for name, axis in self.axes}
        lengths = {name: len(array) for name, array in arrays.items()}
        same = len(set(lengths.values())) == 1
        require(same, "lengths of the data", lengths, "arrays that are cut must have equal lengths")
        return arrays

    def restored(self, shard: Mapping[str, AnyArray], xp: Namespace = np) -> dict[str, AnyArray]:
        """The arrays of a shard as the program wants them."""
        for name in self.names:
            way_out = f"a shard of this model holds {', '.join(self.names)}"
            require(name in shard, f"{name} of the shard", sorted(shard), way_out)
        return {name: xp.moveaxis(shard[name], 0, axis) for name, axis in self.axes}


def read_split(split: Mapping[str, int], data: Mapping[str, Any]) -> Split:
    """The split as a user gives it, {"X": 0, "y": 0}, checked against the data."""
    example = 'say which arrays are cut and along which axis, as in {"X": 0, "y": 0}'
    require(isinstance(split, Mapping) and bool(split), "split", split, example)
    for name, axis in split.items():
        way_out = (
            f"it is not among the data: {', '.join(sorted(map(str, data))) or 'there are none'}"
        )
        require(name in data, f"split[{name!r}]", axis, way_out)
        n_axes = np.ndim(data[name])
        fine = isinstance(axis, int) and 0 <= axis < n_axes
        require(fine, f"split[{name!r}]", axis, f"{name} has {n_axes} axes, counted from 0")
    return Split(tuple(split.items()))


def few_rows(rows: Shard) -> dict[str, Any]:
    """Rows to look at a program with, spread over all of them."""
    n = len(next(iter(rows.values())))
    require(n >= 2, "rows of the data", n, "at least 2 are needed to see how the model uses them")
    chosen = np.unique(np.linspace(0, n - 1, min(n, _MOST_ROWS)).astype(int))
    return {name: np.ascontiguousarray(array[chosen]) for name, array in rows.items()}


def part(rows: Shard, which: Any) -> dict[str, Any]:
    """Some of the rows."""
    return {name: np.ascontiguousarray(array[which]) for name, array in rows.items()}


def halves(rows: Shard) -> list[list[dict[str, Any]]]:
    """The rows cut in two, in two ways: early and late, and alternating."""
    n = len(next(iter(rows.values())))
    middle = n // 2
    return [
        [part(rows, slice(None, middle)), part(rows, slice(middle, None))],
        [part(rows, slice(None, None, 2)), part(rows, slice(1, None, 2))],
    ]


def probes(dim: int, n: int = 3) -> Array:
    """Points at which a program is looked at; near its origin, where densities are tame."""
    return np.random.default_rng(0).standard_normal((n, dim)) * 0.5


def require_factors(
    log_likelihood: Callable[[Array, Shard], float], points: Sequence[Array], rows: Shard
) -> None:
    """Refuse a likelihood of all rows that is not the sum over a split of them."""
    for x in points:
        whole = log_likelihood(x, rows)
        for cut in halves(rows):
            total = sum(log_likelihood(x, piece) for piece in cut)
            if not np.isfinite(whole) and not np.isfinite(total):
                continue
            close = abs(whole - total) <= _RELATIVE_ERROR * (1 + abs(whole) + abs(total))
            if not close:
                way_out = (
                    f"it is {whole:.8g} for all rows but {total:.8g} summed over two halves, so "
                    "the likelihood does not factor over rows and shards cannot be drawn from "
                    "separately. Rows may depend on each other (a time series, a normalisation "
                    "over rows), or something observed is not named in `split` and is counted "
                    "once for each shard"
                )
                raise BadInputError("log_likelihood", "not a sum over rows", way_out)


def require_same_prior(name: str, first: Array, second: Array) -> None:
    """Refuse a prior that changes with the rows."""
    way_out = (
        "it changes with the rows, so shards would have different priors: compute what it takes "
        "from the data once, beforehand, as a number"
    )
    require(bool(np.allclose(first, second, rtol=1e-9, atol=1e-9)), name, "data-dependent", way_out)


def refuse_row_latent(name: str, shape: tuple[int, ...], fewer: tuple[int, ...]) -> None:
    """Refuse a latent variable whose shape changes with the number of rows."""
    way_out = (
        f"its shape is {shape} for all rows and {fewer} for some of them: a latent variable per "
        "row lives on one shard only, so draws of shards cannot be combined. Integrate it out, or "
        "make it one per group, with the group as a column of the data"
    )
    require(shape == fewer, f"latent variable {name}", "one per row", way_out)


def refuse_discrete(name: str) -> None:
    """Refuse a discrete latent variable."""
    way_out = (
        "consensus takes weighted means of draws, and a mean of whole numbers is none: sum it out "
        "of the likelihood"
    )
    raise BadInputError(f"latent variable {name}", "discrete", way_out)


def read_roles(names: Sequence[str], roles: Mapping[str, str] | None, what: str) -> dict[str, str]:
    """For each factor or potential, `prior` or `likelihood`, as the user must say."""
    given = dict(roles or {})
    for name in names:
        way_out = (
            f"a {what} may belong to the prior (counted once) or to the likelihood (once for each "
            f'row): say which, {what}s={{"{name}": "prior"}} or {{"{name}": "likelihood"}}'
        )
        require(
            given.get(name) in ("prior", "likelihood"), f"{what} {name}", given.get(name), way_out
        )
    unknown = sorted(set(given) - set(names))
    require(not unknown, f"{what}s", unknown, f"the model has {', '.join(names) or 'none'}")
    return given
