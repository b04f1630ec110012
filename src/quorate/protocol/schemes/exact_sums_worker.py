"""Exact coded sums at worker k: when weights are renewed, from what, and what is sent then.

`quorate.protocol.schemes.exact_sums` describes the scheme.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, takewhile

import numpy as np

from quorate._types import Array, CodedArray
from quorate.errors import SingularCovarianceError
from quorate.merging.centres import shift_of
from quorate.merging.fit import Fit, as_arrays, fits_among
from quorate.merging.weights import shrunk_covariance
from quorate.numerics.linalg import scaled_inverse
from quorate.numerics.moments import Moments
from quorate.numerics.named_arrays import part
from quorate.protocol.coding.agreement import SharedVectors
from quorate.protocol.coding.code import GradientCode
from quorate.protocol.messages import Arrays
from quorate.protocol.scheme import Processed

CHECKPOINTS = "checkpoints"  # where extras hold what is sent once
Estimate = Callable[[Moments, Fit | None], tuple[Array, Array]]  # shift of the draws, and Ĉ
_GROWTH_AT_FIRST = 1.2  # while weights are noisy and past draws few; 2 later
_AT_FIRST = 4  # times the floor


@dataclass(frozen=True)
class Checkpoints:
    """After how many draws weights are renewed.

    Parameters
    ----------
    floor
        The first, unless all shards of a worker have a fit: then 1 is.
    last
        The number of draws that will be asked for, if known. Then it is one of them, its half and
        so on are the others, and past draws are sent again about twice in all.
    """

    floor: int
    last: int | None = None

    def within(self, first: int, end: int, with_fits: bool) -> list[int]:
        """Checkpoints above `first`, up to `end`."""
        numbers = dropwhile(lambda number: number <= first, self._all(with_fits))
        return list(takewhile(lambda number: number <= end, numbers))

    def _all(self, with_fits: bool) -> Iterator[int]:
        if with_fits and self.floor > 1:
            yield 1
        halves = [] if self.last is None else [self.last]
        while halves and halves[-1] > self.floor:
            halves.append(-(-halves[-1] // 2))
        number = max(self.floor, self.last or 0)
        yield from [self.floor, *reversed([half for half in halves if half > self.floor])]
        while True:
            growth = _GROWTH_AT_FIRST if number < _AT_FIRST * self.floor else 2
            number = int(np.ceil(growth * number))
            yield number


def default_floor(dim: int) -> int:
    """Draws of a shard from which its covariance is worth using."""
    return max(2 * dim, dim + 8)


@dataclass(frozen=True)
class DrawsOrFit:
    """Ĉ of a shard: of its draws, with a ridge; of its fit as long as there are few draws."""

    floor: int
    cov_ridge: float = 0.0

    def __call__(self, moments: Moments, fit: Fit | None) -> tuple[Array, Array]:
        as_drawn = np.zeros(moments.mean.shape[-1])
        if fit is not None and moments.count < self.floor:
            return as_drawn, fit.covariance
        return as_drawn, moments.covariance(self.cov_ridge)


def shrunk(moments: Moments, fit: Fit | None) -> tuple[Array, Array]:
    """Shift of the mean, and Ĉ: those of draws, shrunk towards those of the fit."""
    return shift_of(moments, fit), shrunk_covariance(moments, fit)


class SendExact:
    """At worker k: weigh by the precision of the last checkpoint, encode.

    Its state has all draws so far, a segment for each call, since a checkpoint needs them.
    """

    def __init__(
        self,
        code: GradientCode,
        checkpoints: Checkpoints,
        estimate: Estimate,
        shared: SharedVectors | None,
    ) -> None:
        self.code = code
        self.checkpoints = checkpoints
        self.estimate = estimate
        self.shared = shared

    def start(self, fits: Sequence[Fit | None]) -> Arrays:
        """The fits, where there are any."""
        fitted = np.array([fit is not None for fit in fits])
        return {"count": np.array(0), "fitted": fitted, **as_arrays(fits)}

    def process(self, draws: Array, state: Arrays) -> tuple[Processed, Arrays]:
        """Ĉ_s⁻¹ (θ_s^l + shift), as known at the last checkpoint at or before l; 0 before any.

        Nothing depends on how draws are cut into blocks, not by a bit.
        """
        first = int(state["count"])
        end = first + draws.shape[1]
        after = {**state, "count": np.array(end), f"draws/{first}": draws}
        weighted, once, done = np.zeros(draws.shape), {}, first
        for number in self.checkpoints.within(first, end, bool(state["fitted"].all())):
            since = slice(done - first, number - first)
            weighted[:, since] = _weigh(draws[:, since], after)
            past = _past_draws(after)[:, :number]
            after |= self._estimates(past, state)
            once[number - 1] = self._at_checkpoint(past, after)
            done = number
        weighted[:, done - first :] = _weigh(draws[:, done - first :], after)
        vectors = self.code.pack(weighted)
        return Processed(vectors, self._products(vectors, first), once), after

    def encode(self, worker: int, processed: Processed) -> tuple[CodedArray, Arrays]:
        """θ̃_k^l of eq. (12), shape (n, width), and all there is to say at checkpoints.

        Draws that wait for the first checkpoint are not sent: their payload has width 0.
        """
        payload = self._coded(worker, processed.vectors)
        extras = {name: np.swapaxes(array, 0, 1) for name, array in processed.by_draw.items()}
        if not payload.any():
            payload, extras = payload[:, :0], {}
        for draw, arrays in processed.once.items():
            for name, array in arrays.items():
                is_product = name.endswith("products")
                sent = np.swapaxes(array, 0, 1) if is_product else self._coded(worker, array)
                extras[f"{CHECKPOINTS}/{draw + 1}/{name}"] = sent
        return payload, extras

    def payload_shapes(self, n_shards: int, dim: int) -> Collection[tuple[int, ...]]:
        """Shapes of a payload; its width is 0 until the first checkpoint."""
        return [(0,), self.code.pack(np.zeros(dim)).shape]

    def _estimates(self, past: Array, state: Arrays) -> Arrays:
        fits = fits_among(state, range(len(past)))
        moments = [Moments.of(np.ascontiguousarray(shard)) for shard in past]
        found = [self.estimate(of, fits.get(s)) for s, of in enumerate(moments)]
        shifts, covs = (np.stack(parts) for parts in zip(*found, strict=True))
        if past.shape[1] < self.checkpoints.floor:
            shifts[:] = 0.0  # else that of very few draws would move all up to the next checkpoint
        if not (np.diagonal(covs, axis1=-2, axis2=-1) > 0).all():
            raise SingularCovarianceError
        return {"shifts": shifts, "precisions": scaled_inverse(covs)}

    def _at_checkpoint(self, past: Array, state: Arrays) -> Arrays:
        rows, columns = np.triu_indices(past.shape[-1])
        entries = self.code.pack(state["precisions"][:, None, rows, columns])
        again = self.code.pack(_weigh(past, state))
        arrays = {"precisions": entries, "again": again}
        if self.shared is None:
            return arrays
        vector = self.shared.of_checkpoint(past.shape[1], entries.shape[-1])
        of_again = self._products(again, 0)["products"]
        return {**arrays, "precisions_products": _dot(entries, vector), "again_products": of_again}

    def _products(self, vectors: CodedArray, first: int) -> dict[str, CodedArray]:
        if self.shared is None:
            return {}
        shared = self.shared.of_draws(first, *vectors.shape[1:])
        return {"products": _dot(vectors, shared)}

    def _coded(self, worker: int, vectors: CodedArray) -> CodedArray:
        """Σ_s B_ks (vectors of s), added in the order of shards whatever the number of rows."""
        return np.asarray(
            np.add.reduce(self.code.coefficients[worker][:, None, None] * vectors, axis=0)
        )


def _weigh(draws: Array, state: Arrays) -> Array:
    """Each draw (S, n, d), shifted, times its shard's precision, added in order and not by BLAS."""
    weighted = np.zeros(draws.shape)
    if "precisions" in state:
        shifted = draws + state["shifts"][:, None]
        for j in range(draws.shape[-1]):
            weighted += shifted[..., j, None] * state["precisions"][:, None, j, :]
    return weighted


def _dot(vectors: CodedArray, shared: Array) -> CodedArray:
    return np.asarray((vectors * shared).sum(axis=-1))


def _past_draws(state: Arrays) -> Array:
    segments = {int(first): array for first, array in part(state, "draws").items()}
    return np.concatenate([segments[first] for first in sorted(segments)], axis=1)
