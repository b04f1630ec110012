"""Random numbers that are found by a key.

There is no sequence: the bits of a number depend on its key alone, not on who asks for it, when, or
with how many others. The key of a draw is (seed, shard, chain, draw). All holders of a shard that
run the same *chain* draw the same values: the common randomness of C-CMC (§V). Holders that run
different chains are independent, as G-CMC needs (§IV).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache

import numpy as np
from numpy.random import Philox
from numpy.typing import NDArray
from scipy.special import ndtri

from quorate._types import Array

_WORDS = 4  # 64-bit words that Philox yields per step of its counter
_PAGE = 16  # consecutive rows of a lane; then come those of the next lane
_MORE_PAGES = 1024  # extra rows reserved for a step that needs more numbers than its row has
Lane = tuple[int, int]


class Purpose(IntEnum):
    """What random numbers are used for. Two purposes never share a number."""

    DRAWS = 0
    TIMES = 1
    WHO_IS_SLOW = 2
    WHO_IS_DEAD = 3
    WHERE_IN_A_TRACE = 4
    STEPS = 5
    MORE_STEPS = 6
    WARM_UP = 7
    MORE_WARM_UP = 8
    PAIRING = 9
    TIES = 10
    CHECKS = 11
    POINTS = 12
    RESAMPLING = 13
    RESAMPLED_ORDER = 14
    FITS = 15
    PASSES = 16
    ENSEMBLE = 17
    MORE_ENSEMBLE = 18
    WEIGHED = 19
    TRAJECTORIES = 20
    LOCAL = 21
    RESPONSES = 22
    RESPONSE_SEEDS = 23


@dataclass(frozen=True)
class Streams:
    """All random numbers of one run.

    Parameters
    ----------
    seed
        The user's seed.
    realisation
        Number of this run among independent repetitions.
    """

    seed: int
    realisation: int = 0

    def uniforms(
        self, purpose: Purpose, lanes: Sequence[Lane], first: int, n: int, width: int
    ) -> Array:
        """Uniforms in the open interval (0, 1).

        Parameters
        ----------
        lanes
            Pairs such as (shard, chain) or (worker, 0), each with its own numbers. Lanes that are
            neighbours in the first entry and equal in the second are generated in one go.
        first, n
            The rows wanted of every lane: `first` to `first + n - 1`.
        width
            Numbers per row. All uses of one purpose must have the same width, or they overlap.

        Returns
        -------
        Array
            Shape (len(lanes), n, width). A row's bits depend only on the seed, the realisation,
            the purpose, the lane, the row's index and `width`.
        """
        n_words = _WORDS * -(-width // _WORDS)
        first_page, end_page = first // _PAGE, -(-(first + n) // _PAGE)
        words = np.empty((len(lanes), end_page - first_page, _PAGE, n_words), dtype=np.uint64)
        philox = _Seekable(_key(self.seed, self.realisation, purpose))
        for start, end in _runs(lanes):
            low, high = lanes[start]
            for page in range(first_page, end_page):
                philox.seek((high << 128) + (page << 64) + low * _PAGE * n_words // _WORDS)
                raw = philox.read((end - start) * _PAGE * n_words)
                words[start:end, page - first_page] = raw.reshape(-1, _PAGE, n_words)
        rows = words.reshape(len(lanes), -1, n_words)
        rows = rows[:, first - first_page * _PAGE :][:, :n, :width]
        return np.asarray((rows >> np.uint64(12)) * 2.0**-52 + 2.0**-53, dtype=np.float64)

    def normals(self, lanes: Sequence[Lane], first: int, n: int, width: int) -> Array:
        """Standard normals for draws, shape (len(lanes), n, width), with the keys of `uniforms`."""
        return np.asarray(ndtri(self.uniforms(Purpose.DRAWS, lanes, first, n, width)))

    def permutation(self, purpose: Purpose, n: int) -> list[int]:
        """A random order of 0, …, n - 1."""
        uniforms = self.uniforms(purpose, [(0, 0)], 0, 1, n)[0, 0]
        return [int(i) for i in np.argsort(uniforms)]


@dataclass(frozen=True)
class ChainStream:
    """The random numbers of one chain, found by the index of their step.

    Parameters
    ----------
    streams
        Random numbers of the run.
    shard, chain
        Key of the chain. Two workers with the same key draw the same values.
    warming_up
        Whether these numbers are for warm-up, which has its own.
    """

    streams: Streams
    shard: int
    chain: int
    warming_up: bool = False

    def for_warm_up(self) -> "ChainStream":
        """The chain's numbers for warm-up."""
        return replace(self, warming_up=True)

    def uniforms(self, first: int, n: int, width: int) -> Array:
        """Uniforms in (0, 1) for steps `first` to `first + n - 1`, shape (n, width)."""
        purpose = Purpose.WARM_UP if self.warming_up else Purpose.STEPS
        lane = (self.shard, self.chain)
        return np.asarray(self.streams.uniforms(purpose, [lane], first, n, width)[0])

    def more_uniforms(self, step: int, page: int, width: int) -> Array:
        """Page 0, 1, … of extra uniforms for a step that has used up its row, shape (width,)."""
        purpose = Purpose.MORE_WARM_UP if self.warming_up else Purpose.MORE_STEPS
        lane = (self.shard, self.chain)
        row = step * _MORE_PAGES + page
        return np.asarray(self.streams.uniforms(purpose, [lane], row, 1, width)[0, 0])

    def keys(self, first: int, n: int) -> NDArray[np.uint32]:
        """Seeds of another generator, one for each step, shape (n, 2)."""
        return np.floor(self.uniforms(first, n, 2) * 2.0**32).astype(np.uint32)


@lru_cache(maxsize=1024)  # several for each realisation of an experiment
def _key(seed: int, realisation: int, purpose: Purpose) -> int:
    low, high = np.random.SeedSequence((seed, realisation, purpose)).generate_state(2, np.uint64)
    return int(low) + (int(high) << 64)


class _Seekable:
    """A Philox generator that can be read from any position."""

    def __init__(self, key: int) -> None:
        self._philox = Philox(key=key)
        self._position = 0

    def seek(self, position: int) -> None:
        self._philox.advance(position - self._position)
        self._position = position

    def read(self, n: int) -> NDArray[np.uint64]:
        self._position += n // _WORDS
        return self._philox.random_raw(n)


def _runs(lanes: Sequence[Lane]) -> Iterator[tuple[int, int]]:
    """Slices of neighbours: (0, 3), (3, 4) for lanes (5, 0), (6, 0), (7, 0), (7, 1)."""
    start = 0
    for i in range(1, len(lanes) + 1):
        neighbour = (lanes[i - 1][0] + 1, lanes[i - 1][1])
        if i == len(lanes) or lanes[i] != neighbour:
            yield start, i
            start = i
