"""Agreement of replicas: whether the holders of a shard drew the same, and who did not.

Common randomness can break: another processor, another build of a library, a bad memory cell. Then
chains diverge, and a sum decoded from both is wrong without any sign. So a worker sends, beside the
coded sum Σ_s B_ks y_s, the inner product cₛ = u·y_s for each of its shards, where u is a random
vector that all know from the index of the draw. Three things must then hold, up to rounding:

- cₛ is the same from all holders of s;
- u·(the coded sum) = Σ_s B_ks cₛ, of one worker alone;
- the coded sums obey the parity checks of the code, once there are more of them than it takes to
  decode.

A worker that breaks the second is named at once. Workers that break the others are found from the
graph of contradictions: the smallest set of workers that explains all of them, if there is just one
such set. Two holders alone can only be named together.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, CodedArray, IntArray
from quorate._warnings import warn
from quorate.errors import QuorateWarning, named_workers, require
from quorate.numerics.streams import Purpose, Streams
from quorate.protocol.allocation import allocation_of
from quorate.protocol.coding.code import GradientCode
from quorate.samplers.protocol import Sampler

_TOLERANCE = 1e-9  # relative to the size of what was added up
_MOST_CULPRITS = 3
_DRAWS, _ONCE = 0, 1  # lanes of the shared vectors


def check_determinism(sampler: Sampler) -> None:
    """Refuse samplers whose draws differ between holders of a shard; warn of those that may."""
    require(
        sampler.determinism != "none",
        "Coded draws need workers that draw the same bits, which the sampler "
        f"{sampler.name!r} does not promise. Use 'ellipse', or scheme='adaptive'.",
    )
    if sampler.determinism == "pinned":
        warn(
            f"The sampler {sampler.name!r} draws the same bits only on workers with the same "
            "library versions, instruction set and threads, which coded draws need. Make sure that "
            "workers are alike and keep `checked` on, or use the sampler 'ellipse'.",
            QuorateWarning,
        )


@dataclass(frozen=True)
class SharedVectors:
    """The vectors u, from an address: ±1 times a number between ½ and 1½."""

    seed: int = 0

    def of_draws(self, first: int, n: int, width: int) -> Array:
        """Vectors of draws `first` to `first + n - 1`, shape (n, width)."""
        return self._vectors(_DRAWS, first, n, width)

    def of_checkpoint(self, number: int, width: int) -> Array:
        """Vector of the data sent once, at a checkpoint, shape (1, width)."""
        return self._vectors(_ONCE, number, 1, width)

    def _vectors(self, lane: int, first: int, n: int, width: int) -> Array:
        streams = Streams(self.seed)
        uniforms = streams.uniforms(Purpose.CHECKS, [(0, lane)], first, n, width)[0]
        centred = 2 * uniforms - 1
        return np.asarray(centred + np.copysign(0.5, centred))


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows that a worker sends, with what is sent to check them.

    Parameters
    ----------
    kind
        What the rows are of. Rows of the same kind and index from several workers belong together.
    first
        Index of the first row.
    coded
        Σ_s B_ks y_s for each row, shape (n, width).
    products
        cₛ for each row and each shard held, shape (n, r).
    vectors
        u for each row, shape (n, width).
    draws
        The draw that each row came with, which a worker is in quarantine from if the row is wrong.
    """

    kind: str
    first: int
    coded: CodedArray
    products: CodedArray
    vectors: Array
    draws: IntArray


class ReplicaChecks:
    """Compares the answers of workers.

    Attributes
    ----------
    quarantined
        For each worker found to be wrong, the first draw from which it is not trusted.
    reasons
        Why, in words.
    disputed
        For sets of workers that contradict each other and cannot be told apart: the first draw at
        which they do.
    """

    def __init__(self, code: GradientCode) -> None:
        self.quarantined: dict[int, int] = {}
        self.reasons: dict[int, str] = {}
        self.disputed: dict[tuple[int, ...], int] = {}
        self._code = code
        self._allocation = allocation_of(code.held.tolist())
        self._partners: dict[int, list[tuple[int, IntArray, IntArray]]] = {}
        self._products: dict[str, dict[int, _Products]] = {}
        self._contradictions: dict[tuple[int, int], int] = {}  # of two workers: the first draw
        self._parity_vectors: dict[tuple[int, ...], CodedArray | None] = {}

    def look(self, worker: int, part: Part) -> None:
        """Compare the rows of a worker with themselves and with all received before."""
        if worker in self.quarantined or not len(part.draws):
            return
        wrong = self._contradicts_itself(worker, part)
        if wrong.any():
            draw = int(part.draws[wrong.argmax()])
            self._quarantine(worker, draw, "what it sends does not fit together")
            return
        known = self._products.setdefault(part.kind, {})
        if worker not in known:
            known[worker] = _Products(part.first, part.products)
        else:
            known[worker].append(part.products)
        for partner, columns, partner_columns in self._partners_of(worker):
            if partner in known and partner not in self.quarantined:
                mine, theirs = known[worker], known[partner]
                differs = self._differ(part, mine, columns, theirs, partner_columns)
                if differs.any():
                    self._contradict(worker, partner, int(part.draws[differs.argmax()]))
        self._find_out()

    def _partners_of(self, worker: int) -> list[tuple[int, IntArray, IntArray]]:
        """Who shares shards with a worker, and at which of its own and of their columns."""
        if worker not in self._partners:
            held, holders_of = self._code.held, self._allocation.holders_of
            others = {k for shard in held[worker].tolist() for k in holders_of(shard)}
            shared = {
                k: np.intersect1d(held[worker], held[k], return_indices=True)
                for k in sorted(others - {worker})
            }
            self._partners[worker] = [(k, mine, theirs) for k, (_, mine, theirs) in shared.items()]
        return self._partners[worker]

    def parity(self, worker: int, draw: int, rows: dict[int, CodedArray]) -> None:
        """Hold a row against those of others that came before, by the parity checks of the code.

        Again without each of those who are in a dispute, so as to find who they differ from.
        """
        cell = self._code.cell_of(worker)
        trusted = [k for k in cell if k in rows and self.quarantined.get(k, draw + 1) > draw]
        if worker not in trusted:
            return
        self._check_parity(worker, draw, rows, trusted)
        if self._contradictions:
            parties = {k for pair in self._contradictions for k in pair}
            for party in sorted(parties.intersection(trusted) - {worker}):
                self._check_parity(worker, draw, rows, [k for k in trusted if k != party])
            self._find_out()

    def _check_parity(
        self, worker: int, draw: int, rows: dict[int, CodedArray], among: list[int]
    ) -> None:
        key = worker, *among
        if key not in self._parity_vectors:
            self._parity_vectors[key] = self._code.parity(worker, among)
        vector = self._parity_vectors[key]
        if vector is None:
            return
        involved = [k for k in among if vector[k]]
        terms = np.array([vector[k] * rows[k] for k in involved])
        if np.abs(terms.sum(axis=0)).max() <= _TOLERANCE * np.abs(terms).sum(axis=0).max():
            return
        if len(involved) == 2:
            self._contradict(involved[0], involved[1], draw)
        elif not any(set(pair) <= set(involved) for pair in self._contradictions):
            self.disputed.setdefault(tuple(involved), draw)

    def _contradicts_itself(self, worker: int, part: Part) -> NDArray[np.bool_]:
        """For each row, whether u·(coded sum) is not Σ_s B_ks cₛ."""
        left = part.coded * part.vectors
        right = part.products * self._code.coefficients[worker]
        size = np.abs(left).sum(axis=1) + np.abs(right).sum(axis=1)
        gap = np.abs(left.sum(axis=1) - right.sum(axis=1))
        return np.asarray(~(gap <= _TOLERANCE * size))  # so that NaN is wrong too

    def _differ(
        self,
        part: Part,
        mine: "_Products",
        columns: IntArray,
        theirs: "_Products",
        their_columns: IntArray,
    ) -> NDArray[np.bool_]:
        """For each row, whether products with a shard that two workers hold are not the same.

        An inner product may vanish where its terms do not, so it is held against the largest one
        of the shard; of either worker, whichever has the smaller, so that none can raise the bar.
        """
        first, end = part.first, part.first + len(part.products)
        low, high = max(first, theirs.first), min(end, theirs.end)
        differs = np.zeros(len(part.products), dtype=bool)
        if low < high:
            gaps = mine.rows(low, high)[:, columns] - theirs.rows(low, high)[:, their_columns]
            size = np.minimum(mine.largest[columns], theirs.largest[their_columns])
            differs[low - first : high - first] = (np.abs(gaps) > _TOLERANCE * size).any(axis=1)
        return differs

    def _contradict(self, worker: int, other: int, draw: int) -> None:
        pair = min(worker, other), max(worker, other)
        self._contradictions[pair] = min(draw, self._contradictions.get(pair, draw))

    def _find_out(self) -> None:
        """Quarantine the workers that explain the contradictions, if they are unique."""
        first_draws = dict(self._contradictions)
        for pairs in _components(list(first_draws)):
            workers = sorted({worker for pair in pairs for worker in pair})
            culprits = _fewest_that_explain(pairs, workers)
            if culprits is None:
                known = self.disputed.items()
                self.disputed = {who: d for who, d in known if not set(who) <= set(workers)}
                self.disputed[tuple(workers)] = min(first_draws[pair] for pair in pairs)
                continue
            for worker in culprits:
                against = [p for p in pairs if worker in p and not set(p) <= set(culprits)]
                draw = min(first_draws[pair] for pair in against)
                others = sorted({k for pair in against for k in pair} - {worker})
                self._quarantine(
                    worker, draw, f"its draws are not those of {named_workers(others)}"
                )

    def _quarantine(self, worker: int, draw: int, why: str) -> None:
        self.quarantined[worker] = draw
        self.reasons[worker] = f"from draw {draw} on: {why}"
        pairs = self._contradictions.items()
        self._contradictions = {pair: draw for pair, draw in pairs if worker not in pair}
        self.disputed = {who: draw for who, draw in self.disputed.items() if worker not in who}


class _Products:
    """Inner products that one worker has sent of one kind, a growing array (n, r)."""

    def __init__(self, first: int, products: CodedArray) -> None:
        self.first = first
        self._products = products
        self.end = first + len(products)
        self.largest = np.abs(products).max(axis=0)

    def append(self, products: CodedArray) -> None:
        n_known, n = self.end - self.first, len(products)
        if n_known + n > len(self._products):
            grown = np.empty((2 * n_known + n, products.shape[1]), dtype=products.dtype)
            grown[:n_known] = self._products[:n_known]
            self._products = grown
        self._products[n_known : n_known + n] = products
        self.end += n
        self.largest = np.maximum(self.largest, np.abs(products).max(axis=0))

    def rows(self, first: int, end: int) -> CodedArray:
        return self._products[first - self.first : end - self.first]


def _components(pairs: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Connected components of a graph of pairs."""
    components: list[list[tuple[int, int]]] = []
    for pair in pairs:
        touching = [part for part in components if any(set(pair) & set(other) for other in part)]
        rest = [part for part in components if part not in touching]
        components = [*rest, [pair, *(other for part in touching for other in part)]]
    return components


def _fewest_that_explain(
    pairs: list[tuple[int, int]], workers: list[int]
) -> tuple[int, ...] | None:
    """The smallest set with a member in every pair; None if several are, or none is small."""
    for size in range(1, _MOST_CULPRITS + 1):
        sets = [s for s in combinations(workers, size) if all(set(pair) & set(s) for pair in pairs)]
        if sets:
            return sets[0] if len(sets) == 1 else None
    return None
