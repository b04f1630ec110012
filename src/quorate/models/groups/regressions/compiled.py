"""Integrated likelihoods of regressions that are not Gaussian, by nodes, compiled by JAX.

Values and gradients are those of `by_nodes.ByNodes`, but for rounding, at any number of points. The
rows of a shard are moved to the device once. What is asked for rarely is left to numpy.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array, IntArray
from quorate.models import device
from quorate.models.groups.accuracy import Effort
from quorate.models.groups.quadrature import rule_of
from quorate.models.groups.regressions.by_nodes import ByNodes
from quorate.models.groups.regressions.chunks import Outside
from quorate.models.groups.regressions.compiled_kernels import (
    Class,
    Kind,
    Totals,
    at_points,
    kernels,
)
from quorate.models.groups.regressions.integrals import Prior
from quorate.models.groups.regressions.points import Derivatives, Points, RoughFit
from quorate.models.groups.regressions.rows import Bundle, GroupedRows, arranged
from quorate.models.groups.regressions.size_classes import few_classes
from quorate.models.groups.regressions.tables import Tables
from quorate.models.groups.regressions.tiles import filled_up, in_tiles, on_host, round_number
from quorate.models.regressions.family import Family

_OF_ROWS, _OF_GROUPS = 4, 8  # numbers for each row or group and point, about, that kernels hold

T = TypeVar("T")


class _OnDevice(NamedTuple):
    """Groups of one size, and where the nodes of each are placed from."""

    which: IntArray  # positions among all groups
    kind: Kind
    rows: Class
    anchors: Any  # (q, g), with zeros for groups that fill up


@dataclass(frozen=True)
class CompiledByNodes:
    """A shard on the device, with what places the nodes of its groups."""

    family: Family
    tables: Tables
    codes: IntArray  # of groups, in rising order
    classes: tuple[_OnDevice, ...]
    outside: Outside
    n_rows: int  # where equal rows count as one
    effort: Effort
    fit: RoughFit | None = None  # of the prior times the likelihood of the shard

    @classmethod
    def of(
        cls, family: Family, tables: Tables, effort: Effort, growth: float = 1.0
    ) -> "CompiledByNodes":
        """Arrange rows by group and move them to the device. Anchors are 0."""
        seen, (varying,), (group,) = tables
        outside = Outside.of(family, seen)
        rows = arranged(seen, varying, group, few_classes)
        classes = tuple(_moved(family, rows, bundle) for bundle in rows.bundles)
        return cls(family, tables, rows.codes, classes, outside, rows.n_rows, effort)

    def log_likelihoods(self, points: Points) -> Array:
        """Integrated log-likelihood of each point, (n,)."""
        values, _ = self.outside.values_and_slopes(points)
        for at, found in self._totals(points, gradient=False):
            values[at] += found.log_integrals
        return values

    def log_likelihoods_and_gradients(self, points: Points) -> tuple[Array, Derivatives]:
        """Integrated log-likelihood of each point, and its derivatives."""
        values, by_scale = self.outside.values_and_slopes(points)
        by_beta = np.tile(self.outside.response_by_column, (len(values), 1))
        squares, phi = np.zeros_like(points.covs[0]), np.exp(points.log_scales)
        for at, found in self._totals(points, gradient=True):
            values[at] += found.log_integrals
            by_beta[at] -= found.by_beta
            by_scale[at] += found.pulls - phi[at] * found.terms
            squares[at] += found.squares
        slopes = Prior.of(points.covs[0]).slopes(squares, len(self.codes))
        return values, Derivatives(by_beta, by_scale, (slopes,))

    def _totals(self, points: Points, *, gradient: bool) -> Iterator[tuple[slice, Totals]]:
        """Sums over each class, for the points of each tile."""
        totals, _ = kernels()

        def evaluate(at: IntArray) -> list[Totals]:
            some = at_points(points.part(at))
            return self._of_classes(
                lambda one: totals(one.kind, one.rows, some, one.anchors, self.effort, gradient)
            )

        for at, found in in_tiles(len(points.betas), self._bytes_of_point, evaluate):
            for of_class in found:
                yield at, Totals(*on_host(of_class, at))

    @cached_property
    def _bytes_of_point(self) -> float:
        """Memory that kernels need for each point."""
        n_nodes = len(rule_of(self.effort.n_nodes, self.dim).nodes)
        of_group = n_nodes + _OF_GROUPS * self.dim**2
        most = max(
            _OF_ROWS * one.rows.counts.size + of_group * one.rows.exists.size
            for one in self.classes
        )
        return float(8 * most)

    def anchored_at(self, point: Points, n_steps: int) -> "CompiledByNodes":
        """A copy of this shard with anchors at the modes of z at one point, after Newton steps."""
        centres, at = partial(kernels()[1], n_steps=n_steps), at_points(point)
        with device.lack_of_memory_in_words():
            anchors = self._of_classes(lambda one: centres(one.kind, one.rows, at, one.anchors))
            jax_in_float64().block_until_ready(anchors)
        moved = zip(self.classes, anchors, strict=True)
        return replace(self, classes=tuple(one._replace(anchors=new) for one, new in moved))

    def _of_classes(self, function: Callable[[_OnDevice], T]) -> list[T]:
        """A compiled function of every class. What is not compiled yet is so side by side."""
        with ThreadPoolExecutor(len(self.classes)) as pool:
            return list(pool.map(function, self.classes))

    def adapted(self, effort: Effort, fit: RoughFit | None = None) -> "CompiledByNodes":
        """A copy of this shard with another effort and a fit."""
        return replace(self, effort=effort, fit=fit)

    @property
    def fewest_nodes(self) -> int:
        """Nodes in each dimension, at least."""
        return 3

    @property
    def dim(self) -> int:
        """Dimensions of an integral."""
        return int(self.tables.varying[0].shape[1])

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of groups and of rows, where equal rows count as one."""
        return len(self.codes), self.n_rows

    @property
    def anchors(self) -> Array:
        """Where Newton steps start, (q, n_groups)."""
        found = np.empty((self.dim, len(self.codes)))
        for one in self.classes:
            found[:, one.which] = np.asarray(one.anchors)[:, : len(one.which)]
        return found

    @cached_property
    def in_numpy(self) -> ByNodes:
        """A copy of this shard in numpy, with its anchors and effort."""
        plain = ByNodes.of(self.family, self.tables, self.effort)
        return replace(plain, anchors=self.anchors, fit=self.fit)

    def pooled_fit(self, start: Array, log_sds: IntArray) -> RoughFit:
        """A fit without groups."""
        return self.in_numpy.pooled_fit(start, log_sds)


def _moved(family: Family, rows: GroupedRows, bundle: Bundle) -> _OnDevice:
    """A bundle on the device, filled up to a round number of groups."""
    n_groups = len(bundle.which)
    n_filled = round_number(n_groups)
    is_intercept = rows.has_ones and bundle.varying.shape[1] == 1
    once = bool(((bundle.counts == 0) | (bundle.counts == 1)).all())
    kind = Kind.of(family, is_intercept=is_intercept, count_once=once)
    some = Class(
        bundle.columns,
        bundle.varying[:, :0] if is_intercept else bundle.varying,
        bundle.offset,
        bundle.response,
        bundle.counts,
        np.ones(n_groups),
    )
    anchors = np.zeros((bundle.varying.shape[1], n_filled))
    filled = Class(*(filled_up(array, n_filled) for array in some))
    return _OnDevice(bundle.which, kind, *device.on_device((filled, anchors)))
