"""Exact draws as a scheme: passes over the posterior, and the draws of the ensemble they make."""

from array import array
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array
from quorate.merging.fit import Fit
from quorate.numerics.named_arrays import AnyArray
from quorate.passes.inquiry import Inquiry
from quorate.passes.kept import State
from quorate.protocol.inquirer import SURVEYS, Answered
from quorate.protocol.messages import Arrays
from quorate.protocol.passes import PassSchedule
from quorate.protocol.scheme import DrawCounts
from quorate.protocol.schemes.cmc import SendDraws
from quorate.protocol.sums import Sums
from quorate.trust.shards import Estimate

_MADE = "made"
_OF_A_PASS = 256  # work of a replay besides the points of a pass, each of which counts as 1


class EnsembleDraws:
    """The draws of an ensemble, as the readers of a run see them."""

    excluded: tuple[int, ...] = ()

    def __init__(self, schedule: PassSchedule, inquiry: Inquiry) -> None:
        self._schedule = schedule
        self._inquiry = inquiry

    @property
    def n_complete(self) -> int:
        return self._schedule.n_complete

    @property
    def n_offered(self) -> int:
        return self._schedule.n_complete

    @property
    def n_chains(self) -> int:
        return max(self._inquiry.n_chains, 1)

    def global_draws(self) -> Array:
        return self._inquiry.draws()

    def looks(self, blocks: NDArray[np.bool_]) -> None:
        """None: there is no short cut."""

    def draw_counts(self) -> DrawCounts:
        """Points at which single shards were evaluated, because nothing is drawn from them."""
        return DrawCounts(self._schedule.n_points, self._schedule.n_points_used)

    def shard_draws(self) -> list[Array]:
        return []

    def weights(self) -> None:
        """None: nothing is merged."""

    def add_factor(self, draws: Array, fit: Fit | None) -> None:
        """Nothing: no shard is ever left out."""


class _Ahead:
    """A state of chains that have just started, after answers that are counted on the way."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.next_questions: dict[int, int] = {}  # by lane, once the chains have started

    def begin(self, inquiry: Inquiry) -> bool:
        """Begin to count, if it has not begun; False if the state is of other chains."""
        if self.next_questions:
            return True
        self.next_questions = {lane: asked.number for lane, asked in inquiry.open.items()}
        return inquiry.is_of(self.state)

    def is_next(self, answered: Answered) -> bool:
        """Whether an answer is the next of its lane, which is counted."""
        is_next = self.next_questions.get(answered.lane) == answered.number
        if is_next:
            self.next_questions[answered.lane] += 1
        return is_next


class ExactScheme(PassSchedule):
    """One exact run, with any scheme's way to sum over shards."""

    shares_starts = False
    worker_side = SendDraws()  # of no use: workers evaluate

    def __init__(self, sums: Sums, inquiry: Inquiry, devices: Collection[int] = ()) -> None:
        super().__init__(sums, inquiry, needs_surveys=True, devices=devices)
        self.inquiry = inquiry
        self.received = EnsembleDraws(self, inquiry)
        self._made = array("q")  # draws that all chains had made after each answer
        self._ahead: _Ahead | None = None

    def chain_of(self, worker: int, shard: int) -> int:
        return 0

    def extend(self, n_draws: int) -> None:
        """Ask for more draws in all."""
        self.inquiry.extend(n_draws)
        self._ask_anew()
        if self._ahead and self._made:
            self._count_made()

    def _ask_anew(self) -> None:
        self._blocks.clear()
        self._open_questions()

    # ------------------------------------------------------------ state

    def replay_work(self) -> int:
        """How much there is to replay: points, and passes."""
        n_points = sum(ensemble.n_evaluations for ensemble in self.inquiry.ensembles)
        return n_points + _OF_A_PASS * self.inquiry.n_passes

    def state(self) -> dict[str, AnyArray]:
        """What a replay of all answers so far would lead to; nothing before the chains start."""
        if not self.inquiry.ensembles:
            return {}
        return self.inquiry.state() | {_MADE: np.array(self._made, dtype=np.int64)}

    def go_ahead_to(self, state: State) -> None:
        """Only count the answers of chains that are replayed from now on, until `arrive`.

        The state is that after these answers. That of other chains is not used.
        """
        self._ahead = _Ahead(state)

    def arrive(self) -> None:
        """Go on from the state; ValueError if it does not fit the answers that were counted."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return
        if not np.array_equal(ahead.state[_MADE], self._made):
            raise ValueError("it is of other answers")
        self.inquiry.restore(ahead.state)
        self._ask_anew()

    def replay(self, answered: Answered) -> int:
        if self._ahead and self.inquiry.ensembles and not self._ahead.begin(self.inquiry):
            self._ahead = None
        if not (self._ahead and self._ahead.next_questions) or answered.lane == SURVEYS:
            return super().replay(answered)
        if self._ahead.is_next(answered):
            self._made.append(int(self._ahead.state[_MADE][len(self._made)]))
            self._count_made()
        return self.n_complete

    def _settle(self, lane: int, values: Array, gradients: Array | None) -> None:
        super()._settle(lane, values, gradients)
        self._made.append(self.inquiry.n_steps * self.inquiry.n_chains)

    def _count_made(self) -> None:
        self.n_complete = min(self._made[-1], self.inquiry.n_draws)

    # ------------------------------------------------------------ surveys

    def other_modes(self) -> list[Array]:
        """Modes of each shard besides the one that its survey started from, (n, d) each."""
        none = np.empty((0, self.inquiry.dim))
        return [np.asarray(found.get("other_modes", none)) for found in self._found()]

    def fits(self) -> list[Estimate | None]:
        """The Gaussian fit of each shard; None where its survey found none."""
        return [
            Estimate(found["mode"], found["lower"] @ found["lower"].T) if "lower" in found else None
            for found in self._found()
        ]

    def _found(self) -> list[Arrays]:
        """What the survey of each shard found; nothing if there was none."""
        return [self._surveying.found.get(s, {}) for s in range(self.allocation.n_shards)]
