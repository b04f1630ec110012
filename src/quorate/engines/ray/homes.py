"""Where the actors of a run on Ray live: nodes are chosen, avoided and left.

A node whose actors are all silent is suspected, and avoided until it answers. Actors leave a node
that drains. They move to a node that was added, or that is back, if they are better placed there.
An actor has a number. It holds the shards of all its workers.
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
    """An actor that has lost its node, or leaves it."""

    actor: int
    why: str


class Homes:
    """Chooses the nodes that actors live on.

    Attributes
    ----------
    placed
        The node of every actor.

    Parameters
    ----------
    cluster
        Connected. It must outlive this object.
    held
        The shards of every actor.
    sites
        The site of each actor whose rows lie at one site only. It lives there or nowhere.
    is_even
        Whether nodes get as many actors each, whatever their number of cores.
    """

    def __init__(
        self,
        cluster: Cluster,
        held: Held,
        sites: Mapping[int, str] = MappingProxyType({}),
        *,
        is_even: bool = False,
    ) -> None:
        self.placed: dict[int, str] = {}
        self.sites = sites
        self._cluster = cluster
        self._ray = cluster.ray
        self._held = held
        self._is_even = is_even
        self._watch = NodeWatch(cluster)
        self._asked: dict[str, Any] = {}  # nodes that were silent, with their answers to come
        self._known: object = None  # the nodes and places that the last moves were found for
        self._better: dict[int, str] = {}

    def close(self) -> None:
        """End what watches the nodes."""
        self._watch.close()
        self._asked.clear()

    def choose(self, actor: int) -> str | None:
        """The node for an actor that is started: it keeps holders of a shard apart.

        None if its rows lie at a site that is not in the cluster.
        """
        if actor in self.sites:
            node = self._cluster.node_of(self.sites[actor])
            self.placed.update({} if node is None else {actor: node})
            return node
        nodes = self._without_silent(self._watch.usable())
        if not self.placed:
            self.placed = placement(self._held, nodes)
        else:
            self.placed[actor] = place(actor, self._held, nodes, self.placed)
        return self.placed[actor]

    def suspect(self, node: str) -> None:
        """Avoid a node until it lets us connect."""
        self._watch.suspect(node)

    def host(self, node: str) -> str:
        """The address of the machine of a node, for people."""
        return self._watch.host(node)

    def cores(self, node: str) -> int:
        """The number of cores of a node."""
        return self._watch.cores(node)

    def ask_if_silent(
        self, node: str, lives: Mapping[int, str], waited: Mapping[int, float]
    ) -> None:
        """Have a node run something, if none of its actors answers; avoid it until it has."""
        if node not in self._asked and is_silent(node, lives, waited):
            self._asked[node] = self._question(node)

    def _question(self, node: str) -> Any:
        """The answer to come of a node that has to run something."""
        nothing = self._ray.remote(num_cpus=0, max_retries=0)(lambda: None)
        return nothing.options(**on(node, soft=False)).remote()

    def lost(self, lives: Mapping[int, str], waited: Mapping[int, float]) -> list[Leaving]:
        """Actors on nodes that are out of reach; not those whose rows lie there, who cannot leave.

        `lives` are the nodes of the actors that are there, and `waited` the seconds that each has
        owed us a sign of life.
        """
        for node in set(lives.values()):
            if is_silent(node, lives, waited, _SUSPICIOUS):
                self._watch.check(node)
        gone = self._watch.out_of_reach
        return [
            Leaving(actor, f"its node {self._watch.host(node)} cannot be reached")
            for actor, node in lives.items()
            if node in gone and actor not in self.sites
        ]

    def moves(self, lives: Mapping[int, str], at_ease: Collection[int]) -> list[Leaving]:
        """Actors to start again on another node; `placed` says where.

        `at_ease` are actors that lose little by it. Of the holders of a shard only one moves at a
        time, so that the others go on.
        """
        draining = self._watch.draining
        leaving = [actor for actor, node in lives.items() if node in draining]
        moves = [
            Leaving(actor, f"its node {self._watch.host(lives[actor])} is being drained")
            for actor in leaving
            if self._finds_another(actor)
        ]
        if moves:
            return moves
        busy = {shard for actor in lives if actor not in at_ease for shard in self._held[actor]}
        for actor, node in self._improvements().items():
            if actor in at_ease and busy.isdisjoint(self._held[actor]):
                busy.update(self._held[actor])
                self.placed[actor] = node
                why = f"it has more room on node {self._watch.host(node)}"
                moves.append(Leaving(actor, why))
        return moves

    def _finds_another(self, actor: int) -> bool:
        before = self.placed[actor]
        return self.choose(actor) not in (before, None)

    def _improvements(self) -> dict[int, str]:
        """Better nodes of actors; found anew when nodes or places have changed."""
        if self.sites:
            return {}
        nodes = self._without_silent(self._watch.steady())
        known = nodes, dict(self.placed)
        if self._known is None:
            self._better = {}
        elif known != self._known:
            self._better = _better(self._held, nodes, self.placed)
        self._known = known
        return self._better

    def _without_silent(self, nodes: Nodes) -> Nodes:
        """Nodes that are not silent, and the load that each can carry."""
        left = usable(nodes, self._silent_nodes())
        return dict.fromkeys(left, 1.0) if self._is_even else left

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
    """Better nodes for those actors that have one among `nodes`."""
    improved = settled(held, nodes, placed)
    return {actor: improved[actor] for actor in placed if improved[actor] != placed[actor]}


def on(node: str, *, soft: bool) -> dict[str, Any]:
    """The option that has Ray use a node; with `soft`, another one if it is gone."""
    strategies = import_module("ray.util.scheduling_strategies")
    strategy = strategies.NodeAffinitySchedulingStrategy(node, soft=soft)
    return {"scheduling_strategy": strategy}


def no_site(site: str) -> str:
    """A message that a site is not in the cluster, and what to do."""
    return (
        f"no node of the cluster is the site {site}. Start one there, with a host name or address "
        f"of this name, or with ray start --resources '{{\"{site}\": 1}}'"
    )
