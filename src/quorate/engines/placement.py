"""Which worker lives on which node: holders of one shard apart, where that can be.

Redundancy is worth nothing if all holders of a shard go with one machine.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

Held = Sequence[Sequence[int]]  # the shards of every worker
Nodes = Mapping[str, float]  # how much each node can carry, by name


def placement(held: Held, nodes: Nodes) -> dict[int, str]:
    """A node for every worker.

    Workers are given, one after the other, the node where the fewest of their shards are already,
    and of those the one with the least load; then each may move, as long as that betters it. So no
    two holders of a shard meet where they are in groups and there are r nodes, nor where there are
    more nodes than any worker has others to keep away from. To find out whether it can be avoided
    at all is a colouring problem, which nobody can solve in reasonable time for any allocation.
    """
    placed: dict[int, str] = {}
    for worker in range(len(held)):
        placed[worker] = place(worker, held, nodes, placed)
    moved = True
    while moved:  # ends: whoever moves shares fewer shards, or as many on a node with less load
        moved = False
        for worker in placed:
            better = place(worker, held, nodes, placed)
            moved, placed[worker] = moved or better != placed[worker], better
    return placed


def place(worker: int, held: Held, nodes: Nodes, placed: Mapping[int, str]) -> str:
    """The node for one worker, given where the others are; where it is, if none is better."""
    mine = set(held[worker])
    shared: Counter[str] = Counter()
    load: Counter[str] = Counter()
    for other, node in placed.items():
        if other != worker:
            load[node] += 1
            shared[node] += len(mine.intersection(held[other]))

    def cost(node: str) -> tuple[int, float, bool]:
        return shared[node], (load[node] + 1) / nodes[node], node != placed.get(worker)

    return min(nodes, key=cost)
