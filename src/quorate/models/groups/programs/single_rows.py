"""Rows of a program with local parameters, one by one, at draws of these parameters."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate._types import Array
from quorate.models.groups.programs.at_point import AtPoint
from quorate.models.groups.programs.integral import Arguments
from quorate.models.rows import Random

if TYPE_CHECKING:
    from quorate.models.groups.programs.model import ProgramModel


@dataclass(frozen=True)
class ProgramRows:
    """All rows of some groups, sorted by group; a `quorate.models.rows.RowsAt`.

    Parameters
    ----------
    model, at
        The model, and its functions of one point.
    points, z
        Global parameters (n, d), followed by those of groups around these groups; and unconstrained
        ones of the groups (n, m, q). Without z, responses are those of groups whose parameters are
        drawn from their prior.
    inputs, n_rows, given
        The rows of the groups, their number, and the arguments of their integrals, if these are
        needed.
    """

    model: "ProgramModel"
    at: AtPoint
    points: Array
    z: Array | None
    inputs: Any
    n_rows: int
    given: Arguments | None = None

    def log_likelihoods(self) -> Array:
        assert self.z is not None
        assert self.given is not None
        both = np.concatenate([self.points, self.z.reshape(len(self.points), -1)], axis=1)
        each = self.model.backend.each
        return np.asarray(each(self.at.of_rows, both, self.given, self.n_rows))

    def expected(self) -> None:
        """None: programs do not tell it."""

    def responses(self, random: Random) -> dict[str, Array]:
        program, inputs = self.model.row_program, self.inputs
        if self.z is None:
            return program.simulated(self.points, inputs, random.seeds())
        found = program.responses(self.points, self.z, inputs, random.seeds())
        return {name: np.asarray(draws) for name, draws in found.items()}

    def observed(self) -> dict[str, Array]:
        return self.model.row_program.observed(self.inputs)
