"""Coded CMC with weights that sum to I exactly, and answers that are checked on request.

Algorithm 3 with three changes. Weights are renewed at *checkpoints*, numbers of draws that all
workers know beforehand. Workers send Σ_s B_ks vec(Ĉ_s⁻¹) there, so the coordinator decodes the sum
of precisions that it divides by, where Algorithm 3 estimates it. At a checkpoint all past draws are
sent again with the new weights, so that early draws do not keep early weights. Nothing is sent
before the first checkpoint, where covariances of draws would be mostly noise.

What a worker sends at a checkpoint is in the block of the last draw before it: answers that decode
that draw decode the checkpoint too, and no straggler is waited for.
"""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, CodedArray
from quorate.errors import require
from quorate.numerics.linalg import check_ridge, spd_solve
from quorate.numerics.named_arrays import part, parts
from quorate.protocol.allocation import allocation_of
from quorate.protocol.coding.agreement import Part, ReplicaChecks, SharedVectors
from quorate.protocol.coding.code import GradientCode
from quorate.protocol.coding.decoder import Answers
from quorate.protocol.coding.sums import DecodedSums
from quorate.protocol.messages import Block, Task
from quorate.protocol.scheme import DrawCounts
from quorate.protocol.schemes.exact_sums_worker import (
    CHECKPOINTS,
    Checkpoints,
    DrawsOrFit,
    Estimate,
    SendExact,
    default_floor,
)
from quorate.protocol.task_numbers import BatchCounter


class ExactCodedCMC:
    """C-CMC with decoded precisions.

    Parameters
    ----------
    code
        A gradient code, B with all its a_j.
    dim
        d.
    cov_ridge
        σ² on Ĉ of draws.
    floor
        Draws of every shard before the first release, unless all have a fit: `default_floor`.
    last
        The number of global draws that will be asked for, if known: weights are renewed there.
    checked
        Whether workers send what it takes to compare the holders of a shard.
    estimate
        What a shard's draws are shifted by, and its Ĉ, from its draws and its fit, if it has one:
        by default `DrawsOrFit`.

    Attributes
    ----------
    n_complete
        L(t).
    checks
        What was found by comparing workers; None if they are not compared.
    """

    def __init__(
        self,
        code: GradientCode,
        dim: int,
        cov_ridge: float = 0.0,
        *,
        floor: int | None = None,
        last: int | None = None,
        checked: bool = False,
        estimate: Estimate | None = None,
    ) -> None:
        check_ridge("cov_ridge", cov_ridge)
        floor = default_floor(dim) if floor is None else floor
        require(floor >= 1, f"floor must be at least 1, not {floor}.")
        self.code = code
        self.dim = dim
        self.floor = floor
        # Data allocation: shard s to worker k where B_ks is not zero
        self.allocation = allocation_of(code.held.tolist())
        self._shared = SharedVectors() if checked else None
        self.worker_side = SendExact(
            code,
            Checkpoints(floor, last),
            estimate or DrawsOrFit(floor, cov_ridge),
            self._shared,
        )
        self.n_complete = 0
        self.checks = ReplicaChecks(code) if checked else None
        self._checkpoint = 0  # the newest that has decoded
        self._draws = Answers(code, keep=checked)
        self._checkpoints = Answers(code, keep=checked)
        self._first_sent: dict[int, int] = {}  # by worker; earlier draws come with a checkpoint
        self._n_answers = 0
        self._taken_out: set[int] = set()
        self._batches = BatchCounter(self.allocation)
        self.received = DecodedSums(self)

    shares_starts = False

    # At worker k

    def chain_of(self, worker: int, shard: int) -> int:
        """Chain 0 for every worker, so that all holders share their randomness."""
        return 0

    # At the server

    def next_task(self, worker: int, n_draws: int | None) -> Task | None:
        """Next task of a worker, up to at least `floor` draws; None for workers in quarantine."""
        if worker in self.quarantined:
            return None
        n_wanted = None if n_draws is None else max(n_draws, self.floor)
        return self._batches.up_to(n_wanted, worker, 0)

    def receive(self, block: Block) -> int:
        """Take in what a worker sends, up to the draw from which it is in quarantine.

        A worker sends a checkpoint before any draw with its weights, so all draws decoded since the
        newest decoded checkpoint have the weights of that one.
        """
        worker, n_draws = block.task.worker, len(block.payload)
        self._n_answers += n_draws
        self._batches.n_received[worker] += n_draws
        numbers = sorted(map(int, parts(block.extras, CHECKPOINTS)))
        if numbers:
            self._first_sent.setdefault(worker, numbers[0])
        end = block.first_draw + n_draws
        first = max(block.first_draw, self._first_sent.get(worker, end))
        if self.checks is not None:
            for part in self._parts(block, numbers, first):
                self.checks.look(worker, part)
            end = min(end, self.checks.quarantined.get(worker, end))
        for number in numbers:
            if number <= end:
                self._receive_checkpoint(block, number)
        for draw in range(first, end):
            self._receive_draw(block, draw)
        self._take_out_quarantined()
        return self.n_complete

    def _receive_checkpoint(self, block: Block, number: int) -> None:
        if self.checks is None and number < self._checkpoint:
            return
        sent = part(block.extras, CHECKPOINTS, number)
        row = np.concatenate([sent["precisions"].ravel(), sent["again"].ravel()])
        has_decoded = self._checkpoints.add(number, block.task.worker, row)
        if has_decoded and number > self._checkpoint:
            self._checkpoint = number
            self.n_complete = max(self.n_complete, number)
            if self.checks is None:
                self._checkpoints.forget(number)
                self._draws.forget(number)

    def _receive_draw(self, block: Block, draw: int) -> None:
        if self.checks is None and draw < self._checkpoint:
            return
        row = self._rows(block)[draw - block.first_draw]
        if self._draws.add(draw, block.task.worker, row):
            self.n_complete = max(self.n_complete, draw + 1)
        if self.checks is not None:
            self.checks.parity(block.task.worker, draw, self._draws.rows(draw))

    def _rows(self, block: Block) -> CodedArray:
        """The payload; a payload of width 0 stands for zeros."""
        empty = not block.payload.shape[1]
        return self.code.pack(np.zeros((len(block.payload), self.dim))) if empty else block.payload

    def _parts(self, block: Block, numbers: Sequence[int], first: int) -> Iterator[Part]:
        """The parts of a block that can be checked."""
        assert self._shared is not None
        extras, skipped = block.extras, first - block.first_draw
        coded = self._rows(block)[skipped:]
        products = extras.get("products", np.zeros((len(block.payload), self.code.redundancy)))
        vectors = self._shared.of_draws(first, *coded.shape)
        indices = first + np.arange(len(coded))
        yield Part("draws", first, coded, products[skipped:], vectors, indices)
        for number in numbers:
            for name in ("precisions", "again"):
                sent = part(extras, CHECKPOINTS, number)
                coded, products = sent[name], sent[f"{name}_products"]
                if name == "again":
                    vectors = self._shared.of_draws(0, *coded.shape)
                else:
                    vectors = self._shared.of_checkpoint(number, coded.shape[1])
                yield Part(
                    f"{name}/{number}", 0, coded, products, vectors, np.full(len(coded), number - 1)
                )

    def _take_out_quarantined(self) -> None:
        """Decode again without quarantined workers."""
        if self.checks is None or len(self.checks.quarantined) == len(self._taken_out):
            return
        for worker, draw in self.checks.quarantined.items():
            if worker not in self._taken_out:
                self._taken_out.add(worker)
                self._draws.take_out(worker, draw)
                self._checkpoints.take_out(worker, draw + 1)

    @property
    def quarantined(self) -> dict[int, str]:
        """Workers found to send wrong answers, with the reasons."""
        return self.checks.reasons if self.checks is not None else {}

    def take_back(self, worker: int) -> None:
        self._batches.take_back(worker)

    def out_of_reach(self, n_draws: int, alive: Collection[int]) -> tuple[int, ...]:
        """All shards or none: a coded sum has all of them in it, or does not decode."""
        n_wanted = max(n_draws, self.floor)
        believed = set(alive) - self.quarantined.keys()
        answered = self._draws.answered(n_wanted - 1)
        reached = n_draws <= self.n_complete or self.code.decodable({*believed, *answered})
        return () if reached else tuple(range(self.code.n_workers))

    def precision_sum(self) -> Array:
        """ΣĈ_s⁻¹ of the newest decoded checkpoint, shape (d, d)."""
        precision = np.empty((self.dim, self.dim))
        entries, _ = self._decoded_checkpoint()
        rows, columns = np.triu_indices(self.dim)
        precision[rows, columns] = precision[columns, rows] = entries
        return precision

    def precision_weighted_sums(self) -> Array:
        """φ^1, …, φ^L(t) of eq. (13), all with weights of the newest checkpoint: (L(t), d)."""
        if not self.n_complete:
            return np.empty((0, self.dim))
        _, again = self._decoded_checkpoint()
        draws = range(self._checkpoint, self.n_complete)
        since = [self.code.unpack(self._draws.total(draw), self.dim) for draw in draws]
        return np.concatenate([again, np.reshape(since, (-1, self.dim))])

    def _decoded_checkpoint(self) -> tuple[Array, Array]:
        total = self._checkpoints.total(self._checkpoint)
        n_entries = self.dim * (self.dim + 1) // 2
        width = len(self.code.pack(np.zeros(n_entries)))
        again = total[width:].reshape(self._checkpoint, -1)
        return self.code.unpack(total[:width], n_entries), self.code.unpack(again, self.dim)

    def leave_out(self, shards: Collection[int]) -> int:
        """Nothing: a coded sum has all shards in it, or cannot be decoded."""
        return self.n_complete

    def looks(self, blocks: NDArray[np.bool_]) -> None:
        """No short cut: all draws change at every checkpoint."""

    def global_draws(self) -> Array:
        """θ^l = (ΣĈ_s⁻¹)⁻¹ φ^l: weights that sum to I, the newest for all draws."""
        phi = self.precision_weighted_sums()
        if not len(phi):
            return phi
        precision = self.precision_sum()
        sds = np.sqrt(np.diag(precision))
        scaled = spd_solve(precision / (sds[:, None] * sds), phi.T / sds[:, None])
        return np.asarray((scaled / sds[:, None]).T)

    def draw_counts(self) -> DrawCounts:
        """A draw is used if its worker's answer has a part in a decoded sum."""
        used = 0
        if self.n_complete:
            used = self._checkpoint * self._checkpoints.n_used(self._checkpoint)
            used += sum(map(self._draws.n_used, range(self._checkpoint, self.n_complete)))
        n_shards = self.code.redundancy
        return DrawCounts(self._n_answers * n_shards, used * n_shards)
