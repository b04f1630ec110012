"""What a schedule of passes asks for: the interface of an inquirer, and what it is answered."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from quorate._types import Array
from quorate.passes.inquiry import Pass
from quorate.protocol.messages import Arrays

SURVEYS = -1  # in place of a lane


class Answered(NamedTuple):
    """A question that is answered, for the journal; or a shard that is surveyed."""

    lane: int  # SURVEYS for a survey
    number: int  # of the question, or the shard
    arrays: Arrays


class Inquirer(Protocol):
    """Asks the questions; see `quorate.passes.inquiry`."""

    @property
    def open(self) -> Mapping[int, Pass]:
        """Questions that are not answered yet, by lane."""

    @property
    def n_complete(self) -> int:
        """Draws that are there, or points that are known."""

    def begin(self, surveys: Mapping[int, Arrays]) -> None:
        """Ask the first question, from what was found of each shard."""

    def take(self, lane: int, values: Array, gradients: Array | None = None) -> None:
        """Take the answer to the open question of a lane."""
