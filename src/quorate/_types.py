"""Array types, named once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
CodedArray = NDArray[Any]  # float64, or complex128 where a code is complex
