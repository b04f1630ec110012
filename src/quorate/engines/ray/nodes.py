"""What is known of the nodes of a Ray cluster: a thread looks at them once a second.

Ray takes about a minute to declare a node dead. A node under suspicion is not used until it lets us
connect, which takes milliseconds where all is well. A node that refuses, or does not answer within
two seconds, is out of reach: its workers are lost at once.
"""

import selectors
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress

from quorate.engines.placement import Nodes, usable
from quorate.engines.ray.cluster import Cluster, Node

_BETWEEN_LOOKS = 1.0  # seconds
_PATIENCE = 2.0  # seconds to connect to a node; a lost packet is sent again after one
_STEADY = 5.0  # seconds that a node must be there before workers move to it
_ENDING = 5.0  # seconds for the thread to end


class NodeWatch:
    """Which nodes are there, which of them drain, and which are out of reach.

    Parameters
    ----------
    cluster
        Connected. It must outlive the watch.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._look_now = threading.Event()
        self._ends = False
        self._nodes = cluster.nodes()
        self._since = dict.fromkeys(self._nodes, -_STEADY)  # when each node became usable
        self._to_check: set[str] = set()
        self._suspects: set[str] = set()  # not used until they are checked
        self._out_of_reach: set[str] = set()
        self._draining: set[str] = set()
        self._thread = threading.Thread(target=self._watch, name="nodes of Ray", daemon=True)
        self._thread.start()

    @property
    def out_of_reach(self) -> set[str]:
        """Nodes that cannot be connected to."""
        with self._lock:
            return set(self._out_of_reach)

    @property
    def draining(self) -> set[str]:
        """Nodes that will soon be taken away."""
        with self._lock:
            return set(self._draining)

    def host(self, node: str) -> str:
        """The address of the machine of a node, for people."""
        with self._lock:
            return self._nodes[node].address[0] if node in self._nodes else node

    def cores(self, node: str) -> int:
        """The number of cores of a node, at least 1."""
        with self._lock:
            return max(int(self._nodes[node].cores), 1) if node in self._nodes else 1

    def usable(self) -> Nodes:
        """Nodes that a worker may be started on: all others, if none is free of trouble."""
        with self._lock:
            cores = {name: node.cores for name, node in self._nodes.items()}
            return usable(usable(cores, self._draining), self._suspects | self._out_of_reach)

    def steady(self) -> Nodes:
        """Nodes that have been usable for some seconds, and may have workers move to them."""
        now = time.monotonic()
        with self._lock:
            settled = {node for node, since in self._since.items() if now - since >= _STEADY}
            settled -= self._draining | self._out_of_reach
            return {name: node.cores for name, node in self._nodes.items() if name in settled}

    def unsettle(self, node: str) -> None:
        """Let a node that had trouble wait before workers move to it."""
        with self._lock:
            self._since.pop(node, None)

    def check(self, node: str) -> None:
        """See soon whether a node lets us connect."""
        with self._lock:
            self._to_check.add(node)
        self._look_now.set()

    def suspect(self, node: str) -> None:
        """Avoid a node until it lets us connect."""
        with self._lock:
            self._suspects.add(node)
            self._to_check.add(node)
        self._look_now.set()

    def close(self) -> None:
        """End the thread."""
        self._ends = True
        self._look_now.set()
        self._thread.join(_ENDING)

    def _watch(self) -> None:
        while not self._ends:
            self._look_now.wait(_BETWEEN_LOOKS)
            self._look_now.clear()
            with suppress(Exception):  # the head is away: what was known stays
                self._look(self._cluster.nodes(), self._cluster.draining())

    def _look(self, nodes: Mapping[str, Node], draining: set[str]) -> None:
        with self._lock:
            self._nodes, self._draining = dict(nodes), draining & nodes.keys()
            checked = (self._to_check | self._out_of_reach) & nodes.keys()
            self._to_check.clear()
        reached = reachable({name: nodes[name].address for name in checked}, _PATIENCE)
        now = time.monotonic()
        with self._lock:
            self._suspects -= checked - self._to_check  # some are suspected once more
            self._out_of_reach = checked - reached
            fine = nodes.keys() - self._out_of_reach - self._draining
            self._since = {node: self._since.get(node, now) for node in fine}


def reachable(addresses: Mapping[str, tuple[str, int]], seconds: float) -> set[str]:
    """Names of the addresses that let us connect within some seconds."""
    reached: set[str] = set()
    with selectors.DefaultSelector() as waiting, ExitStack() as links:
        for name, address in addresses.items():
            link = links.enter_context(_connecting(address))
            waiting.register(link, selectors.EVENT_WRITE, name)
        until = time.monotonic() + seconds
        while waiting.get_map() and (left := until - time.monotonic()) > 0:
            for key, _ in waiting.select(left):
                waiting.unregister(key.fileobj)
                if _is_connected(key.fileobj):
                    reached.add(key.data)
    return reached


def _connecting(address: tuple[str, int]) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    link = socket.socket(family, socket.SOCK_STREAM)
    link.setblocking(False)
    link.connect_ex(address)
    return link


def _is_connected(link: object) -> bool:
    assert isinstance(link, socket.socket)
    try:
        link.getpeername()
    except OSError:
        return False
    return True
