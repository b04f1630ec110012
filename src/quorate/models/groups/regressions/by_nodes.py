"""Integrated likelihoods of regressions that are not Gaussian, group by group, by nodes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from quorate._types import Array, IntArray
from quorate.models.groups.accuracy import Effort, for_moments
from quorate.models.groups.levels import LevelUniforms, Moments
from quorate.models.groups.regressions.chunks import Chunk, Outside, Sums, chunks, summed_powers
from quorate.models.groups.regressions.integrals import Prior, placed
from quorate.models.groups.regressions.points import Derivatives, Points, RoughFit
from quorate.models.groups.regressions.pooling import pooled_by_newton
from quorate.models.groups.regressions.rows import GROWTH, GroupedRows, arranged, of_like_size
from quorate.models.groups.regressions.tables import Tables
from quorate.models.regressions.family import Family


@dataclass(frozen=True)
class ByNodes:
    """The rows of a shard, with what places the nodes of its groups."""

    family: Family
    rows: GroupedRows
    outside: Outside
    anchors: Array  # where Newton steps start, (q, n_groups)
    effort: Effort
    fit: RoughFit | None = None  # of the prior times the likelihood of the shard

    @classmethod
    def of(
        cls, family: Family, tables: Tables, effort: Effort, growth: float = GROWTH
    ) -> "ByNodes":
        """Arrange rows by group. Anchors are 0. For `growth` see `of_like_size`."""
        seen, (varying,), (group,) = tables
        outside = Outside.of(family, seen)
        rows = arranged(seen, varying, group, of_like_size(growth))
        return cls(family, rows, outside, np.zeros((varying.shape[1], rows.n_groups)), effort)

    def log_likelihoods(self, points: Points) -> Array:
        """Integrated log-likelihood of each point, (n,)."""
        totals, _ = self.outside.values_and_slopes(points)
        for chunk in self._chunks(points):
            totals[chunk.points] += chunk.nodes(self.effort).log_integrals.sum(axis=1)
        return totals

    def log_likelihoods_and_gradients(self, points: Points) -> tuple[Array, Derivatives]:
        """Integrated log-likelihood of each point, and its derivatives."""
        totals, by_scale = self.outside.values_and_slopes(points)
        sums = Sums.none(points)
        for chunk in self._chunks(points):
            found = chunk.nodes(self.effort)
            totals[chunk.points] += found.log_integrals.sum(axis=1)
            sums.add(chunk, found, found.shares)
        slopes = Prior.of(points.covs[0]).slopes(sums.squares, self.rows.n_groups)
        by_beta = self.outside.response_by_column + sums.by_beta
        return totals, Derivatives(by_beta, by_scale + sums.by_scale, (slopes,))

    def moments(self, points: Points) -> tuple[Moments]:
        """Moments of z of all groups, summed over the points, about the anchors."""
        q, n_groups = self.anchors.shape
        sums = np.zeros((3, n_groups, q))
        for chunk in self._chunks(points):
            found = chunk.nodes(for_moments(self.effort))
            sums[:, chunk.bundle.which] += summed_powers(found, found.shares, chunk.anchors[:, 0])
        return (Moments(self.rows.codes, self.anchors.T, sums),)

    def draws(
        self, points: Points, codes: IntArray, uniforms: LevelUniforms
    ) -> tuple[tuple[IntArray, Array]]:
        """A draw of z of some groups for each point, with the codes of the groups."""
        some, numbers = self._of_groups(codes), uniforms(0, codes)
        draws = np.empty((*numbers.shape[:2], self.dim))
        for chunk in some._chunks(points):
            at = (chunk.points, chunk.bundle.which)
            draws[at] = chunk.draws(for_moments(self.effort), numbers[at])
        return ((codes, draws),)

    def group_integrals(self, points: Points, codes: IntArray) -> Array:
        """Logarithms of the integrals of some groups, (n, m), without what is outside."""
        integrals = np.empty((len(points.betas), len(codes)))
        for chunk in self._of_groups(codes)._chunks(points):
            found = chunk.nodes(self.effort).log_integrals
            integrals[chunk.points, chunk.bundle.which] = found
        return integrals

    def _of_groups(self, codes: IntArray) -> "ByNodes":
        anchors = self.anchors[:, np.searchsorted(self.rows.codes, codes)]
        return replace(self, rows=self.rows.of_groups(codes), anchors=anchors)

    @property
    def fewest_nodes(self) -> int:
        """Nodes in each dimension, at least; moments take more."""
        return 3

    @property
    def dim(self) -> int:
        """Dimensions of an integral."""
        return len(self.anchors)

    @property
    def codes(self) -> IntArray:
        """Codes of the groups, in rising order."""
        return self.rows.codes

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of groups and of rows, where equal rows count as one."""
        return self.rows.n_groups, self.rows.n_rows

    def pooled_fit(self, start: Array, log_sds: IntArray) -> RoughFit:
        """A fit without groups, by a few steps of Newton's method from `start` (d,)."""
        p = len(self.outside.response_by_column)
        return pooled_by_newton(self._chunks, start, p, self.dim)

    def adapted(self, effort: Effort, fit: RoughFit | None = None) -> "ByNodes":
        """A copy of this shard with another effort and a fit."""
        return replace(self, effort=effort, fit=fit)

    def anchored_at(self, point: Points, n_steps: int) -> "ByNodes":
        """A copy of this shard with anchors at the modes of z at one point, after Newton steps."""
        centres = np.empty_like(self.anchors)
        for chunk in self._chunks(point):
            centre, _, _ = placed(chunk.rows, chunk.prior, chunk.anchors, n_steps)
            centres[:, chunk.bundle.which] = centre[:, 0]
        return replace(self, anchors=centres)

    def _chunks(self, points: Points) -> Iterator[Chunk]:
        return chunks(self.family, self.rows, points, self.anchors[:, None], self.effort.n_nodes)
