"""Which chain the batches of a cell come from, as they arrive."""

from collections.abc import Sequence
from typing import NamedTuple

from quorate._types import Array
from quorate.protocol.columns import concatenated


class Stretch(NamedTuple):
    """Batches of one chain that arrived one after the other."""

    chain: int
    n: int


def extend(stretches: list[Stretch], chain: int, n: int) -> None:
    """Note that n batches of a chain have arrived."""
    if stretches and stretches[-1].chain == chain:
        n += stretches.pop().n
    stretches.append(Stretch(chain, n))


def by_chain(batches: Array, stretches: Sequence[Stretch]) -> list[Array]:
    """Batches of each chain, in order of the chains."""
    found: dict[int, list[Array]] = {}
    first = 0
    for chain, n in stretches:
        found.setdefault(chain, []).append(batches[first : first + n])
        first += n
    return [concatenated(found[chain]) for chain in sorted(found)]


def of_shard(batches: Array, stretches: Sequence[Stretch], i: int) -> Array:
    """Draws of the i-th shard of a cell, one chain after the other, (n, d)."""
    return concatenated(by_chain(batches, stretches))[:, i]
