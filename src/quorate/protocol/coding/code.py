"""Gradient codes (§V): sums over all shards from the answers of some of the workers.

Worker k sends Σ_s B_ks v_s. From the answers of a *decodable* set of workers the coordinator finds
Σ_s v_s as Σ_k a_k (answer of k), where a vanishes on the stragglers and aB = 1. No table of
survivor sets is kept: a is computed for the set at hand.

Three constructions, all with r shards a worker and r holders a shard, all robust to any r-1
stragglers:

grouped
    The default. Repetition within groups of r; where r does not divide K, one last group of
    r + (K mod r) workers runs a small code of one of the other kinds. Decodes as soon as
    every group does, usually long before K-r+1 answers have arrived.
reed_solomon
    Over the K-th roots of unity (Raviv et al. 2018, Halbawi et al. 2018), replicas equally spaced.
    Needs any K-r+1 answers. Well conditioned while r is below about 20.
cyclic
    With a random H (Tandon et al. 2017, Algorithm 2), the code the paper cites. Needs any K-r+1
    answers. Rounding errors grow some thousandfold at K = 40 and r = 4, more on unlucky sets.

A code is made of *cells*, sets of workers that decode on their own: one cell for the last two, one
for every group of the first.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd

import numpy as np
from scipy.linalg import block_diag

from quorate._types import Array, BoolArray, CodedArray, IntArray
from quorate._warnings import warn
from quorate.errors import IllConditionedCodeWarning, UndecodableError, require
from quorate.protocol.allocation import check_sizes, worker_groups
from quorate.protocol.coding.cells import (
    Cell,
    Copied,
    ParityChecked,
    Repetition,
    RootsOfUnity,
)

_ROUNDING = 2.2e-16
_TOLERABLE = 1e-8
_LARGE_REDUNDANCY = 20  # from here on roots of unity are worse than a random code
_MANY_WORKERS = 2_000


@dataclass(frozen=True, eq=False)
class GradientCode:
    """A gradient code for K workers and K shards.

    Parameters
    ----------
    name
        Of the construction.
    held
        `held[k]` are the shards of worker k, the non-zeros of row b_k of B: shape (K, r).
    coefficients
        The values there, B_ks, same shape. Complex for Reed-Solomon codes.
    cells
        One after the other they are the workers 0, …, K-1.
    """

    name: str
    held: IntArray
    coefficients: CodedArray
    cells: tuple[tuple[slice, Cell], ...]

    @property
    def n_workers(self) -> int:
        """Number of workers K."""
        return len(self.held)

    @property
    def redundancy(self) -> int:
        """r: any r-1 stragglers are survived."""
        return len(self.held[0])

    @cached_property
    def encoding(self) -> CodedArray:
        """B, shape (K, K)."""
        matrix = np.zeros((self.n_workers, self.n_workers), dtype=self.coefficients.dtype)
        np.put_along_axis(matrix, self.held, self.coefficients, axis=1)
        return matrix

    @cached_property
    def null_checks(self) -> CodedArray:
        """Rows y with yB = 0: answers that obey them came from the same draws."""
        return np.asarray(block_diag(*(cell.null_checks() for _, cell in self.cells)))

    def decodable(self, received: Collection[int]) -> bool:
        """Whether the answers of these workers are enough."""
        answered = self._mask(received)
        return all(cell.decodes(answered[workers]) for workers, cell in self.cells)

    def decoding_vector(self, received: Collection[int]) -> CodedArray:
        """a with aB = 1 that vanishes off `received`, shape (K,).

        Warns where rounding errors come back multiplied beyond use.
        """
        answered = self._mask(received)
        for workers, cell in self.cells:
            if not cell.decodes(answered[workers]):
                n_lacking = max(cell.needed - int(answered[workers].sum()), 1)
                among = range(self.n_workers)[workers]
                raise UndecodableError(frozenset(received), n_lacking, among)
        vector = np.concatenate(
            [cell.decoding_vector(answered[workers]) for workers, cell in self.cells]
        )
        self._warn_if_useless(vector)
        return vector

    def when_decodable(self, answered: Array) -> Array:
        """When answers decode that arrive at these times, shape (..., K): shape (...)."""
        cells = [_when_enough(cell, answered[..., members]) for members, cell in self.cells]
        return np.asarray(np.max(cells, axis=0))

    def cell_of(self, worker: int) -> range:
        """All workers of the cell that has `worker`."""
        workers, _ = self.cells[self.cell_numbers[worker]]
        return range(self.n_workers)[workers]

    @cached_property
    def cell_numbers(self) -> list[int]:
        """The number of each worker's cell."""
        return [number for number, (_, cell) in enumerate(self.cells) for _ in range(cell.size)]

    def parity(self, worker: int, received: Collection[int]) -> CodedArray | None:
        """y with yB = 0 that vanishes off `received` but not at `worker`, one of them.

        The gap between two ways to decode, one without `worker` and one with as few others as it
        takes. None where its cell does not decode without it.
        """
        answered = self._mask(received)
        workers, cell = self.cells[self.cell_numbers[worker]]
        without, with_few = answered[workers].copy(), answered[workers].copy()
        without[worker - workers.start] = False
        if not cell.decodes(without):
            return None
        for other in np.flatnonzero(without):
            with_few[other] = False
            with_few[other] = not cell.decodes(with_few)
        vector = np.zeros(self.n_workers, dtype=self.coefficients.dtype)
        vector[workers] = cell.decoding_vector(without) - cell.decoding_vector(with_few)
        return vector if vector[worker] else None

    def _mask(self, received: Collection[int]) -> BoolArray:
        answered = np.zeros(self.n_workers, dtype=bool)
        answered[list(received)] = True
        return answered

    def amplification(self, vector: CodedArray) -> float:
        """Largest over shards of Σ_k |a_k B_ks|: what a multiplies any mismatch of replicas by."""
        terms = np.abs(vector)[:, None] * self._coefficient_sizes
        return float(np.bincount(self.held.ravel(), terms.ravel()).max())

    @cached_property
    def _coefficient_sizes(self) -> Array:
        return np.abs(self.coefficients)

    def _warn_if_useless(self, vector: CodedArray) -> None:
        amplification = self.amplification(vector)
        if amplification * _ROUNDING > _TOLERABLE:
            warn(
                f"the {self.name} code for {self.n_workers} workers multiplies rounding errors "
                f"by {amplification:.1e} on this set of answers: use the grouped code with a "
                "redundancy that divides the number of workers",
                IllConditionedCodeWarning,
            )

    # Complex codes act on pairs of coordinates, so that an answer has as many floats as a draw.

    def pack(self, vectors: Array) -> CodedArray:
        """Vectors (..., d) as a code's coefficients can act on them."""
        return packed(vectors, self.coefficients)

    def unpack(self, vectors: CodedArray, dim: int) -> Array:
        """Undo `pack`: back to (..., dim)."""
        return np.ascontiguousarray(vectors).view(np.float64)[..., :dim]


def packed(vectors: Array, coefficients: CodedArray) -> CodedArray:
    """Vectors (..., d) as coefficients can act on them: pairs of numbers, if they are complex."""
    if not np.iscomplexobj(coefficients):
        return vectors
    if vectors.shape[-1] % 2:
        vectors = np.concatenate([vectors, np.zeros((*vectors.shape[:-1], 1))], axis=-1)
    return np.ascontiguousarray(vectors).view(np.complex128)


def _when_enough(cell: Cell, answered: Array) -> Array:
    """When a cell has enough different answers."""
    first = answered.reshape(*answered.shape[:-1], cell.n_copies, -1).min(axis=-2)
    return np.asarray(np.partition(first, cell.needed - 1, axis=-1)[..., cell.needed - 1])


def grouped(n_workers: int, redundancy: int) -> GradientCode:
    """Repetition in groups of r; a last group of r + (K mod r) if r does not divide K."""
    check_sizes(n_workers, redundancy)
    sizes = [len(group) for group in worker_groups(n_workers, redundancy)]
    if sizes[-1] < redundancy:
        sizes[-2:] = [redundancy + sizes[-1]]
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    parts = [_group(size, redundancy) for size in sizes]
    return GradientCode(
        name="grouped",
        held=np.concatenate([start + part.held for start, part in zip(starts, parts, strict=True)]),
        coefficients=np.concatenate([part.coefficients for part in parts]),
        cells=tuple(
            (slice(start, start + size), part.cells[0][1])
            for start, size, part in zip(starts, sizes, parts, strict=True)
        ),
    )


def _group(size: int, redundancy: int) -> GradientCode:
    if size > redundancy:
        return _copied(size, redundancy)
    held = np.tile(np.arange(size), (size, 1))
    return GradientCode(
        "repetition", held, np.ones(held.shape), ((slice(0, size), Repetition(size)),)
    )


def _copied(size: int, redundancy: int) -> GradientCode:
    """A code of gcd(size, redundancy) copies of a smaller code, which decodes sooner.

    A shard of the smaller code stands for the sum of the shards that are equal to it modulo m.
    """
    n_copies = gcd(size, redundancy)
    construct = reed_solomon if redundancy // n_copies <= _LARGE_REDUNDANCY else cyclic
    small = construct(size // n_copies, redundancy // n_copies)
    copies = np.arange(n_copies) * small.n_workers
    held = (copies[:, None] + small.held[:, None, :]).reshape(small.n_workers, redundancy)
    cell = Copied(small.cells[0][1], n_copies)
    return GradientCode(
        "copied",
        held=np.tile(held, (n_copies, 1)),
        coefficients=np.tile(small.coefficients, (n_copies, n_copies)),
        cells=((slice(0, size), cell),),
    )


def reed_solomon(n_workers: int, redundancy: int) -> GradientCode:
    """Reed-Solomon code over the K-th roots of unity, the holders of a shard equally spaced.

    Where r divides K such holders form groups, and some sets smaller than K-r+1 would decode too;
    this code does not look for them, since `grouped` does.
    """
    check_sizes(n_workers, redundancy)
    cell = RootsOfUnity(n_workers, redundancy)
    spacing = np.arange(redundancy) * n_workers // redundancy
    held = (np.arange(n_workers)[:, None] - spacing) % n_workers
    coefficients = np.tile(cell.coefficients(spacing), (n_workers, 1))
    return GradientCode("reed-solomon", held, coefficients, ((slice(0, n_workers), cell),))


def cyclic(n_workers: int, redundancy: int, seed: int = 0) -> GradientCode:
    """Worker k holds shards k, …, k+r-1; rows of B lie in the null space of a random H."""
    check_sizes(n_workers, redundancy)
    require(
        n_workers <= _MANY_WORKERS,
        f"The cyclic code costs K³ to set up: {n_workers} workers are too many. Use another code "
        f"above {_MANY_WORKERS} workers.",
    )
    held = (np.arange(n_workers)[:, None] + np.arange(redundancy)) % n_workers
    parity = np.random.default_rng(seed).standard_normal((redundancy - 1, n_workers))
    parity[:, -1] = -parity[:, :-1].sum(axis=1)
    first, rest = parity[:, held[:, 0]].T, parity[:, held[:, 1:]].transpose(1, 0, 2)
    coefficients = np.ones(held.shape)
    if redundancy > 1:
        coefficients[:, 1:] = -np.linalg.solve(rest, first[..., None])[..., 0]
    code = GradientCode("cyclic", held, coefficients, ())
    cell = ParityChecked(_generator(code.encoding, redundancy))
    return GradientCode("cyclic", held, coefficients, ((slice(0, n_workers), cell),))


def _generator(encoding: CodedArray, redundancy: int) -> Array:
    """G of `ParityChecked` for a given B: one a with aB = 1, then B's parity checks."""
    one, *_ = np.linalg.lstsq(encoding.T, np.ones(len(encoding)), rcond=None)
    left_singular = np.linalg.svd(encoding)[0]
    return np.vstack([one, left_singular.T[len(one) - redundancy + 1 :]])


CODES = {"grouped": grouped, "reed-solomon": reed_solomon, "cyclic": cyclic}


@lru_cache(maxsize=16)
def make_code(name: str, n_workers: int, redundancy: int) -> GradientCode:
    """A code by its name."""
    require(name in CODES, f"No code is named {name!r}. Choose one of {', '.join(CODES)}.")
    return CODES[name](n_workers, redundancy)
