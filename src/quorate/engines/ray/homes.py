"""Where the workers of a run on Ray live: nodes are chosen, avoided and left.

A node whose workers are all silent is suspected, and avoided until it answers. Workers leave a node
that drains. They move to a node that was added, or that is back, if they are better placed there.
"""

from collections.abc import Collection, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from quorate.engines.placement import (
    Held,
    Nodes,
    is_silent,
    place,
    placement,
    settled,
    usable,
)
from quorate.engines.ray.cluster import Cluster
from quorate.engines.ray.nodes import NodeWatch

_SUSPICIOUS = 2.0  # seconds that signs of life may take before we try to connect to their node


class Leaving(NamedTuple):
    """A worker that has lost its node, or leaves it."""

    worker: int
    why: str


class Homes:
    """Chooses the nodes that workers live on.

    Attributes
    ----------
    placed
        The node of every worker.

    Parameters
    ----------
    cluster
        Connected. It must outlive this object.
    held
        The shards of every worker.
    sites
        The site of each worker whose rows lie at one site only. It lives there or nowhere.
    """

    def __init__(
        self, cluster: Cluster, held: Held, sites: Mapping[int, str] = MappingProxyType({})
    ) -> None:
        self.placed: dict[int, str] = {}
        self.sites = sites
        self._cluster = cluster
        self._ray = cluster.ray
        self._held = held
        self._watch = NodeWatch(cluster)
        self._asked: dict[str, Any] = {}  # nodes that were silent, with their answers to come
        self._known: object = None  # the nodes and places that the last moves were found for
        self._better: dict[int, str] = {}

    def close(self) -> None:
        """End what watches the nodes."""
        self._watch.close()
        self._asked.clear()

    def choose(self, worker: int) -> str | None:
        """The node for a worker that is started: it keeps holders of a shard apart.

        None if its rows lie at a site that is not in the cluster.
        """
        if worker in self.sites:
            node = self._cluster.node_of(self.sites[worker])
            self.placed.update({} if node is None else {worker: node})
            return node
        nodes = usable(self._watch.usable(), self._silent_nodes())
        if not self.placed:
            self.placed = placement(self._held, nodes)
        else:
            self.placed[worker] = place(worker, self._held, nodes, self.placed)
        return self.placed[worker]

    def suspect(self, node: str) -> None:
        """Avoid a node until it lets us connect."""
        self._watch.suspect(node)

    def host(self, node: str) -> str:
        """The address of the machine of a node, for people."""
        return self._watch.host(node)

    def ask_if_silent(
        self, node: str, lives: Mapping[int, str], waited: Mapping[int, float]
    ) -> None:
        """Have a node run something, if none of its workers answers; avoid it until it has."""
        if node not in self._asked and is_silent(node, lives, waited):
            self._asked[node] = self._question(node)

    def _question(self, node: str) -> Any:
        """The answer to come of a node that has to run something."""
        nothing = self._ray.remote(num_cpus=0, max_retries=0)(lambda: None)
        return nothing.options(**on(node, soft=False)).remote()

    def lost(self, lives: Mapping[int, str], waited: Mapping[int, float]) -> list[Leaving]:
        """Workers on nodes that are out of reach; not those whose rows lie there, who cannot leave.

        `lives` are the nodes of the workers that are there, and `waited` the seconds that each has
        owed us a sign of life.
        """
        for node in set(lives.values()):
            if is_silent(node, lives, waited, _SUSPICIOUS):
                self._watch.check(node)
        gone = self._watch.out_of_reach
        return [
            Leaving(worker, f"its node {self._watch.host(node)} cannot be reached")
            for worker, node in lives.items()
            if node in gone and worker not in self.sites
        ]

    def moves(self, lives: Mapping[int, str], at_ease: Collection[int]) -> list[Leaving]:
        """Workers to start again on another node; `placed` says where.

        `at_ease` are workers that lose little by it. Of the holders of a shard only one moves at a
        time, so that the others go on.
        """
        draining = self._watch.draining
        leaving = [worker for worker, node in lives.items() if node in draining]
        moves = [
            Leaving(k, f"its node {self._watch.host(lives[k])} is being drained")
            for k in leaving
            if self._finds_another(k)
        ]
        if moves:
            return moves
        busy = {shard for k in lives if k not in at_ease for shard in self._held[k]}
        for worker, node in self._improvements().items():
            if worker in at_ease and busy.isdisjoint(self._held[worker]):
                busy.update(self._held[worker])
                self.placed[worker] = node
                why = f"it has more room on node {self._watch.host(node)}"
                moves.append(Leaving(worker, why))
        return moves

    def _finds_another(self, worker: int) -> bool:
        before = self.placed[worker]
        return self.choose(worker) not in (before, None)

    def _improvements(self) -> dict[int, str]:
        """Better nodes of workers; found anew when nodes or places have changed."""
        if self.sites:
            return {}
        nodes = usable(self._watch.steady(), self._silent_nodes())
        known = nodes, dict(self.placed)
        if self._known is None:
            self._better = {}
        elif known != self._known:
            self._better = _better(self._held, nodes, self.placed)
        self._known = known
        return self._better

    def _silent_nodes(self) -> set[str]:
        """Nodes that were silent and have not answered since."""
        for node, answer in list(self._asked.items()):
            answered, _ = self._ray.wait([answer], timeout=0)
            if not answered:
                continue
            try:
                self._ray.get(answered)
            except self._ray.exceptions.RayError:  # Ray has given it up: the node is asked again
                self._asked[node] = self._question(node)
            else:
                del self._asked[node]
                self._watch.unsettle(node)
        return set(self._asked)


def _better(held: Held, nodes: Nodes, placed: Mapping[int, str]) -> dict[int, str]:
    """Better nodes for those workers that have one among `nodes`."""
    improved = settled(held, nodes, placed)
    return {k: improved[k] for k in placed if improved[k] != placed[k]}


def on(node: str, *, soft: bool) -> dict[str, Any]:
    """The option that has Ray use a node; with `soft`, another one if it is gone."""
    strategies = import_module("ray.util.scheduling_strategies")
    strategy = strategies.NodeAffinitySchedulingStrategy(node, soft=soft)
    return {"scheduling_strategy": strategy}


def no_site(site: str) -> str:
    """That a site is not in the cluster, and what to do, in words."""
    return (
        f"no node of the cluster is the site {site}. Start one there, with a host name or address "
        f"of this name, or with ray start --resources '{{\"{site}\": 1}}'"
    )
