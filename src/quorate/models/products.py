"""Sums of logarithms as logarithms of products.

A logarithm costs several times as much as a product. Σ w_i log t_i over rows of equal weight w is
w log Π t_i, so rows are put into an order in which equal weights follow each other, and each run of
them is cut into pieces whose products do not overflow.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quorate._types import Array, IntArray

_LOG_LARGEST = 400.0  # of a product, if its terms are as large as expected: far below exp 709
_MOST_TERMS = 64
_SHORTEST = 12  # terms in a product, on average, below which logarithms are as quick


@dataclass(frozen=True)
class Alike:
    """Rows in an order where rows of equal weights follow each other.

    Parameters
    ----------
    order
        Places of the rows, (n,); None if the rows are in such an order already.
    cuts
        Where in this order each product begins, (n_products,).
    pays
        Whether products have enough terms to be worth it.
    """

    order: IntArray | None
    cuts: IntArray
    pays: bool

    def within(self, start: int, stop: int) -> IntArray:
        """Bounds of the products of a chunk of rows, counted from its start."""
        first, last = np.searchsorted(self.cuts, [start + 1, stop])
        return np.concatenate([[start], self.cuts[first:last], [stop]]) - start


def alike(weights: Sequence[Array], largest: float) -> Alike:
    """The order of rows by their weights.

    Parameters
    ----------
    weights
        Numbers of the rows, (n,) each. Rows are alike if they agree in all of them.
    largest
        About how large a term may be. Terms above that are allowed: a product may be inf.
    """
    n_rows = len(weights[0])
    changes = _changes(weights)
    order = None
    if len(changes):
        order = np.lexsort(tuple(weights))
        changes = _changes([weight[order] for weight in weights])
    n_terms = int(np.clip(_LOG_LARGEST / np.log(max(largest, 2.0)), 1, _MOST_TERMS))
    cuts = np.union1d(np.arange(0, n_rows, n_terms), changes)
    return Alike(order, cuts, bool(_SHORTEST * len(cuts) <= n_rows))


def log_products(terms: Array, bounds: IntArray) -> Array:
    """Logarithms of products over rows of `terms` (rows, n_points), (n_products, n_points)."""
    products = np.empty((len(bounds) - 1, terms.shape[1]))
    for product, start, stop in zip(products, bounds[:-1], bounds[1:], strict=True):
        np.multiply.reduce(terms[start:stop], axis=0, out=product)
    return np.asarray(np.log(products, out=products))


def _changes(weights: Sequence[Array]) -> IntArray:
    """Places of rows that differ from the row before them."""
    differ = np.zeros(max(len(weights[0]) - 1, 0), dtype=bool)
    for weight in weights:
        differ |= weight[1:] != weight[:-1]
    return np.asarray(np.flatnonzero(differ) + 1)
