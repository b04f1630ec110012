"""Log-likelihoods of the rows of groups, for families that are not Gaussian.

For all families here log p(y|η) is y η - w b(η - s), up to what does not depend on η. b is
log(1 + exp) or exp; w and the shift s depend on the row and on the scale parameter. Arrays have the
axes (rows, nodes, points, groups).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from quorate._types import Array, BoolArray
from quorate.models.groups.quadrature import Places

Shape = Literal["softplus", "exponential"]
FURTHEST = 350.0  # of a linear predictor, so that products of exponentials stay finite
LARGEST = np.exp(FURTHEST)
_LOG_LARGEST = 700.0
_ENTRIES = 131_072  # of rows, nodes, points and groups at a time: a megabyte


@dataclass(frozen=True)
class Rows:
    """Rows of some groups at some points.

    Parameters
    ----------
    shape
        The function b.
    offsets
        Xβ - s, (size, n_points, g); -inf in rows that count nothing.
    weights
        w, (size, n_points, g).
    response
        y, (size, g).
    varying
        Z, (size, q, g); None if it is a single column of ones.
    has_ones
        Whether the first column of Z is one of ones, in rows that count.
    count_once
        Whether all weights are 0 or 1.
    has_scale
        Whether weights and offsets depend on a scale parameter.
    """

    shape: Shape
    offsets: Array
    weights: Array
    response: Array
    varying: Array | None
    has_ones: bool = False
    count_once: bool = False
    has_scale: bool = False

    def at(self, points: BoolArray) -> "Rows":
        """Rows at some of the points."""
        return replace(self, offsets=self.offsets[:, points], weights=self.weights[:, points])

    @cached_property
    def response_by_parameter(self) -> Array:
        """Zᵀy of each group, (q, g)."""
        if self.varying is None:
            return np.asarray(self.response.sum(axis=0)[None])
        return np.asarray(np.einsum("sjg,sg->jg", self.varying, self.response))

    def at_places(self, places: Places) -> "Odds":
        """exp η at the nodes of groups, as products if the nodes are a grid."""
        if self.varying is None:
            return self.at_local(places.local)
        along = places.upper[0][0] * places.rule.along[:, None, None]
        found = Odds(self, places.of(places.rule.across), along)
        return found if found.is_moderate else self.at_local(places.local)

    def at_local(self, local: Array) -> "Odds":
        """exp η at `local` (q, m, n_points, g)."""
        return Odds(self, None, local[0]) if self.varying is None else Odds(self, local, None)

    def sums(self, odds: "Odds") -> Array:
        """Σ w b(η) over rows, (m, n_points, g)."""
        if self.shape == "exponential" and odds.across is None:
            return np.asarray((self.weights * self.near).sum(axis=0) * np.exp(odds.first))
        if self.shape == "softplus" and self.count_once and odds.is_moderate:
            return self._logarithms_of_products(odds)
        totals = np.zeros(odds.shape)
        for some in odds.blocks():
            totals += np.einsum("smpg,spg->mpg", self._terms(odds, some), self.weights[some])
        return totals

    def _terms(self, odds: "Odds", some: slice) -> Array:
        """b(η) of some rows, (r, m, n_points, g)."""
        if self.shape == "softplus" and not odds.is_moderate:
            return np.asarray(np.logaddexp(0.0, odds.eta(some)))
        terms = odds.of_rows(some)
        return np.log1p(terms, out=terms) if self.shape == "softplus" else terms

    def _logarithms_of_products(self, odds: "Odds") -> Array:
        """Σ log(1 + exp η) over rows: one logarithm of as many rows as have a finite product."""
        most = max(1, int(_LOG_LARGEST / max(odds.largest_factor, 1e-300)))
        totals, product, n_rows = None, np.ones(odds.shape), 0
        for some in odds.blocks_across(most):
            n_rows += some.stop - some.start
            if n_rows > most:
                logarithms = np.log(product)
                totals = logarithms if totals is None else totals + logarithms
                product[:], n_rows = 1.0, some.stop - some.start
            odds.multiply(product, some)
        np.log(product, out=product)
        return odds.completed(product if totals is None else totals + product)

    def slopes_and_curvatures(self, local: Array) -> tuple[Array, Array]:
        """Derivatives y - w b'(η) and w b''(η) of each row at `local` (q, n_points, g)."""
        near = self.at_local(np.clip(local, -FURTHEST, FURTHEST)[:, None])
        odds = near.of_rows(slice(None))[:, 0]
        np.minimum(odds, LARGEST, out=odds)
        if self.shape == "exponential":
            pulls = self.weights * odds
            return self.response[:, None] - pulls, pulls
        plus = 1 + odds
        pulls = np.divide(odds, plus, out=odds)
        if not self.count_once:
            pulls *= self.weights
        curvatures = np.divide(pulls, plus, out=plus)
        return np.subtract(self.response[:, None], pulls, out=pulls), curvatures

    def expectations(self, odds: "Odds", shares: Array) -> tuple[Array, Array | None]:
        """Means over nodes of w b'(η), and of b(η), in each row: (size, n_points, g) each.

        `shares` (m, n_points, g) are the nodes' weights. Means of b(η) are found if weights depend
        on the scale parameter.
        """
        pulls = np.empty(self.offsets.shape)
        if odds.is_divided and self.shape == "softplus" and not self.has_scale:
            for some in odds.blocks_across():
                pulls[some] = odds.mean_slopes(some, shares)
            return pulls * self.weights, None
        terms = np.empty(self.offsets.shape) if self.has_scale else None
        for some in odds.blocks():
            found = odds.of_rows(some)
            np.minimum(found, LARGEST, out=found)
            if terms is not None:
                terms[some] = np.einsum("smpg,mpg->spg", np.log1p(found), shares)
            if self.shape == "softplus":
                found /= 1 + found
            pulls[some] = np.einsum("smpg,mpg->spg", found, shares)
        if not self.count_once:
            pulls *= self.weights
        return pulls, terms

    def eta(self, local: Array, some: slice) -> Array:
        """η of some rows, (r, m, n_points, g), at `local` (q, m, n_points, g)."""
        assert self.varying is not None
        varying = self.varying[some]
        eta = varying[:, -1, None, None] * local[-1] + self.offsets[some, None]
        for j in range(len(local) - 1):
            eta += local[j] if j == 0 and self.has_ones else varying[:, j, None, None] * local[j]
        return np.asarray(eta)

    @cached_property
    def near(self) -> Array:
        """exp of the offsets."""
        return np.asarray(np.exp(np.minimum(self.offsets, FURTHEST)))


@dataclass(frozen=True)
class Odds:
    """exp η of rows at m = n k nodes, computed for some rows at a time.

    The nodes may be a grid, of which exp η is a product: n nodes that differ in the first parameter
    of a group, times k nodes across. This saves most exponentials.

    Parameters
    ----------
    across
        z at the nodes across, (q, k, n_points, g); None if Z is a column of ones and k is 1.
    along
        What the other nodes add to the first parameter, (n, n_points, g); None if n is 1.
    """

    rows: Rows
    across: Array | None
    along: Array | None

    @property
    def shape(self) -> tuple[int, int, int]:
        """m, the number of points and that of groups."""
        n = 1 if self.along is None else len(self.along)
        k = 1 if self.across is None else self.across.shape[1]
        _, n_points, n_groups = self.rows.offsets.shape
        return n * k, n_points, n_groups

    @property
    def first(self) -> Array:
        """`along`, where there is one."""
        assert self.along is not None
        return self.along

    def blocks(self) -> Iterator[slice]:
        """Slices of rows that fit into the cache with all nodes."""
        return parts(len(self.rows.offsets), math.prod(self.shape))

    def blocks_across(self, most: int = 1 << 30) -> Iterator[slice]:
        """Slices of rows, at most so many, that fit into the cache with the nodes across."""
        n_nodes = math.prod(self.shape) if self.across is None else self.across[0].size
        return parts(len(self.rows.offsets), n_nodes, most)

    def eta(self, some: slice) -> Array:
        """η of some rows, (r, m, n_points, g), where nodes are no grid."""
        if self.across is None:
            return np.asarray(self.rows.offsets[some, None] + self.first)
        return self.rows.eta(self.across, some)

    def of_rows(self, some: slice) -> Array:
        """exp η of some rows, (r, m, n_points, g)."""
        if self.across is None:
            return np.asarray(self.rows.near[some, None] * self._of_along)
        odds = self._of_across(some)
        if self.along is None:
            return odds
        factors = self._of_along[None]
        if not self.rows.has_ones:
            assert self.rows.varying is not None
            factors = np.exp(self.rows.varying[some, 0, None, None] * self.along)
        found = factors[:, :, None] * odds[:, None]
        return found.reshape(len(odds), *self.shape)

    def multiply(self, product: Array, some: slice) -> None:
        """Multiply `product` (m, n_points, g) by 1 + exp η of some rows: see `completed`."""
        if not self.is_divided:
            odds = self.of_rows(some)
            odds += 1
            product *= np.multiply.reduce(odds, axis=0)
            return
        odds = self._of_across(some)
        buffer = np.empty(odds.shape[1:])
        parts = product.reshape(len(self.first), *buffer.shape)
        for part, divided in zip(parts, np.exp(-self.first), strict=True):
            for row in odds:
                part *= np.add(row, divided, out=buffer)

    def mean_slopes(self, some: slice, shares: Array) -> Array:
        """Means over nodes of exp η/(1 + exp η), of some rows of a grid: (r, n_points, g)."""
        odds = self._of_across(some)
        buffer = np.empty(odds.shape[1:])
        parts = shares.reshape(len(self.first), *buffer.shape)
        means = np.zeros((len(odds), *buffer.shape[1:]))
        for part, divided in zip(parts, np.exp(-self.first), strict=True):
            for row, mean in zip(odds, means, strict=True):
                np.divide(row, np.add(row, divided, out=buffer), out=buffer)
                mean += np.einsum("kpg,kpg->pg", buffer, part)
        return means

    def completed(self, totals: Array) -> Array:
        """Σ log(1 + exp η) over all rows, (m, n_points, g), from products by `multiply`.

        On a grid, 1 + exp(a + b) = exp a (exp -a + exp b), where a is the same for all rows.
        """
        if self.is_divided:
            by_along = totals.reshape(len(self.first), -1, *self.first.shape[1:])
            by_along += (len(self.rows.offsets) * self.first)[:, None]
        return totals

    @property
    def is_divided(self) -> bool:
        """Whether nodes are a grid along which the same is added to η of all rows of a group."""
        return self.across is not None and self.along is not None and self.rows.has_ones

    def _of_across(self, some: slice) -> Array:
        assert self.across is not None
        eta = self.rows.eta(self.across, some)
        return np.asarray(np.exp(eta, out=eta))

    @cached_property
    def _of_along(self) -> Array:
        return np.asarray(np.exp(np.minimum(self.first, FURTHEST)))

    @property
    def largest_factor(self) -> float:
        """A number that the logarithm of no factor of `multiply` exceeds in size."""
        return float(np.logaddexp(max(self._reach[-1], 0.0), self._largest_eta))

    @cached_property
    def _largest_eta(self) -> float:
        """A number that no η exceeds."""
        return float(self.rows.offsets.max() + sum(self._reach))

    @cached_property
    def is_moderate(self) -> bool:
        """Whether the factors of exp η are finite, and so are their products."""
        before = self.rows.offsets.max() if self.across is None else self._largest_eta
        return bool(before <= FURTHEST and max(self._reach) <= FURTHEST)

    @cached_property
    def _reach(self) -> tuple[float, ...]:
        """How much each parameter of a group, and what is added along, can change η."""
        along = 0.0 if self.along is None else float(np.abs(self.along).max())
        if self.across is None:
            return (along,)
        assert self.rows.varying is not None
        columns = np.abs(self.rows.varying).max(axis=(0, 2))
        reach = columns * np.abs(self.across).max(axis=(1, 2, 3))
        return (*reach.tolist(), along * float(columns[0]))


def parts(n: int, n_entries: int, most: int = 1 << 30) -> Iterator[slice]:
    """Slices of n rows or points that fit into the cache, with so many entries for each.

    A slice has at most `most` of them.
    """
    at_once = max(1, min(most, _ENTRIES // max(n_entries, 1)))
    for first in range(0, n, at_once):
        yield slice(first, min(first + at_once, n))
