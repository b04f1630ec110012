"""Ways to get a model: two functions, NumPyro, PyMC, or a ready-made generalised linear model."""

from quorate.models.functions import from_functions
from quorate.models.glm import linear, logistic, negative_binomial, poisson
from quorate.models.numpyro import from_numpyro
from quorate.models.pymc import from_pymc
from quorate.models.supports import Correlation, Ordered, Positive, Real, Simplex, UnitInterval

__all__ = [
    "Correlation",
    "Ordered",
    "Positive",
    "Real",
    "Simplex",
    "UnitInterval",
    "from_functions",
    "from_numpyro",
    "from_pymc",
    "linear",
    "logistic",
    "negative_binomial",
    "poisson",
]
