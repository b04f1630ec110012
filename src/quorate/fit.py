"""A Gaussian fit of a subposterior, as warm-up finds it before the first draw."""

from dataclasses import dataclass

from quorate._types import Array


@dataclass(frozen=True, eq=False)
class Fit:
    """N(mode, covariance): `mode` is (d,), `covariance` (d, d), the inverse curvature there."""

    mode: Array
    covariance: Array
