"""The share of the prior of lost shards, as one more factor of the posterior.

K subposteriors have p(θ)^(1/K) each. Without m of them p(θ)^(m/K) is missing. We draw from it as if
it were a shard without rows, and merge it like one.
"""

from dataclasses import dataclass
from typing import Any

from quorate._types import Array
from quorate._warnings import warn
from quorate.errors import ExcludedShardsWarning, ImproperError, NotANumberError, named_shards
from quorate.merging.fit import Fit
from quorate.models.protocol import Model
from quorate.models.subposterior import Target
from quorate.numerics.streams import ChainStream, Streams
from quorate.protocol.scheme import Received
from quorate.samplers import fit_of
from quorate.samplers.ellipse import EllipseSampler

_ITS_SHARD = -1 % 2**32  # in the address of its randomness: no shard has this number


@dataclass(frozen=True)
class _PriorAlone:
    """A model whose rows carry no information."""

    model: Model

    def __getattr__(self, name: str) -> Any:
        if name.endswith(("_and_gradient", "_many")):
            raise AttributeError(name)
        return getattr(self.model, name)

    def log_likelihood(self, x: Array, shard: Any) -> float:
        return 0.0


def draws_of_prior(
    model: Model, share: float, n_draws: int, seed: int
) -> tuple[Array, Fit | None] | None:
    """Draws of p(θ)^share, (n_draws, d), with their fit; None where it is flat or improper."""
    target = Target(_PriorAlone(model), {}, 1 / share)
    stream = ChainStream(Streams(seed), _ITS_SHARD, 0)
    sampler = EllipseSampler(warns=False)
    try:
        state = sampler.warm_up(target, stream)
    except (ImproperError, NotANumberError):
        return None
    draws, _ = sampler.draw(target, state, stream, n_draws)
    return draws, fit_of(state)


def restore_prior(received: Received, model: Model, n_shards: int, seed: int) -> tuple[float, bool]:
    """Add the share of the prior of excluded shards, and warn that their rows are missing.

    Returns the share, and whether it could be added.
    """
    excluded = received.excluded
    share = len(excluded) / n_shards
    restored = draws_of_prior(model, share, max(map(len, received.shard_draws())), seed)
    if restored is not None:
        received.add_factor(*restored)
    prior = (
        "Their share of the prior was put back."
        if restored
        else "Their share of the prior is lost: it is flat, or cannot be drawn from."
    )
    warn(
        f"No worker was left that held {named_shards(excluded)}. The draws are of the "
        f"posterior without their rows. {prior}",
        ExcludedShardsWarning,
    )
    return share, restored is not None
