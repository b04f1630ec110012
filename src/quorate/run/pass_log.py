"""The passes of an exact run as its journal tells them: what was asked for, and when."""

from typing import NamedTuple

from quorate.journal import PartAnswered, PassRecord
from quorate.passes.inquiry import Inquiry
from quorate.protocol.exact import ExactScheme
from quorate.protocol.inquirer import SURVEYS, Answered
from quorate.protocol.messages import Arrays
from quorate.run.progress import Phase

SURVEY = "start"  # the phase in which shards are surveyed
PHASES = {
    SURVEY: Phase.SURVEYING,
    "fit": Phase.FITTING,
    "weigh": Phase.WEIGHING,
    "draw": Phase.DRAWING,
    "done": Phase.DONE,
}


class PhaseTold(NamedTuple):
    """A phase of an exact run, as far as it has come.

    `n_answers` counts questions answered, or shards surveyed; `n_points` the points of the former.
    """

    name: str
    began: float
    ended: float
    n_answers: int
    n_points: int


class PassLog:
    """The passes so far.

    Attributes
    ----------
    inquiry
        The questions, fed with all answers so far.
    surveys
        What was found of each shard: `mode` and `lower`, if it has a Gaussian fit.
    spoken_for
        Workers whose answers came with those of another on the same node, and that other one.
    """

    def __init__(self, scheme: ExactScheme) -> None:
        self._scheme = scheme
        self.inquiry: Inquiry = scheme.inquiry
        self.surveys: dict[int, Arrays] = {}
        self.spoken_for: dict[int, int] = {}
        self._phases: dict[str, PhaseTold] = {}

    def take(self, record: PassRecord) -> None:
        """Take in the next record."""
        if record.lane == SURVEYS:
            phase, n_points = SURVEY, 0
            self.surveys[record.number] = record.arrays
        elif record.lane in self.inquiry.open:
            phase, n_points = self.inquiry.open[record.lane].phase, len(record.arrays["values"])
        else:
            return  # what it answers is not known: the survey of a shard is damaged
        before = max((told.ended for told in self._phases.values()), default=0.0)
        told = self._phases.get(phase, PhaseTold(phase, before, before, 0, 0))
        self._phases[phase] = told._replace(
            ended=record.time,
            n_answers=told.n_answers + 1,
            n_points=told.n_points + n_points,
        )
        self._scheme.replay(Answered(*record[1:]))

    def heard(self, part: PartAnswered) -> None:
        """Take in that a worker has answered."""
        others = (worker for worker in part.together if worker != part.worker)
        self.spoken_for |= dict.fromkeys(others, part.worker)

    def extend(self, n_draws: int) -> None:
        """Take in that more draws are asked for."""
        self._scheme.extend(n_draws)

    def phases(self) -> list[PhaseTold]:
        """The phases that have had an answer, in order."""
        return list(self._phases.values())

    @property
    def n_points(self) -> int:
        """Points at which the posterior is known."""
        return sum(told.n_points for told in self._phases.values())
