"""Integrated likelihoods of regressions with groups within groups that are not Gaussian."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from quorate._types import Array, IntArray
from quorate.models.groups.accuracy import FEWEST_FOR_MOMENTS, Effort
from quorate.models.groups.levels import LevelUniforms, Moments
from quorate.models.groups.nesting import Nesting
from quorate.models.groups.quadrature import rule_of
from quorate.models.groups.regressions.chunks import (
    Chunk,
    Outside,
    Sums,
    chunks,
    squares,
    summed_powers,
)
from quorate.models.groups.regressions.integrals import Nodes, Prior
from quorate.models.groups.regressions.nested_block import Block
from quorate.models.groups.regressions.points import Derivatives, Points, RoughFit
from quorate.models.groups.regressions.pooling import pooled_by_newton
from quorate.models.groups.regressions.rows import GROWTH, arranged, of_like_size
from quorate.models.groups.regressions.tables import Tables
from quorate.models.regressions.family import Family

_ROWS = 32_768  # of a block, about
_INNER_EACH = 6  # inner groups of an outer one that count as groups, at most
_ENTRIES = 2_097_152  # of nodes of a block that are kept at a time


@dataclass(frozen=True)
class Found:
    """Integrals of the groups of a block at some points."""

    block: Block
    points: slice
    outer: Nodes  # (q, m, n_points, n_outer)
    inner: list[tuple[Chunk, Nodes]]  # at pairs of an outer node and a point

    def shares(self) -> Iterator[tuple[Chunk, Nodes, Array]]:
        """Inner nodes, and how large a share of all nodes of the outer group each of them has."""
        outer = self.outer.shares
        by_pair = self.block.nesting.repeated(outer.reshape(-1, outer.shape[-1]))
        for chunk, nodes in self.inner:
            weights = by_pair[chunk.points][:, chunk.bundle.which]
            yield chunk, nodes, nodes.shares * weights


@dataclass(frozen=True)
class NestedByNodes:
    """The rows of a shard in blocks, with what places the nodes of both levels."""

    nesting: Nesting
    blocks: tuple[Block, ...]
    outside: Outside
    effort: Effort
    fit: RoughFit | None = None  # of the prior times the likelihood of the shard

    @classmethod
    def of(
        cls, family: Family, tables: Tables, effort: Effort, growth: float = GROWTH
    ) -> "NestedByNodes":
        """Arrange rows by inner group, in blocks of outer groups.

        For `growth` see `of_like_size`.
        """
        outside = Outside.of(family, tables.seen)
        nesting, place = Nesting.of_rows(*tables.groups)
        sizes = np.bincount(place).astype(np.float64)
        order, ends = np.argsort(place, kind="stable"), np.cumsum(sizes).astype(np.int64)
        blocks = []
        for outer in nesting.parts(sizes, _ROWS):
            inner = nesting.inner_of(outer)
            rows = order[ends[inner[0]] - int(sizes[inner[0]]) : ends[inner[-1]]]
            some, places = nesting.of_outer(outer), place[rows] - inner[0]
            blocks.append(_block(family, some, tables.at(rows), places, growth))
        return cls(nesting, tuple(blocks), outside, effort)

    @property
    def codes(self) -> IntArray:
        """Codes of the groups of the outer level, in rising order."""
        return self.nesting.outer

    @property
    def fewest_nodes(self) -> int:
        """Nodes in each dimension, at least; moments use the same."""
        return FEWEST_FOR_MOMENTS

    @property
    def dim(self) -> int:
        """Dimensions of an integral, over both levels."""
        return sum(len(anchors) for anchors in self.blocks[0].anchors)

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of groups and of rows, where equal rows count as one.

        Inner groups count, but so few that many outer ones remain where some stand for all.
        """
        n_groups = min(self.nesting.n_inner, _INNER_EACH * self.nesting.n_outer)
        return n_groups, sum(block.rows.n_rows for block in self.blocks)

    def pooled_fit(self, start: Array, log_sds: IntArray) -> RoughFit:
        """A fit without groups, by a few steps of Newton's method from `start` (d,)."""
        p, q = len(self.outside.response_by_column), len(self.blocks[0].anchors[1])
        return pooled_by_newton(self._without_outer, start, p, q)

    def _without_outer(self, points: Points) -> Iterator[Chunk]:
        """All inner groups at points, if coefficients of outer ones are 0."""
        for block in self.blocks:
            anchors = np.zeros_like(block.anchors[1])[:, None]
            yield from chunks(block.family, block.rows, points, anchors, 1)

    def adapted(self, effort: Effort, fit: RoughFit | None = None) -> "NestedByNodes":
        """A copy of this shard with another effort and a fit."""
        return replace(self, effort=effort, fit=fit)

    def anchored_at(self, point: Points, n_steps: int) -> "NestedByNodes":
        """A copy of this shard with anchors at the modes of groups at one point."""
        blocks = tuple(block.anchored_at(point, n_steps) for block in self.blocks)
        return replace(self, blocks=blocks)

    def log_likelihoods(self, points: Points) -> Array:
        """Integrated log-likelihood of each point, (n,)."""
        totals, _ = self.outside.values_and_slopes(points)
        for found in self._found(points, keep=False):
            totals[found.points] += found.outer.log_integrals.sum(axis=1)
        return totals

    def log_likelihoods_and_gradients(self, points: Points) -> tuple[Array, Derivatives]:
        """Integrated log-likelihood of each point, and its derivatives."""
        totals, by_scale = self.outside.values_and_slopes(points)
        by_beta = np.tile(self.outside.response_by_column, (len(totals), 1))
        of_levels = [np.zeros_like(cov) for cov in points.covs]  # Σ E uuᵀ and Σ E vvᵀ
        for found in self._found(points):
            at, u, n_nodes = found.points, found.outer.local, found.outer.local.shape[1]
            totals[at] += found.outer.log_integrals.sum(axis=1)
            of_levels[0][at] += squares(u, found.outer.shares)
            sums = Sums.none(points.part(at).of_inner(n_nodes))
            for chunk, nodes, shares in found.shares():
                sums.add(chunk, nodes, shares)
            by_beta[at] += _over_nodes(sums.by_beta, n_nodes)
            by_scale[at] += _over_nodes(sums.by_scale, n_nodes)
            of_levels[1][at] += _over_nodes(sums.squares, n_nodes)
        sizes = (self.nesting.n_outer, self.nesting.n_inner)
        levels = zip(points.covs, of_levels, sizes, strict=True)
        slopes = tuple(Prior.of(cov).slopes(of, size) for cov, of, size in levels)
        return totals, Derivatives(by_beta, by_scale, slopes)

    def moments(self, points: Points) -> tuple[Moments, Moments]:
        """Moments of the coefficients of all groups, summed over the points, about the anchors."""
        of_blocks = [self._block_moments(block, points) for block in self.blocks]
        outer, inner = (np.concatenate(of, axis=1) for of in zip(*of_blocks, strict=True))
        anchors = zip(*(block.anchors for block in self.blocks), strict=True)
        centres = [np.hstack(of_level).T for of_level in anchors]
        return self.nesting.moments(outer, inner, (centres[0], centres[1]))

    def _block_moments(self, block: Block, points: Points) -> tuple[Array, Array]:
        """Sums (3, n_groups, q) of both levels."""
        outer, inner = (np.zeros((3, *anchors.T.shape)) for anchors in block.anchors)
        for found in self._of_block(block, points):
            outer += summed_powers(found.outer, found.outer.shares, block.anchors[0])
            for chunk, nodes, shares in found.shares():
                which = chunk.bundle.which
                inner[:, which] += summed_powers(nodes, shares, block.anchors[1][:, which])
        return outer, inner

    def draws(
        self, points: Points, codes: IntArray, uniforms: LevelUniforms
    ) -> tuple[tuple[IntArray, Array], ...]:
        """A draw for each point of u of some groups, and of v of all groups within them."""
        found = []
        for block in self.blocks:
            outer = np.flatnonzero(np.isin(block.nesting.outer, codes))
            if len(outer):
                some = block.of_outer(outer)
                found.append((some.nesting, self._drawn(some, points, uniforms)))
        return (
            _joined([(nesting.outer, draws[0]) for nesting, draws in found]),
            _joined([(nesting.inner, draws[1]) for nesting, draws in found]),
        )

    def group_integrals(self, points: Points, codes: IntArray) -> Array:
        """Logarithms of the integrals of some outer groups, (n, m), without what is outside."""
        integrals = np.empty((len(points.betas), len(codes)))
        for block in self.blocks:
            outer = np.flatnonzero(np.isin(block.nesting.outer, codes))
            if len(outer):
                some = block.of_outer(outer)
                which = np.searchsorted(codes, some.nesting.outer)
                for found in self._of_block(some, points, keep=False):
                    integrals[found.points, which] = found.outer.log_integrals
        return integrals

    def _drawn(self, block: Block, points: Points, uniforms: LevelUniforms) -> tuple[Array, Array]:
        numbers = [uniforms(0, block.nesting.outer), uniforms(1, block.nesting.inner)]
        parts = [
            block.draws(points.part(at), self.effort, *(each[at] for each in numbers))
            for at in self._parts(block, len(points.betas))
        ]
        outer, inner = zip(*parts, strict=True)
        return np.concatenate(outer), np.concatenate(inner)

    def _found(self, points: Points, *, keep: bool = True) -> Iterator[Found]:
        """Integrals of all groups at all points; the inner nodes only if they are to be kept."""
        for block in self.blocks:
            yield from self._of_block(block, points, keep=keep)

    def _of_block(self, block: Block, points: Points, *, keep: bool = True) -> Iterator[Found]:
        for at in self._parts(block, len(points.betas)):
            some = points.part(at)
            centre = block.centre(some, self.effort.n_steps)
            outer, log_weights = block.outer_nodes(centre, self.effort.n_nodes)
            u = outer.local
            inner = block.inner_nodes(some, centre, u, self.effort)
            kept = list(inner) if keep else []
            terms = block.log_joint(some, u, iter(kept) if keep else inner)
            yield Found(block, at, Nodes(outer, terms + log_weights), kept)

    def _parts(self, block: Block, n_points: int) -> Iterator[slice]:
        """Slices of points whose nodes are kept together."""
        n_nodes = len(rule_of(self.effort.n_nodes, self.dim).nodes)
        at_once = max(1, _ENTRIES // (n_nodes * block.nesting.n_inner))
        for first in range(0, n_points, at_once):
            yield slice(first, first + at_once)


def _block(
    family: Family, nesting: Nesting, tables: Tables, place: IntArray, growth: float
) -> Block:
    """A block from its rows and the places of their inner groups."""
    seen, (outer, varying), _ = tables
    rows = arranged(seen, varying, place, of_like_size(growth), outer)
    response = seen.weighted_response
    within = nesting.within[place]
    by_response = np.array([np.bincount(within, weights=z * response) for z in outer.T])
    sizes = nesting.n_outer, nesting.n_inner
    zeros = [np.zeros((z.shape[1], n)) for z, n in zip((outer, varying), sizes, strict=True)]
    return Block(family, nesting, rows, by_response, (zeros[0], zeros[1]))


def _over_nodes(sums: Array, n_nodes: int) -> Array:
    """Sums at pairs of a node and a point, summed over the nodes."""
    return np.asarray(sums.reshape(n_nodes, -1, *sums.shape[1:]).sum(axis=0))


def _joined(parts: list[tuple[IntArray, Array]]) -> tuple[IntArray, Array]:
    """Codes and draws of several blocks."""
    codes, draws = zip(*parts, strict=True)
    return np.concatenate(codes), np.concatenate(draws, axis=1)
