"""Warnings that point to the line of the caller, not to one of ours."""

import sys
import warnings
from types import FrameType

_OURS = "quorate"


def warn(text: str, category: type[Warning]) -> None:
    """Warn, as if the function that called this package had."""
    level, ours = 1, 1
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] == _OURS:
            ours = level  # so far up the stack; the standard library may come between
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=ours + 1)
