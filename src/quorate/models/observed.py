"""The rows of a shard of a regression, with what may come with them: weights, trials, offsets."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate._types import Array, BoolArray, IntArray
from quorate.errors import require
from quorate.models.protocol import Shard


@dataclass(frozen=True)
class Observed:
    """Rows of a regression.

    Parameters
    ----------
    columns
        X, (n, p).
    response
        y, (n,).
    weights
        How many times each row counts, (n,): its log-likelihood is multiplied by this number. None
        if every row counts once.
    trials
        The number of trials of which y are successes, (n,). None for all but binomial counts.
    offset
        What is added to η = Xβ, (n,). None if nothing is.
    """

    columns: Array
    response: Array
    weights: Array | None = None
    trials: Array | None = None
    offset: Array | None = None

    def at(self, rows: BoolArray | IntArray) -> "Observed":
        """Some of the rows."""
        extras = (self.weights, self.trials, self.offset)
        some = (None if each is None else each[rows] for each in extras)
        return Observed(self.columns[rows], self.response[rows], *some)

    @property
    def weighted_response(self) -> Array:
        """The weights times y."""
        return self.response if self.weights is None else self.weights * self.response

    @property
    def counts(self) -> Array | None:
        """The weights times the trials; None if all are 1."""
        if self.weights is None or self.trials is None:
            return self.trials if self.weights is None else self.weights
        return self.weights * self.trials

    @property
    def total(self) -> float:
        """The sum of the weights."""
        return len(self.response) if self.weights is None else float(self.weights.sum())

    @property
    def table(self) -> Array:
        """X, and the offset as one more column if there is one."""
        return self.columns if self.offset is None else np.column_stack([self.columns, self.offset])

    @property
    def residual_response(self) -> Array:
        """The response without its offset, for models of y - offset."""
        return self.response if self.offset is None else self.response - self.offset

    def rooted(self, values: Array) -> Array:
        """Rows of `values`, (n,) or (n, q), times the roots of the weights."""
        if self.weights is None:
            return values
        roots = np.sqrt(self.weights)
        return roots * values if values.ndim == 1 else roots[:, None] * values

    def weighted_sum(self, values: Array) -> float:
        """The sum of one number for each row, times its weight."""
        return float(values.sum() if self.weights is None else self.weights @ values)

    def require_no_trials(self) -> None:
        """Raise if the rows have trials, for families of other responses."""
        require(
            self.trials is None,
            "The rows have trials, which belong to binomial counts. Use the family binomial, or "
            "leave out the trials.",
        )


def extras_of(shard: Shard, n_rows: int) -> dict[str, Array]:
    """The weights, trials and offset of a shard, checked; only those that it holds."""
    found = {}
    for name, rule in _RULES.items():
        if name not in shard:
            continue
        values = np.asarray(shard[name], dtype=np.float64)
        right = values.shape == (n_rows,)
        require(right, f"{name} has shape {values.shape}. Each of the {n_rows} rows needs one.")
        fine = np.isfinite(values) & _is_fine(name, values)
        row = int(np.argmin(fine)) if n_rows else 0
        require(bool(fine.all()), f"{name}[{row}] is {values[row : row + 1]}. {rule}")
        found[name] = values
    return found


def _is_fine(name: str, values: Array) -> Any:
    if name == "offset":
        return True
    return (values >= 0) & ((name == "weights") | (values == np.floor(values)))


_RULES = {
    "weights": "A weight is a number, 0 or above.",
    "trials": "A number of trials is a whole number, 0 or above.",
    "offset": "An offset must be finite: drop or fill such rows.",
}
