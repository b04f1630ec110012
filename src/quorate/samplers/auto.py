"""`auto`: warm-up chooses `ellipse` or `nuts` for each subposterior."""

from dataclasses import dataclass

import numpy as np

from quorate._types import Array
from quorate.errors import require
from quorate.models.subposterior import Target
from quorate.numerics.streams import ChainStream
from quorate.samplers.efficiency import Efficiency
from quorate.samplers.ellipse import EllipseSampler
from quorate.samplers.jax_density import can_serve
from quorate.samplers.nuts import NutsSampler
from quorate.samplers.protocol import Determinism, Sampler, State
from quorate.samplers.survey import surveyed


@dataclass(frozen=True)
class AutoSampler:
    """`ellipse` if its pilot mixes well, else `nuts` if the model has gradients.

    `state["uses_nuts"]` records the choice; `thin` is the number of steps per draw.
    """

    thin: int = 1

    name = "auto"
    determinism: Determinism = "pinned"  # what holds before warm-up has chosen

    def __post_init__(self) -> None:
        require(self.thin >= 1, f"thin must be at least 1, not {self.thin!r}.")

    def warm_up(self, target: Target, stream: ChainStream) -> State:
        has_another = can_serve(target)
        survey = surveyed(target, stream)
        moves = 0 if has_another else EllipseSampler.moves
        first = EllipseSampler(self.thin, warns=False, moves=moves)
        state = first.warm_up(target, stream, survey)
        found = Efficiency(
            float(state["pilot_evaluations_per_draw"]), float(state["pilot_ess_per_draw"])
        )
        uses_nuts = found.is_poor and has_another
        if uses_nuts:
            state = NutsSampler(self.thin).warm_up(target, stream, survey)
        else:
            found.warn_if_poor(
                "ellipse",
                "Raise `thin`, or give the model gradients, its own or JAX's "
                "(`pip install quorate[jax]`), so that `nuts` can take over.",
            )
        return {**state, "uses_nuts": np.array(uses_nuts)}

    def draw(
        self, target: Target, state: State, stream: ChainStream, n: int
    ) -> tuple[Array, State]:
        return self.chosen(state).draw(target, state, stream, n)

    def chosen(self, state: State) -> Sampler:
        """The sampler that warm-up chose."""
        return NutsSampler(self.thin) if state["uses_nuts"] else EllipseSampler(self.thin)
