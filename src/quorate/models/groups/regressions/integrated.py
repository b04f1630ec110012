"""What a shard of a regression with groups can be asked for, once it is prepared."""

from typing import Protocol, cast

from quorate._types import Array, IntArray
from quorate.models.groups.levels import LevelUniforms, Moments
from quorate.models.groups.regressions.points import Derivatives, Points, RoughFit


class Integrated(Protocol):
    """A prepared shard, whose groups' coefficients are integrated out."""

    @property
    def codes(self) -> IntArray:
        """Codes of the groups of the outer level, in rising order."""

    @property
    def fit(self) -> RoughFit | None:
        """About the mode and covariance of the prior times the likelihood of the shard."""

    def pooled_fit(self, start: Array, log_sds: IntArray) -> RoughFit:
        """A fit without groups, where searches start."""

    def log_likelihoods(self, points: Points) -> Array:
        """Integrated log-likelihood of each point, (n,)."""

    def log_likelihoods_and_gradients(self, points: Points) -> tuple[Array, Derivatives]:
        """Integrated log-likelihood of each point, and its derivatives."""


class OfGroups(Protocol):
    """A prepared shard that answers for single groups, in numpy."""

    def moments(self, points: Points) -> tuple[Moments, ...]:
        """Moments of the coefficients of all groups of each level, summed over the points."""

    def group_integrals(self, points: Points, codes: IntArray) -> Array:
        """Logarithms of the integrals of some groups of the outer level, (n, m).

        The terms of the likelihood that do not depend on the coefficients of groups are left out.
        """

    def draws(
        self, points: Points, codes: IntArray, uniforms: LevelUniforms
    ) -> tuple[tuple[IntArray, Array], ...]:
        """Codes (m,) and draws (n, m, q) for each level, of some groups of the outer level."""


def in_numpy(shard: Integrated) -> OfGroups:
    """The numpy form of a compiled shard; any other shard is returned as it is."""
    return cast(OfGroups, getattr(shard, "in_numpy", shard))
