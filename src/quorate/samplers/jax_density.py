"""A target as JAX sees it, whitened: a log density of z, where x = mean + lower z.

A model that JAX can trace is compiled once and serves all its shards of one size. One that only
gives gradients in numpy is called back from compiled code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from quorate._types import Array
from quorate.errors import BadInputError
from quorate.extras import is_installed, jax_in_float64, load
from quorate.model import TraceableModel
from quorate.target import Target

Compiled = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Owner:
    """A model or a target as the key of a cache: equal to itself alone."""

    thing: Any

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Owner) and self.thing is other.thing


def load_jax() -> tuple[Any, Any]:
    """The modules jax and blackjax."""
    return jax_in_float64(), load("blackjax", "jax")


def can_serve(target: Target) -> bool:
    """Whether there are gradients, and JAX and BlackJAX to use them."""
    has_them = _is_traceable(target) or target.has_gradient
    return has_them and is_installed("jax") and is_installed("blackjax")


def owner_of(target: Target) -> Owner:
    """What compiled code belongs to: the model if JAX can trace it, else this very target."""
    return Owner(target.model if _is_traceable(target) else target)


def arguments_of(target: Target) -> dict[str, Any]:
    """The shard and 1/K, as arguments of compiled code."""
    shard = dict(target.shard) if _is_traceable(target) else {}
    return {"shard": shard, "n_shards": np.float64(target.n_shards)}


def density_of(owner: Owner) -> Callable[[Any, dict[str, Any]], Any]:
    """log density(x, arguments), which JAX can differentiate."""
    if isinstance(owner.thing, Target):
        called_back = _called_back(owner.thing)
        return lambda x, arguments: called_back(x)
    model = cast(TraceableModel, owner.thing)

    def traced(x: Any, arguments: dict[str, Any]) -> Any:
        prior = model.jax_log_prior(x) / arguments["n_shards"]
        return prior + model.jax_log_likelihood(x, arguments["shard"])

    return traced


def require_gradients(target: Target, sampler: str) -> None:
    """Refuse a model that has none."""
    if not (_is_traceable(target) or target.has_gradient):
        raise BadInputError(
            "sampler",
            sampler,
            "the model gives no gradients: write its log densities in JAX, give their gradients, "
            "or use sampler='ellipse' or 'random_walk'",
        )


def _is_traceable(target: Target) -> bool:
    return all(hasattr(target.model, name) for name in ("jax_log_prior", "jax_log_likelihood"))


def _called_back(target: Target) -> Callable[[Any], Any]:
    jax, _ = load_jax()
    shapes = (
        jax.ShapeDtypeStruct((), np.float64),
        jax.ShapeDtypeStruct((target.dim,), np.float64),
    )

    def in_numpy(x: Any) -> tuple[Array, Array]:
        """Where a trajectory has gone too far for the model to follow, the density is 0."""
        try:
            with np.errstate(all="ignore"):
                value, gradient = target.log_density_and_gradient(np.asarray(x, dtype=np.float64))
        except BadInputError:
            value, gradient = -np.inf, np.zeros(target.dim)
        return np.asarray(value, dtype=np.float64), np.asarray(gradient, dtype=np.float64)

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def density(x: Any) -> Any:
        return jax.pure_callback(in_numpy, shapes, x)[0]

    def forward(x: Any) -> tuple[Any, Any]:
        value, gradient = jax.pure_callback(in_numpy, shapes, x)
        return value, gradient

    density.defvjp(forward, lambda gradient, weight: (weight * gradient,))
    return cast(Callable[[Any], Any], density)
