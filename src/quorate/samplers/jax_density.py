"""A target as JAX sees it, whitened: a log density of z, where x = mean + lower z.

A model that JAX can trace is compiled once and serves all its shards of one size. One that only
gives gradients in numpy is not for JAX: see `quorate.samplers.trajectories`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from quorate._extras import is_installed, jax_in_float64, load
from quorate.errors import BadInputError
from quorate.models.protocol import TraceableModel
from quorate.models.subposterior import Target


@dataclass(frozen=True, eq=False)
class Owner:
    """A model as the key of a cache, for code compiled for it: equal to itself alone."""

    model: TraceableModel

    @classmethod
    def of(cls, target: Target) -> "Owner":
        """Of what is compiled for a target."""
        return cls(cast(TraceableModel, target.model))

    def __hash__(self) -> int:
        return id(self.model)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Owner) and self.model is other.model


def load_jax() -> tuple[Any, Any]:
    """The modules jax and blackjax."""
    return jax_in_float64(), load("blackjax", "jax")


def can_serve(target: Target) -> bool:
    """Whether there are gradients, and JAX and BlackJAX if they take these."""
    if is_traceable(target):
        return is_installed("jax") and is_installed("blackjax")
    return target.has_gradient


def arguments_of(target: Target) -> dict[str, Any]:
    """The shard and 1/K, as arguments of compiled code."""
    return {"shard": dict(target.shard), "n_shards": np.float64(target.n_shards)}


def density_of(owner: Owner) -> Callable[[Any, dict[str, Any]], Any]:
    """log density(x, arguments), which JAX can differentiate."""
    model = owner.model

    def traced(x: Any, arguments: dict[str, Any]) -> Any:
        prior = model.jax_log_prior(x) / arguments["n_shards"]
        return prior + model.jax_log_likelihood(x, arguments["shard"])

    return traced


def require_gradients(target: Target, sampler: str) -> None:
    """Refuse a model that has none."""
    if not (is_traceable(target) or target.has_gradient):
        raise BadInputError(
            "sampler",
            sampler,
            "the model gives no gradients: write its log densities in JAX, give their gradients, "
            "or use sampler='ellipse' or 'random_walk'",
        )


def is_traceable(target: Target) -> bool:
    """Whether the model is a `quorate.models.protocol.TraceableModel`."""
    return all(hasattr(target.model, name) for name in ("jax_log_prior", "jax_log_likelihood"))
