"""Coded CMC (C-CMC): Algorithm 3.

Workers share their randomness, weigh each draw by the precision of its shard, and send one coded
vector for all their shards. The coordinator decodes the sum over all shards from a decodable set
of answers, and estimates the sum of precisions it has to divide by from the decoded sums.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, CodedArray
from quorate.errors import require
from quorate.merging.fit import Fit
from quorate.numerics.linalg import add_ridge, check_ridge, spd_solve
from quorate.numerics.moments import Moments, running_covariances
from quorate.protocol.allocation import allocation_of, shards_each
from quorate.protocol.coding.code import CODES, GradientCode, make_code
from quorate.protocol.coding.sums import DecodedSums
from quorate.protocol.ledger import WEIGHTS
from quorate.protocol.looks import draws_seen
from quorate.protocol.messages import NOTHING, Arrays, Block, Task
from quorate.protocol.scheme import NOBODY, DrawCounts, Looks, Processed, Scheme, Setup
from quorate.protocol.schemes.exact_sums import ExactCodedCMC
from quorate.protocol.schemes.exact_sums_worker import shrunk
from quorate.protocol.sums import CodedSums
from quorate.protocol.task_numbers import BatchCounter
from quorate.protocol.times import Outcomes, Realisations
from quorate.protocol.times.batches import coded_times

PRECISIONS = ("exact", "estimated")
_RECENT = 64  # sets of workers whose decoding vectors are kept: often the same ones are late
_SENT_AGAIN = 4  # exact sums that are checked: about so many vectors for one


class SendCoded:
    """At worker k, lines 9-13: estimate Ĉ_{k,s}, weigh by its inverse, encode."""

    def __init__(self, code: GradientCode, cov_ridge: float) -> None:
        self.code = code
        self.cov_ridge = cov_ridge

    def start(self, fits: Sequence[Fit | None]) -> Arrays:
        """No draws yet. Algorithm 3 does not use fits."""
        return NOTHING

    def process(self, draws: Array, state: Arrays) -> tuple[Processed, Arrays]:
        """(Ĉ_s^l)⁻¹ θ_s^l, where Ĉ_s^l of eq. (11) knows the first l draws of the shard."""
        before = Moments(int(state["count"]), state["mean"], state["scatter"]) if state else None
        covs, after = running_covariances(draws, before)
        covs += self.cov_ridge * np.eye(draws.shape[-1])
        weighted = spd_solve(covs, draws[..., None])[..., 0]
        moments = {"count": np.array(after.count), "mean": after.mean, "scatter": after.scatter}
        return Processed(self.code.pack(weighted)), moments

    def encode(self, worker: int, processed: Processed) -> tuple[CodedArray, Arrays]:
        """θ̃_k^l of eq. (12), shape (n, width)."""
        n_held, n, width = processed.vectors.shape
        coded = self.code.coefficients[worker] @ processed.vectors.reshape(n_held, n * width)
        return np.asarray(coded.reshape(n, width)), NOTHING

    def payload_shapes(self, n_shards: int, dim: int) -> Collection[tuple[int, ...]]:
        return [self.code.pack(np.zeros(dim)).shape]


class _Answers:
    """Answers to one draw, and how many more each cell needs at least."""

    __slots__ = ("missing", "n_cells_missing", "payloads", "workers")

    def __init__(self, needed: Sequence[int]) -> None:
        self.workers: list[int] = []
        self.payloads: list[CodedArray] = []
        self.missing = list(needed)
        self.n_cells_missing = len(needed)  # cells that lack any

    def add(self, worker: int, cell: int, payload: CodedArray) -> None:
        """Add an answer."""
        self.workers.append(worker)
        self.payloads.append(payload)
        self.missing[cell] -= 1
        if not self.missing[cell]:
            self.n_cells_missing -= 1


class CodedCMC:
    """A run of Algorithm 3.

    Parameters
    ----------
    code
        A gradient code, B with all its a_j.
    dim
        d.
    cov_ridge
        σ² of eq. (11b), at the workers.
    precision_ridge
        σ² added to D̂^l of eq. (14), at the server. Its units are the inverse of `cov_ridge`'s.
    """

    def __init__(
        self, code: GradientCode, dim: int, cov_ridge: float, precision_ridge: float
    ) -> None:
        check_ridge("cov_ridge", cov_ridge)
        check_ridge("precision_ridge", precision_ridge)
        self.code = code
        self.dim = dim
        self.precision_ridge = precision_ridge
        # Data allocation: shard s to worker k where B_ks is not zero
        self.allocation = allocation_of(code.held.tolist())
        self.worker_side = SendCoded(code, cov_ridge)
        self.n_complete = 0
        self._n_answers_used = 0
        self._worker_of_block: list[int] = []
        self._n_answers_of_block: list[int] = []
        self._answers: list[_Answers] = []  # to each draw, until it can be decoded
        self._decoded: list[CodedArray] = []
        self._decoding_vector = lru_cache(_RECENT)(code.decoding_vector)
        self._cell_of = code.cell_numbers
        self._needed = [cell.needed for _, cell in code.cells]
        self._batches = BatchCounter(self.allocation)
        self.received = DecodedSums(self)

    quarantined = NOBODY
    shares_starts = False

    # At worker k

    def chain_of(self, worker: int, shard: int) -> int:
        """Chain 0 for every worker, so that all holders share their randomness."""
        return 0

    # At the server

    def next_task(self, worker: int, n_draws: int | None) -> Task | None:
        return self._batches.up_to(n_draws, worker, chain=0)

    def receive(self, block: Block) -> int:
        """Store the answers; late ones, to draws decoded already, are only counted.

        Workers answer draws in order, so draws become decodable in order.
        """
        worker, payload, first = block.task.worker, block.payload, block.first_draw
        n_draws = len(payload)
        self._worker_of_block.append(worker)
        self._n_answers_of_block.append(n_draws)
        self._batches.n_received[worker] += n_draws
        cell = self._cell_of[worker]
        for draw in range(max(first, self.n_complete), first + n_draws):
            if draw == len(self._answers):
                self._answers.append(_Answers(self._needed))
            answers = self._answers[draw]
            row = payload if n_draws == 1 else payload[draw - first : draw - first + 1]
            answers.add(worker, cell, row)
            if not answers.n_cells_missing and self.code.decodable(answers.workers):
                self.n_complete = draw + 1
        return self.n_complete

    def take_back(self, worker: int) -> None:
        self._batches.take_back(worker)

    def out_of_reach(self, n_draws: int, alive: Collection[int]) -> tuple[int, ...]:
        """All shards or none: a coded sum has all of them in it, or does not decode."""
        last = n_draws - 1
        answered = self._answers[last].workers if last < len(self._answers) else []
        reached = n_draws <= self.n_complete or self.code.decodable({*alive, *answered})
        return () if reached else tuple(range(self.code.n_workers))

    def precision_weighted_sums(self) -> Array:
        """φ^1, …, φ^L(t) of eq. (13), decoded: shape (L(t), d)."""
        while len(self._decoded) < self.n_complete:
            self._decode_next()
        if not self._decoded:
            return np.empty((0, self.dim))
        return self.code.unpack(np.array(self._decoded), self.dim)

    def _decode_next(self) -> None:
        draw = len(self._decoded)
        workers, payloads = self._answers[draw].workers, self._answers[draw].payloads
        vector = self._decoding_vector(frozenset(workers))[workers]
        self._decoded.append(vector @ np.concatenate(payloads))
        payloads.clear()
        self._n_answers_used += int(np.count_nonzero(vector))

    def leave_out(self, shards: Collection[int]) -> int:
        """Nothing: a coded sum has all shards in it, or cannot be decoded."""
        return self.n_complete

    def looks(self, blocks: NDArray[np.bool_]) -> Looks:
        """A draw never changes after its release, so the last look shows all earlier ones."""
        sizes = self._n_answers_of_block
        n_answers = draws_seen(blocks, self._worker_of_block, sizes, self.code.n_workers)
        counts = -self.code.when_decodable(-n_answers.astype(float))
        draws = self.global_draws()
        is_there = np.arange(len(draws)) < counts[:, None]
        return Looks(np.where(is_there[..., None], draws, 0.0), counts.astype(np.int64))

    def global_draws(self) -> Array:
        """θ^l = (σ²I + D̂^l)⁻¹ φ^l, where D̂^l of eq. (14) knows the first l of φ.

        A draw keeps the estimate of the moment it was released, as in Algorithm 3.
        """
        phi = self.precision_weighted_sums()
        if not len(phi):
            return phi
        precision_sum_estimates, _ = running_covariances(phi)
        ridged = add_ridge(precision_sum_estimates, self.precision_ridge)
        return spd_solve(ridged, phi[..., None])[..., 0]

    def draw_counts(self) -> DrawCounts:
        """A draw is used if its worker's answer has a part in a decoded sum."""
        self.precision_weighted_sums()
        n_shards, n_answers = self.code.redundancy, sum(self._n_answers_of_block)
        return DrawCounts(n_answers * n_shards, self._n_answers_used * n_shards)


@dataclass(frozen=True)
class Coded:
    """C-CMC (Algorithm 3): workers send one coded vector for all their shards.

    Parameters
    ----------
    redundancy
        r, by default 2, or 1 for one worker.
    code
        Gradient code: grouped, reed-solomon or cyclic.
    precision
        Sum of precisions: exact, decoded like the draws, or estimated from decoded sums as in the
        paper. See `quorate.protocol.schemes.exact_sums`.
    checked
        Compare the answers of the holders of a shard. The default with exact precision.
    weights
        Source of the weights: draws, or shrunk towards the fits of warm-up. The default is shrunk
        unless there is a ridge.
    cov_ridge
        Ridge σ² on every covariance estimate, with weights from draws. Estimated precisions need
        one.
    precision_ridge
        Ridge σ² on D̂ of estimated precisions. By default K / `cov_ridge`, right for the first draw.
    floor
        Draws of every shard before the first release, with exact precision.
    """

    redundancy: int | None = None
    code: str = field(default="grouped", metadata={"metavar": "|".join(CODES)})
    precision: str = field(default="exact", metadata={"metavar": "|".join(PRECISIONS)})
    checked: bool | None = None
    weights: str | None = None
    cov_ridge: float = 0.0
    precision_ridge: float | None = None
    floor: int | None = None

    name: ClassVar[str] = "coded"
    label: ClassVar[str] = "C-CMC"
    colour: ClassVar[str] = "#d55e00"
    published: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"precision": "estimated", "weights": "draws"}
    )
    needs_common_randomness: ClassVar[bool] = True
    can_leave_out: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_ridge("cov_ridge", self.cov_ridge)
        require(isinstance(self.code, str), f"code must be the name of a code, not {self.code!r}.")
        require(
            self.weights in (None, *WEIGHTS),
            f"No weights {self.weights!r}. Choose {' or '.join(WEIGHTS)}.",
        )
        require(
            self.precision in PRECISIONS,
            f"No precision {self.precision!r}. Choose {' or '.join(PRECISIONS)}.",
        )
        require(
            self.precision == "exact" or not self.checked,
            "Holders of a shard are compared with precision='exact' only. Leave out `checked`.",
        )
        require(
            self.floor is None or (isinstance(self.floor, int) and self.floor >= 1),
            f"floor must be a whole number, at least 1, not {self.floor!r}.",
        )
        if self.precision_ridge is not None:
            check_ridge("precision_ridge", self.precision_ridge)

    def shards_per_worker(self, n_workers: int) -> int:
        return shards_each(n_workers, self.redundancy)

    def survives(self, n_workers: int) -> int:
        return self.shards_per_worker(n_workers) - 1

    def start(self, setup: Setup) -> Scheme:
        code = make_code(self.code, setup.n_workers, self.shards_per_worker(setup.n_workers))
        if self.precision == "exact":
            is_shrunk = self.weights == "shrunk" or (self.weights is None and not self.cov_ridge)
            return ExactCodedCMC(
                code,
                setup.dim,
                self.cov_ridge,
                floor=self.floor,
                last=setup.n_draws,
                checked=self.checked is not False,
                estimate=shrunk if is_shrunk else None,
            )
        require(
            self.cov_ridge > 0,
            "Estimated precisions need `cov_ridge`, in units of the posterior's variances: say, a "
            "hundredth of them.",
        )
        ridge = self.precision_ridge
        if ridge is None:
            ridge = setup.n_workers / self.cov_ridge
        return CodedCMC(code, setup.dim, self.cov_ridge, ridge)

    def sums(self, n_workers: int, seed: int) -> CodedSums:
        return CodedSums(make_code(self.code, n_workers, self.shards_per_worker(n_workers)))

    def finish_times(self, realisations: Realisations) -> Outcomes:
        n_workers = realisations.work.n_workers
        code = make_code(self.code, n_workers, self.shards_per_worker(n_workers))
        times, n_vectors = coded_times(code, realisations)
        return Outcomes(times, n_vectors * (_SENT_AGAIN if self.precision == "exact" else 1))
