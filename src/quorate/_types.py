"""Array types, named once."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Progress = Callable[[int, int], None]  # called with how many are done, of how many
CodedArray = NDArray[Any]  # float64, or complex128 where a code is complex
