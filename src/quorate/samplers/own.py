"""A user's own sampler: a function that yields draws."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quorate._types import Array
from quorate.errors import BadInputError, ImproperError, require
from quorate.models.subposterior import Target
from quorate.numerics.streams import ChainStream
from quorate.samplers.laplace import laplace_fit, starting_point
from quorate.samplers.protocol import Determinism, State

Draws = Callable[[Target, Array, np.random.Generator], Iterable[Any]]


@dataclass(frozen=True)
class OwnSampler:
    """Sampler made from `function(target, start, rng)`.

    The function gets the subposterior, a starting point and a random generator. The subposterior
    has `target.log_density(x)`, and `target.log_density_and_gradient(x)` if `target.has_gradient`.
    The function yields draws of shape (dim,), or returns an array (n, dim) or a list. When they are
    used up it is called again from the last draw.

    The first start is the mode, or the model's start if there is no mode. The state inside a
    generator is not saved: if another process takes the chain over, it restarts from the last draw
    and adapts step sizes again. So the sampler guarantees nothing about bits. The function does its
    own warm-up: every draw it yields counts.

    Parameters
    ----------
    function
        Must be picklable, as functions and lambdas are.
    thin
        Number of draws of the function per draw.
    """

    function: Draws
    thin: int = 1
    _running: "dict[tuple[int, int], _Running]" = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    determinism: Determinism = field(default="none", init=False)

    def __post_init__(self) -> None:
        require(self.thin >= 1, f"thin must be at least 1, not {self.thin!r}.")

    def __reduce__(self) -> tuple[type["OwnSampler"], tuple[Draws, int]]:
        return OwnSampler, (self.function, self.thin)  # generators cannot be pickled

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def warm_up(self, target: Target, stream: ChainStream) -> State:
        try:
            start = laplace_fit(target).mode
        except (ImproperError, BadInputError):
            start = starting_point(target)[0]
        return {"index": np.array(0), "last": start}

    def draw(
        self, target: Target, state: State, stream: ChainStream, n: int
    ) -> tuple[Array, State]:
        index, key = int(state["index"]), (stream.shard, stream.chain)
        running = self._running.get(key)
        if running is None or running.target is not target or running.index != index:
            running = _Running(self, target, stream, index, state["last"])
            self._running[key] = running
        draws = np.array([running.next_draw() for _ in range(n)]).reshape(n, target.dim)
        last = draws[-1] if n else state["last"]
        return draws, {"index": np.array(index + n), "last": last}


class _Running:
    """A chain with its running generator."""

    def __init__(
        self, sampler: OwnSampler, target: Target, stream: ChainStream, index: int, start: Array
    ) -> None:
        self.target, self.index, self._step = target, index, index * sampler.thin
        self._sampler, self._stream, self._last = sampler, stream, start
        self._draws: Iterator[Any] = iter(())

    def next_draw(self) -> Array:
        for _ in range(self._sampler.thin):
            self._last = self._one()
            self._step += 1
        self.index += 1
        return self._last

    def _one(self) -> Array:
        for made in self._draws:
            return self._checked(made)
        self._draws = self._call()
        for made in self._draws:
            return self._checked(made)
        raise BadInputError(f"{self._what} yielded no draws. It must yield at least one.")

    def _call(self) -> Iterator[Any]:
        rng = np.random.default_rng(self._stream.keys(self._step, 1)[0])
        made = self._sampler.function(self.target, self._last.copy(), rng)
        kind = type(made).__name__
        require(
            isinstance(made, Iterable),
            f"{self._what} returned an object of type {kind}. It must yield or return draws.",
        )
        return iter(made)

    def _checked(self, made: Any) -> Array:
        draw = np.array(made, dtype=np.float64)
        dim = self.target.dim
        if draw.shape != (dim,):
            raise BadInputError(
                f"{self._what} yielded a draw of shape {draw.shape}. Yield one array of shape "
                f"({dim},) at a time."
            )
        if not np.isfinite(draw).all():
            raise BadInputError(f"{self._what} yielded {draw}. Draws must be finite.")
        return draw

    @property
    def _what(self) -> str:
        return f"The sampler {self._sampler.name!r}"
