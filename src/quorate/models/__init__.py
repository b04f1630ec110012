"""Models: log densities on an unconstrained vector, from functions, NumPyro, PyMC or GLMs.

Also the subposterior of a shard, eq. (2). Models know rows and parameters only: no sampler, no
merging, no shards on disk, no scheme. JAX, NumPyro, PyMC and pandas are imported when needed.
"""

from typing import TYPE_CHECKING

from quorate._lazy import lazily

if TYPE_CHECKING:
    from quorate.models.bambi import from_bambi
    from quorate.models.formula import design
    from quorate.models.functions import from_functions
    from quorate.models.numpyro import from_numpyro
    from quorate.models.pymc import from_pymc
    from quorate.models.regressions import (
        linear,
        logistic,
        negative_binomial,
        poisson,
        regression,
        student,
    )
    from quorate.models.supports import Correlation, Ordered, Positive, Real, Simplex, UnitInterval

__all__ = [
    "Correlation",
    "Ordered",
    "Positive",
    "Real",
    "Simplex",
    "UnitInterval",
    "design",
    "from_bambi",
    "from_functions",
    "from_numpyro",
    "from_pymc",
    "linear",
    "logistic",
    "negative_binomial",
    "poisson",
    "regression",
    "student",
]

__getattr__ = lazily(
    __name__,
    {
        "bambi": ("from_bambi",),
        "formula": ("design",),
        "functions": ("from_functions",),
        "numpyro": ("from_numpyro",),
        "pymc": ("from_pymc",),
        "regressions": (
            "linear",
            "logistic",
            "negative_binomial",
            "poisson",
            "regression",
            "student",
        ),
        "supports": (
            "Correlation",
            "Ordered",
            "Positive",
            "Real",
            "Simplex",
            "UnitInterval",
        ),
    },
)
