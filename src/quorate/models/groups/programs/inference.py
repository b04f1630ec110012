"""What a program with a plate of groups does not say: the group of each row, and what shrinks.

Rows may depend on the parameters of one group only. If they do, the derivative of a row's log
density along (w_1 d, ..., w_J d) is w_g times that along (d, ..., d), where g is the row's group:
two derivatives find the groups of all rows, and a third checks them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array, BoolArray, IntArray
from quorate.errors import BadInputError, require
from quorate.models.arrays import AnyArray
from quorate.models.splitting import Split

_RELATIVE_ERROR = 1e-7
_MOST_CANDIDATES = 5  # constants that may shrink; every set of them is tried
_TESTED_GROUPS = 5
_TESTED_ROWS = 20  # of each tested group
_CROSSED = (
    "A group is integrated out on its own, with its rows. Crossed effects cannot be: make the "
    "factor with fewer levels global, by taking its variables out of plates that are local."
)


def local_point(n_groups: int, dim: int) -> Array:
    """Local parameters to examine a program at."""
    return 0.5 * np.random.default_rng(1).standard_normal((n_groups, dim))


def groups_that_matter(
    function: Callable[[AnyArray], AnyArray], n_groups: int, dim: int, what: str
) -> tuple[IntArray, BoolArray]:
    """The group that each entry of `function`, (J, q) to (n,), depends on, and whether it does.

    Raises
    ------
    BadInputError
        If an entry depends on more than one group.
    """
    jax = jax_in_float64()
    rng = np.random.default_rng(2)
    direction = np.broadcast_to(rng.uniform(0.5, 1.5, dim), (n_groups, dim))
    weights = 1.0 + np.arange(n_groups)
    others = rng.permutation(weights)
    z = local_point(n_groups, dim)
    _, along = jax.linearize(function, jax.numpy.asarray(z))
    plain, ranked, shuffled = (
        np.asarray(along(jax.numpy.asarray(weight[:, None] * direction)))
        for weight in (np.ones(n_groups), weights, others)
    )
    finite = np.isfinite(plain).all()
    require(finite, f"Derivatives of {what} in the local parameters are not finite near 0.")
    depends = plain != 0
    ratios = ranked / np.where(depends, plain, 1.0)
    groups = np.clip(np.rint(ratios).astype(np.int64) - 1, 0, n_groups - 1)
    sound = np.abs(ratios - weights[groups]) <= _RELATIVE_ERROR * weights[groups]
    sound &= np.abs(shuffled - others[groups] * plain) <= _RELATIVE_ERROR * others[groups] * np.abs(
        plain
    )
    sound[~depends] = (ranked[~depends] == 0) & (shuffled[~depends] == 0)
    n_wrong = int((~sound).sum())
    if n_wrong:
        raise BadInputError(
            f"{what} depends on the local parameters of more than one group, in {n_wrong} of "
            f"{len(sound)} entries. {_CROSSED}"
        )
    return groups, depends


def column_of_groups(
    groups: IntArray, depends: BoolArray, rows: Mapping[str, Any], split: Split, n_groups: int
) -> str:
    """The array that is cut and holds the group of each row."""
    require(bool(depends.any()), "No row depends on the local parameters. Check `local`.")
    for name in split.names:
        array = np.asarray(rows[name])
        whole = array.ndim == 1 and np.issubdtype(array.dtype, np.integer)
        if whole and bool((array[depends] == groups[depends]).all()):
            inside = bool(((array >= 0) & (array < n_groups)).all())
            require(inside, f"{name} must hold whole numbers from 0 to {n_groups - 1}.")
            return name
    raise BadInputError(
        "No array in `split` holds the group of each row. The program uses groups "
        f"{groups[depends][:5].tolist()} for its first rows: give an array of whole numbers from 0 "
        f"to {n_groups - 1} with just these, and name it in `split`."
    )


def tested_rows(column: IntArray, n_groups: int) -> tuple[IntArray, IntArray]:
    """A few groups that have rows, and some rows of each, to compare forms of a program on."""
    present = np.unique(column)
    n = min(_TESTED_GROUPS, max(1, len(present) // 2 if n_groups > 1 else 1))
    groups = present[np.unique(np.linspace(0, len(present) - 1, n).astype(int))]
    places = [np.flatnonzero(column == g)[:_TESTED_ROWS] for g in groups]
    return groups, np.concatenate(places)


def shrinking_constants(
    constants: Mapping[str, Any],
    sizes: tuple[int, ...],
    agrees: Callable[[tuple[str, ...]], bool],
) -> tuple[str, ...] | None:
    """Names of constants that shrink with the groups of a shard; None if no choice agrees.

    Parameters
    ----------
    constants
        All arguments of the program that are not cut.
    sizes
        Numbers of groups, of one level or two, which sizes and leading axes are compared with.
    agrees
        Whether the program on a few groups, with these constants shrunk, gives the densities that
        it gives on all groups.
    """
    candidates = [
        name for name, value in constants.items() if any(_of_groups(value, n) for n in sizes)
    ]
    for names in _subsets(candidates[:_MOST_CANDIDATES]):
        try:
            if agrees(names):
                return names
        except BadInputError:  # shapes do not fit, so the program must see all groups
            continue
    return None


def agree(first: Sequence[Array], second: Sequence[Array]) -> bool:
    """Whether two evaluations of a program have the same densities."""
    pairs = list(zip(first, second, strict=True))
    same = all(np.shape(a) == np.shape(b) for a, b in pairs)
    return same and all(np.allclose(a, b, rtol=1e-9, atol=1e-9, equal_nan=True) for a, b in pairs)


def _of_groups(value: Any, n_groups: int) -> bool:
    if isinstance(value, bool | str):
        return False
    if np.ndim(value) == 0:
        return isinstance(value, int | np.integer) and int(value) == n_groups
    return len(value) == n_groups


def _subsets(names: list[str]) -> Iterator[tuple[str, ...]]:
    """All sets of names, the largest first."""
    for size in range(len(names), -1, -1):
        yield from combinations(names, size)
