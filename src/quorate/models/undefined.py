"""Watches for a shard whose log density is hardly ever a number.

A pass may ask for points where a model overflows. Those count as points without density. If nearly
all points of many passes in a row are like that, the model is at fault, and draws would be wrong
without a sign of it.
"""

from quorate._types import Array, BoolArray
from quorate._warnings import warn
from quorate.errors import BadInputError, NotANumberError, NotANumberWarning
from quorate.models.subposterior import Target

_FEW = 8  # points that say nothing
_NEARLY_ALL = 0.9  # share of the points of a pass…
_IN_A_ROW = 8  # …in so many passes one after the other: an error
_MANY, _PASSES = 0.2, 12  # share of all points, after so many passes: a warning


class UndefinedPoints:
    """Counts of undefined points in the passes of one shard."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._n_in_a_row = self._n_passes = 0
        self._n_points = self._n_undefined = 0
        self._warned = False

    def count(self, points: Array, undefined: BoolArray) -> None:
        """Take in a pass. Raises `NotANumberError` with a point if it is one too many."""
        if len(points) < _FEW:
            return
        self._n_passes += 1
        self._n_points += len(points)
        self._n_undefined += int(undefined.sum())
        is_bad = undefined.mean() > _NEARLY_ALL
        self._n_in_a_row = self._n_in_a_row + 1 if is_bad else 0
        if self._n_in_a_row >= _IN_A_ROW:
            raise NotANumberError(
                f"{self._reason(points[undefined][0])}. It is so at nearly all points of "
                f"{self._n_in_a_row} passes one after the other."
            )
        many = self._n_undefined > _MANY * self._n_points and self._n_passes >= _PASSES
        if many and undefined.any() and not self._warned:
            self._warned = True
            warn(
                f"{self._reason(points[undefined][0])}. Points like this, {self._n_undefined} of "
                f"{self._n_points} so far, count as if the density were 0 there.",
                NotANumberWarning,
            )

    def _reason(self, x: Array) -> str:
        try:
            value = float(self._target.log_density(x))
        except BadInputError as error:
            return str(error).rstrip(".")
        return str(NotANumberError.at_point(value, x.tolist())).rstrip(".")
