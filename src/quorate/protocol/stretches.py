"""Which chain the batches of a cell come from, as they arrive."""

from collections.abc import Sequence
from typing import NamedTuple

from quorate._types import Array
from quorate.protocol.columns import concatenated


class Stretch(NamedTuple):
    """Batches of one chain that arrived one after the other, up to the next stretch."""

    chain: int
    first: int  # number of its first batch, of all batches of the cell


def by_chain(batches: Array, stretches: Sequence[Stretch]) -> list[Array]:
    """Batches of each chain, in order of the chains."""
    found: dict[int, list[Array]] = {}
    ends = [*(stretch.first for stretch in stretches[1:]), len(batches)]
    for (chain, first), end in zip(stretches, ends, strict=True):
        found.setdefault(chain, []).append(batches[first:end])
    return [concatenated(found[chain]) for chain in sorted(found)]


def of_shard(batches: Array, stretches: Sequence[Stretch], i: int) -> Array:
    """Draws of the i-th shard of a cell, one chain after the other, (n, d)."""
    return concatenated(by_chain(batches, stretches))[:, i]
