"""Levels of groups, and what a model says about the parameters of its groups."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from quorate._types import Array, IntArray
from quorate.models.protocol import Model, Shard

VARYING = ("Z", "Z_inner")  # arrays of a shard that hold the varying columns, outer level first
# (level, groups (m,), n numbers) to uniform numbers in (0, 1), shape (n_points, m, n)
Uniforms = Callable[[str, IntArray, int], Array]
# The same with the number of the level, 0 for the outer one; how many numbers is settled.
LevelUniforms = Callable[[int, IntArray], Array]


@dataclass(frozen=True)
class Level:
    """One level of groups, and the parameters that each of its groups has.

    Parameters
    ----------
    name
        The column that defines the groups, such as `county`; `state:county` for groups within
        the groups of an outer level.
    names
        The parameters of a group. For regressions these are coefficients: Intercept, hour.
    blocks
        Sizes of the blocks of parameters that are correlated among themselves: (2,) for
        `(1 + x | g)`, (1, 1) for `(1 + x || g)`.
    """

    name: str
    names: tuple[str, ...]
    blocks: tuple[int, ...]

    def entries(self, name: str) -> tuple[list[int], tuple[int, ...]]:
        """Places among `names` of a variable's entries, such as `b[0,1]`, and its shape."""
        places = [
            place
            for place, label in enumerate(self.names)
            if label == name or (label.startswith(f"{name}[") and label.endswith("]"))
        ]
        _, bracket, last = self.names[places[-1]].rpartition("[")
        return places, tuple(int(i) + 1 for i in last[:-1].split(",")) if bracket else ()


class Moments(NamedTuple):
    """Moments of the parameters of the groups of one level, summed over points.

    `groups` are the codes of the groups that a shard holds, in rising order, shape (m,).
    `sums[k - 1]` is the sum over points of E[(z - centre)^k | point, rows], for k = 1, 2, 3, shape
    (3, m, q). The `centres` (m, q) depend on the shard only, so sums over points may be added.
    """

    groups: IntArray
    centres: Array
    sums: Array


class GroupedModel(Model, Protocol):
    """A model whose groups have parameters of their own. `log_likelihood` integrates them out.

    All rows of a group must be in one shard. In a shard, the array `group` (n,) holds the code of
    each row's group, and `inner` (n,) that of its group on the second level, if there is one.
    """

    @property
    def levels(self) -> tuple[Level, ...]:
        """One level, or two that nest, the outer one first."""

    @property
    def group_columns(self) -> str:
        """The columns that define groups, as `by="group:…"` takes them: `county`, or `a/b`."""

    def local_moments(self, points: Array, shard: Shard) -> Mapping[str, Moments]:
        """Moments of the parameters of all groups of a shard, by level, summed over the points."""

    def local_draws(
        self, points: Array, shard: Shard, groups: IntArray, uniforms: Uniforms
    ) -> Mapping[str, tuple[IntArray, Array]]:
        """Draws of the parameters of some groups of the outer level, one for each point.

        Returns, by level, the codes of groups (m,) and draws (n_points, m, q); on the inner level
        all groups within those asked for.
        """


def levels_of(model: Model) -> tuple[Level, ...]:
    """The levels of a model; none for a model without groups."""
    levels: tuple[Level, ...] = getattr(model, "levels", ())
    return levels
