"""PSIS-LOO and WAIC of a result, summed over rows or groups as they come in."""

from dataclasses import dataclass
from math import log10, sqrt
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, IntArray
from quorate.protocol.messages import Arrays
from quorate.protocol.row_questions import CRITERIA, ITEMS

if TYPE_CHECKING:
    import xarray as xr

Kind = Literal["loo", "waic"]
_NAMES = {"loo": "PSIS-LOO", "waic": "WAIC"}
_WORST = 5  # items that are named
_BIN = 1.0  # Pareto k above which importance weights are of no use


@dataclass(frozen=True, eq=False)
class Criterion:
    """An estimate of the expected log predictive density of new data like the old.

    Parameters
    ----------
    kind
        `loo` or `waic`.
    by
        What was left out at a time: a `row`, or a `group` with all its rows.
    elpd, se
        The estimate, and its standard error.
    p
        Effective number of parameters.
    n_items
        Number of rows or groups.
    n_draws
        Number of draws.
    good_k
        Pareto k up to which an item is estimated well, with so many draws.
    n_bad, n_very_bad
        Items with k above `good_k`, and those of them with k above 1. Where there are some, the
        model is sensitive to these items, and LOO is not to be trusted. For WAIC, items whose
        log-likelihoods vary by more than 0.4.
    worst
        Labels of the items with the largest k, or variance, and these numbers.
    pointwise
        All criteria, item by item, if they were asked for.
    """

    kind: Kind
    by: str
    elpd: float
    se: float
    p: float
    n_items: int
    n_draws: int
    good_k: float
    n_bad: int
    n_very_bad: int
    worst: tuple[tuple[Any, float], ...]
    pointwise: "xr.Dataset | None" = None

    @property
    def warning(self) -> bool:
        """Whether some items are estimated badly."""
        return self.n_bad > 0

    def __repr__(self) -> str:
        name, items = _NAMES[self.kind], f"{self.n_items:,} {self.by}s"
        lines = [
            f"{name} of {items}, from {self.n_draws:,} draws",
            f"elpd_{self.kind}  {self.elpd:12.2f}  (se {self.se:.2f})",
            f"p_{self.kind}     {self.p:12.2f}",
        ]
        return "\n".join([*lines, *self._in_words()])

    def _in_words(self) -> list[str]:
        if self.kind == "waic":
            bad = f"{self.n_bad:,} {self.by}s with a variance above {_VARIANCE}"
            return [f"{bad}: use loo() instead."] if self.n_bad else []
        good = self.n_items - self.n_bad
        lines = [f"Pareto k: {good:,} good (up to {self.good_k:.2f}), {self.n_bad:,} bad"]
        if self.n_very_bad:
            lines[0] += f", {self.n_very_bad:,} of them above 1"
        return lines


_VARIANCE = 0.4  # of a log-likelihood, above which WAIC is not to be trusted


class _Sums(NamedTuple):
    """Sums over the items of one answer."""

    n_items: int
    mean: float  # of the items' parts of elpd
    squares: float  # around the mean
    p: float
    n_bad: int
    n_very_bad: int

    def plus(self, other: "_Sums") -> "_Sums":
        """Sums over the items of both."""
        n = self.n_items + other.n_items
        gap = other.mean - self.mean
        return _Sums(
            n,
            self.mean + gap * other.n_items / n,
            self.squares + other.squares + gap**2 * self.n_items * other.n_items / n,
            self.p + other.p,
            self.n_bad + other.n_bad,
            self.n_very_bad + other.n_very_bad,
        )


class CriterionAnswers:
    """Adds up answers about criteria; keeps those of all items only if they are wanted.

    Parameters
    ----------
    places
        For each shard, the places of its items in the result, by their number or code.
    labels
        Labels of all items, in the order of the result.
    """

    def __init__(
        self, kind: Kind, by: str, n_draws: int, places: Any, labels: NDArray[Any], pointwise: bool
    ) -> None:
        self._kind, self._by, self._n_draws = kind, by, n_draws
        self._places, self._labels = places, labels
        self._good_k = min(1 - 1 / log10(max(n_draws, 2)), 0.7)
        self._sums: dict[tuple[int, int], _Sums] = {}
        self._worst: list[tuple[float, int]] = []
        self._kept = np.empty((len(CRITERIA), len(labels))) if pointwise else None

    def take(self, shard: int, piece: int, found: Arrays) -> None:
        if not len(found[ITEMS]):
            return
        places: IntArray = self._places(shard, found[ITEMS])
        elpd, p, worst = self._parts(found)
        mean = float(elpd.mean())
        bad, very_bad = self._limits
        self._sums[shard, piece] = _Sums(
            len(elpd),
            mean,
            float(((elpd - mean) ** 2).sum()),
            float(p.sum()),
            int((worst > bad).sum()),
            int((worst > very_bad).sum()),
        )
        pairs = [*self._worst, *zip(worst.tolist(), places.tolist(), strict=True)]
        self._worst = sorted(pairs, key=lambda pair: (-pair[0], pair[1]))[:_WORST]
        if self._kept is not None:
            self._kept[:, places] = [found[name] for name in CRITERIA]

    def _parts(self, found: Arrays) -> tuple[Array, Array, Array]:
        """Each item's part of elpd and of p, and how hard it is to estimate."""
        if self._kind == "loo":
            pareto_k = np.nan_to_num(found["pareto_k"], nan=np.inf, posinf=np.inf)
            return found["elpd"], found["lppd"] - found["elpd"], pareto_k
        return found["lppd"] - found["variance"], found["variance"], found["variance"]

    @property
    def _limits(self) -> tuple[float, float]:
        return (self._good_k, _BIN) if self._kind == "loo" else (_VARIANCE, np.inf)

    def criterion(self) -> Criterion:
        """The criterion of all items. Sums are added in the order of the shards and pieces."""
        first, *others = (self._sums[key] for key in sorted(self._sums))
        total = first
        for sums in others:
            total = total.plus(sums)
        n = total.n_items
        return Criterion(
            self._kind,
            self._by,
            n * total.mean,
            sqrt(max(total.squares, 0.0)),
            total.p,
            n,
            self._n_draws,
            self._good_k,
            total.n_bad,
            total.n_very_bad,
            tuple((self._labels[place].item(), value) for value, place in self._worst),
            self._dataset(),
        )

    def _dataset(self) -> "xr.Dataset | None":
        if self._kept is None:
            return None
        import xarray as xr

        named = zip(CRITERIA, self._kept, strict=True)
        return xr.Dataset({name: (self._by, of) for name, of in named}, {self._by: self._labels})
