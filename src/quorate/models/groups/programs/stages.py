"""A shard that is ready for integrals, and its levels of groups one by one."""

from typing import NamedTuple

from quorate._types import Array, IntArray
from quorate.models.groups.levels import Level
from quorate.models.groups.programs.at_point import AtPoint
from quorate.models.groups.programs.integral import Arguments


class Ready(NamedTuple):
    """A shard, ready for integrals; or the reason why they cannot be computed."""

    given: Arguments
    codes: IntArray
    centres: tuple[Array, ...]  # natural values at the anchors, (m, r), level by level
    refused: str = ""


class Stage(NamedTuple):
    """One level of groups: given those around them, local parameters are drawn from it."""

    at: AtPoint
    level: Level
    given: Arguments
    codes: IntArray
