"""Draws from priors that are given in words."""

from collections.abc import Callable
from typing import Any

import numpy as np

from quorate._types import Array
from quorate.errors import BadInputError
from quorate.models.priors import Prior


def drawn(prior: Prior, n: int, rng: np.random.Generator, name: str) -> Array:
    """`n` draws from a prior, on the natural scale; `name` is that of the parameter."""
    if prior.name == "flat":
        raise BadInputError(
            f"The prior of {name} is flat, so nothing can be drawn from it. Give it a proper "
            "prior, such as normal(0, 2.5) or exponential(1)."
        )
    values = np.asarray(_law(prior).ppf(rng.uniform(size=n)), dtype=np.float64)
    return np.abs(values) if prior.name.startswith("half_") else values


def _law(prior: Prior) -> Any:
    """The distribution of SciPy; that of a `half_` prior before its sign is dropped."""
    from scipy import stats  # takes half a second, and few need it

    *first, last = prior.arguments
    laws: dict[str, Callable[[], Any]] = {
        "normal": lambda: stats.norm(*prior.arguments),
        "student_t": lambda: stats.t(*prior.arguments),
        "cauchy": lambda: stats.cauchy(*prior.arguments),
        "laplace": lambda: stats.laplace(*prior.arguments),
        "half_normal": lambda: stats.norm(0.0, last),
        "half_student_t": lambda: stats.t(*first, 0.0, last),
        "half_cauchy": lambda: stats.cauchy(0.0, last),
        "exponential": lambda: stats.expon(scale=1 / last),
        "gamma": lambda: stats.gamma(*first, scale=1 / last),
        "lognormal": lambda: stats.lognorm(last, scale=np.exp(prior.arguments[0])),
    }
    return laws[prior.name]()
