"""Models: log densities on an unconstrained vector, from functions, NumPyro, PyMC or GLMs.

Also the subposterior of a shard, eq. (2). Models know rows and parameters only: no sampler, no
merging, no shards on disk, no scheme. JAX, NumPyro, PyMC and pandas are imported when needed.
"""

from typing import TYPE_CHECKING

from quorate._lazy import lazily

if TYPE_CHECKING:
    from quorate.models.formulas.design import design
    from quorate.models.programs.bambi import from_bambi
    from quorate.models.programs.functions import from_functions
    from quorate.models.programs.numpyro import from_numpyro
    from quorate.models.programs.pymc import from_pymc
    from quorate.models.regressions.ready_made import (
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
        "programs.bambi": ("from_bambi",),
        "formulas.design": ("design",),
        "programs.functions": ("from_functions",),
        "programs.numpyro": ("from_numpyro",),
        "programs.pymc": ("from_pymc",),
        "regressions.ready_made": (
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
