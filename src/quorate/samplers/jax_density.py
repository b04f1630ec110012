"""Log densities for JAX.

A model that JAX can trace is compiled once for all its shards of the same size. A model with
gradients in numpy does not use JAX: see `quorate.samplers.trajectories`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from quorate._extras import is_installed, jax_in_float64, load_all
from quorate.errors import BadInputError
from quorate.models.protocol import TraceableModel
from quorate.models.subposterior import Target


@dataclass(frozen=True, eq=False)
class Owner:
    """A model as the key of a cache of compiled code. Keys compare models by identity."""

    model: TraceableModel

    @classmethod
    def of(cls, target: Target) -> "Owner":
        """Key of the model of `target`."""
        return cls(cast(TraceableModel, target.model))

    def __hash__(self) -> int:
        return id(self.model)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Owner) and self.model is other.model


def load_jax() -> tuple[Any, Any]:
    """The modules jax and blackjax, or an error that says how to install them."""
    blackjax = load_all({"blackjax": "jax", "jax": "jax"})
    return jax_in_float64(), blackjax


def can_serve(target: Target) -> bool:
    """Whether `nuts` and `hmc` can sample `target`: it has gradients, and JAX if it needs that."""
    if is_traceable(target):
        return is_installed("jax") and is_installed("blackjax")
    return target.has_gradient


def arguments_of(target: Target) -> dict[str, Any]:
    """The shard and the number of shards, as arguments of compiled code."""
    return {"shard": dict(target.shard), "n_shards": np.float64(target.n_shards)}


def density_of(owner: Owner) -> Callable[[Any, dict[str, Any]], Any]:
    """The log density as a function of (x, arguments) that JAX can differentiate."""
    model = owner.model

    def traced(x: Any, arguments: dict[str, Any]) -> Any:
        prior = model.jax_log_prior(x) / arguments["n_shards"]
        return prior + model.jax_log_likelihood(x, arguments["shard"])

    return traced


def require_gradients(target: Target, sampler: str) -> None:
    """Refuse a model without gradients."""
    if not (is_traceable(target) or target.has_gradient):
        raise BadInputError(
            f"sampler={sampler!r} needs gradients, and the model has none. Write its log densities "
            "in JAX, give their gradients, or use sampler='ellipse' or 'random_walk'."
        )


def is_traceable(target: Target) -> bool:
    """Whether the model is a `quorate.models.protocol.TraceableModel`."""
    return all(hasattr(target.model, name) for name in ("jax_log_prior", "jax_log_likelihood"))
