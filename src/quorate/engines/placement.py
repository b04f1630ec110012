"""Places workers on nodes: holders of one shard on different nodes, where possible.

Redundancy is useless if all holders of a shard are lost with one machine.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

Held = Sequence[Sequence[int]]  # the shards of every worker
Nodes = Mapping[str, float]  # how much each node can carry, by name
_OVERDUE = 5.0  # seconds after which a sign of life that was asked for is overdue


def placement(held: Held, nodes: Nodes) -> dict[int, str]:
    """A node for every worker.

    One after the other, workers get the node that has the fewest of their shards, and among those
    the one with the least load. Then workers move as long as that improves their place. So no two
    holders of a shard share a node if they are in groups and there are r nodes, or if there are
    more nodes than any worker has other holders of its shards. Whether it can be avoided at all is
    a graph colouring problem, which is hard in general.
    """
    placed: dict[int, str] = {}
    for worker in range(len(held)):
        placed[worker] = place(worker, held, nodes, placed)
    return settled(held, nodes, placed)


def settled(held: Held, nodes: Nodes, placed: Mapping[int, str]) -> dict[int, str]:
    """Where workers are after each has moved as long as that improves its place.

    Workers that live on none of `nodes` stay where they are.
    """
    better, moved = dict(placed), True
    movers = [worker for worker, node in placed.items() if node in nodes]
    while moved:  # ends: a move means fewer shared shards, or as many on a node with less load
        moved = False
        for worker in movers:
            found = place(worker, held, nodes, better)
            moved, better[worker] = moved or found != better[worker], found
    return better


def place(worker: int, held: Held, nodes: Nodes, placed: Mapping[int, str]) -> str:
    """The best node for one worker, given the others; its present node, if none is better."""
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


def is_silent(
    node: str, placed: Mapping[int, str], waited: Mapping[int, float], overdue: float = _OVERDUE
) -> bool:
    """Whether all workers on a node owe a sign of life that is overdue.

    `waited` has the seconds since each worker was asked for it; 0 if it owes none.
    """
    return all(seconds > overdue for k, seconds in waited.items() if placed[k] == node)


def usable(nodes: Nodes, silent: Collection[str]) -> Nodes:
    """The nodes without those that are silent; all of them, if no other is left."""
    return {name: n for name, n in nodes.items() if name not in silent} or nodes
