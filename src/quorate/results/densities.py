"""Densities of the scalars of a run in a file: for pictures, without the model and its draws."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from quorate.results.marginals import Curve, Marginal

_EVERY = 6  # of the points of a density
_DIGITS = 4


@dataclass(frozen=True)
class Densities:
    """What there is to see.

    Parameters
    ----------
    marginals
        The first scalars.
    shards
        `marginals[i].shards[j]` is of shard `shards[j]`.
    n_more
        Scalars that are not among them.
    """

    marginals: Sequence[Marginal]
    shards: Sequence[int]
    n_more: int = 0

    def thinned(self) -> "Densities":
        """With as many points as the eye sees on a small picture."""
        fewer = [
            Marginal(m.name, m.merged.thinned(_EVERY), [c.thinned(_EVERY) for c in m.shards])
            for m in self.marginals
        ]
        return replace(self, marginals=fewer)

    def save(self, path: Path) -> None:
        """As JSON, thinned."""
        told = {
            "shards": list(self.shards),
            "n_more": self.n_more,
            "scalars": [
                {"name": m.name, "merged": _row(m.merged), "shards": list(map(_row, m.shards))}
                for m in self.thinned().marginals
            ],
        }
        path.write_text(json.dumps(told))

    @classmethod
    def load(cls, path: Path) -> "Densities":
        """What `save` has written; ValueError if it is anything else."""
        try:
            told = json.loads(path.read_bytes())
            shards = [int(shard) for shard in told["shards"]]
            listed = [
                Marginal(str(row["name"]), _curve(row["merged"]), list(map(_curve, row["shards"])))
                for row in told["scalars"]
            ]
            found = cls(listed, shards, int(told["n_more"]))
        except (TypeError, KeyError, RecursionError, OverflowError) as error:
            raise ValueError(str(error)) from None
        if any(len(marginal.shards) != len(shards) for marginal in listed):
            raise ValueError("a shard is lacking")
        return found


def _row(curve: Curve) -> list[Any]:
    return [curve.low, curve.high, [float(f"{h:.{_DIGITS}g}") for h in curve.heights]]


def _curve(row: Any) -> Curve:
    low, high, heights = row
    curve = Curve(float(low), float(high), np.array(heights, dtype=np.float64).reshape(-1))
    if not np.isfinite([curve.low, curve.high, *curve.heights]).all():
        raise ValueError("a number is not finite")
    return curve
