"""Starts the actors of a run on Ray: hosts of workers, and relays to processes of a node."""

from typing import Any

from quorate.data.placed import PlacedShards
from quorate.data.write import ShardSet
from quorate.engines.ray.actors import CALLS_OF_RELAY
from quorate.engines.ray.homes import on
from quorate.engines.ray.host import Host
from quorate.engines.ray.relay import Relay
from quorate.engines.workers.service import environment

BEATS = "beats"  # the threads of an actor that answer for signs of life


class Starts:
    """Starts actors that reserve no core: there may be more workers than cores.

    They reserve one byte of memory, because Ray ignores the node for actors without resources.

    Parameters
    ----------
    is_soft
        Whether an actor may live elsewhere if its node is gone.
    """

    def __init__(self, ray: Any, shards: ShardSet | PlacedShards, *, is_soft: bool) -> None:
        self._ray, self._shards, self._is_soft = ray, shards, is_soft

    def host(self, node: str, n_gpus: float) -> Any:
        """An actor that computes for its workers itself."""
        return self._on(node, Host, num_gpus=n_gpus).remote(self._shards.fingerprint)

    def relay(self, node: str, hosted: list[list[int]], *, is_team: bool) -> Any:
        """An actor whose workers live in processes of its own: those of each are `hosted`."""
        shards: Any = self._shards
        if isinstance(shards, ShardSet):
            shards = str(shards.folder), shards.fingerprint
        relay = self._on(node, Relay, max_concurrency=CALLS_OF_RELAY)
        return relay.remote(hosted, shards, is_team=is_team)

    def _on(self, node: str, kind: type, **more: Any) -> Any:
        resources = {"num_cpus": 0, "num_gpus": 0, "memory": 1, "max_restarts": 0, **more}
        actor_class = self._ray.remote(**resources, concurrency_groups={BEATS: 1})(kind)
        surroundings = {"runtime_env": {"env_vars": environment()}}
        return actor_class.options(**surroundings, **on(node, soft=self._is_soft))
