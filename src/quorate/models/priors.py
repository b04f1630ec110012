"""Priors given in words, such as `normal(0, 2.5)`: log densities and derivatives.

All are densities on the natural scale.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from scipy.special import gammaln

from quorate._types import Array
from quorate.errors import BadInputError, require

Kind = Literal["coefficient", "scale"]
Density = Callable[..., tuple[Array, Array]]  # (values, *arguments) to log density, derivative
_LOG_2PI = np.log(2 * np.pi)


@dataclass(frozen=True)
class Prior:
    """One prior: the user's `words`, the name of the density and its arguments."""

    words: str
    name: str
    arguments: tuple[float, ...]
    kind: Kind

    def log_density(self, values: Array) -> tuple[Array, Array]:
        """The log density of each value, and its derivative."""
        density, _ = _KNOWN[self.kind][self.name]
        return density(values, *self.arguments)


def parse(words: str, kind: Kind) -> Prior:
    """A prior from a user's words: a name, with arguments in brackets if it has any."""
    known = _KNOWN[kind]
    choices = "; ".join(_usage(name, arguments) for name, (_, arguments) in known.items())
    match = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\))?\s*", words) if isinstance(words, str) else None
    if match is None or match[1] not in known:
        raise BadInputError(f"The prior of a {kind} cannot be {words!r}. Write one of: {choices}.")
    name, (_, wanted) = match[1], known[match[1]]
    try:
        arguments = tuple(float(part) for part in (match[2] or "").split(",") if part.strip())
    except ValueError:
        message = f"Prior {words!r} needs plain numbers as arguments, as in normal(0, 2.5)."
        raise BadInputError(message) from None
    usage = _usage(name, wanted)
    require(len(arguments) == len(wanted), f"Prior {words!r} is incomplete. Write {usage}.")
    for value, argument in zip(arguments, wanted, strict=True):
        rule = "finite" if argument == "location" else "a number above 0"
        fine = np.isfinite(value) and (value > 0 or argument == "location")
        require(bool(fine), f"Prior {words!r} is wrong: in {usage}, {argument} must be {rule}.")
    return Prior(words, name, arguments, kind)


def _usage(name: str, arguments: tuple[str, ...]) -> str:
    return f"{name}({', '.join(arguments)})" if arguments else name


def _flat(values: Array) -> tuple[Array, Array]:
    return np.zeros_like(values), np.zeros_like(values)


def _normal(values: Array, location: float, scale: float) -> tuple[Array, Array]:
    z = (values - location) / scale
    return -0.5 * z**2 - np.log(scale) - 0.5 * _LOG_2PI, -z / scale


def _student_t(values: Array, df: float, location: float, scale: float) -> tuple[Array, Array]:
    z = (values - location) / scale
    half = (df + 1) / 2
    constant = gammaln(half) - gammaln(df / 2) - 0.5 * np.log(df * np.pi) - np.log(scale)
    return constant - half * np.log1p(z**2 / df), -2 * half * z / (df + z**2) / scale


def _cauchy(values: Array, location: float, scale: float) -> tuple[Array, Array]:
    return _student_t(values, 1.0, location, scale)


def _laplace(values: Array, location: float, scale: float) -> tuple[Array, Array]:
    z = (values - location) / scale
    return -np.abs(z) - np.log(2 * scale), -np.sign(z) / scale


def _exponential(values: Array, rate: float) -> tuple[Array, Array]:
    return np.log(rate) - rate * values, np.full_like(values, -rate)


def _gamma(values: Array, shape: float, rate: float) -> tuple[Array, Array]:
    constant = shape * np.log(rate) - gammaln(shape)
    return constant + (shape - 1) * np.log(values) - rate * values, (shape - 1) / values - rate


def _lognormal(values: Array, location: float, scale: float) -> tuple[Array, Array]:
    logs = np.log(values)
    density, slope = _normal(logs, location, scale)
    return density - logs, (slope - 1) / values


def _half(
    density: Density, location_at: int, values: Array, *arguments: float
) -> tuple[Array, Array]:
    whole = (*arguments[:location_at], 0.0, *arguments[location_at:])
    log_density, derivative = density(values, *whole)
    return log_density + np.log(2.0), derivative


_KNOWN: dict[Kind, dict[str, tuple[Density, tuple[str, ...]]]] = {
    "coefficient": {
        "normal": (_normal, ("location", "scale")),
        "student_t": (_student_t, ("df", "location", "scale")),
        "cauchy": (_cauchy, ("location", "scale")),
        "laplace": (_laplace, ("location", "scale")),
        "flat": (_flat, ()),
    },
    "scale": {
        "half_normal": (partial(_half, _normal, 0), ("scale",)),
        "half_student_t": (partial(_half, _student_t, 1), ("df", "scale")),
        "half_cauchy": (partial(_half, _cauchy, 0), ("scale",)),
        "exponential": (_exponential, ("rate",)),
        "gamma": (_gamma, ("shape", "rate")),
        "lognormal": (_lognormal, ("location", "scale")),
        "flat": (_flat, ()),
    },
}
