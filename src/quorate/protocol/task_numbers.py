"""Numbers of the draws that workers are asked for."""

from quorate.protocol.allocation import Allocation
from quorate.protocol.messages import Task

_OPEN_ENDED = 32  # batches asked for at a time where there is no end in sight


class BatchCounter:
    """Asks each worker for batches 0, 1, 2, … of all the shards it holds."""

    def __init__(self, allocation: Allocation) -> None:
        self.n_received = [0] * allocation.n_workers  # of each worker, for its scheme to count
        self._n_assigned = [0] * allocation.n_workers
        self._held = allocation.held

    def up_to(self, n_draws: int | None, worker: int, chain: int) -> Task | None:
        """All batches of `worker` before `n_draws` that it has not been asked for, if any."""
        n_assigned = self._n_assigned[worker]
        n_more = _OPEN_ENDED if n_draws is None else n_draws - n_assigned
        return self.more(n_more, worker, chain) if n_more > 0 else None

    def more(self, n_more: int, worker: int, chain: int) -> Task:
        """The next `n_more` batches of `worker`."""
        first = self._n_assigned[worker]
        self._n_assigned[worker] = first + n_more
        return Task(worker, self._held[worker], chain, first, n_more)

    def take_back(self, worker: int) -> None:
        """Ask again for what `worker` was asked for and has not sent."""
        self._n_assigned[worker] = self.n_received[worker]


class DrawCounter:
    """Asks workers for draws of one shard at a time: 0, 1, 2, … of each (worker, shard).

    `n_started[s]` is how many draws of shard s are received or under way.
    """

    def __init__(self, n_workers: int) -> None:
        self.n_started = [0] * n_workers
        self._n_assigned: list[dict[int, int]] = [{} for _ in range(n_workers)]
        self._n_received: list[dict[int, int]] = [{} for _ in range(n_workers)]

    def more(self, n_more: int, worker: int, shard: int, chain: int) -> Task:
        """The next `n_more` draws of `shard` by `worker`."""
        assigned = self._n_assigned[worker]
        first = assigned.get(shard, 0)
        assigned[shard] = first + n_more
        self.n_started[shard] += n_more
        return Task(worker, (shard,), chain, first, n_more)

    def received(self, worker: int, shard: int, n: int) -> None:
        """Note that `n` of them have arrived."""
        received = self._n_received[worker]
        received[shard] = received.get(shard, 0) + n

    def take_back(self, worker: int) -> None:
        """Ask again for what `worker` was asked for and has not sent."""
        received = self._n_received[worker]
        for shard, n_assigned in self._n_assigned[worker].items():
            self.n_started[shard] -= n_assigned - received.get(shard, 0)
        self._n_assigned[worker] = dict(received)
