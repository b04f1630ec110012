"""Evaluates log densities of shards in passes: one shard after the other, or in several threads."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from quorate._types import Array
from quorate.engines.workers.pulse import Pulse
from quorate.models.subposterior import Densities, Target, densities, densities_and_gradients
from quorate.models.undefined import UndefinedPoints

_STEP = "evaluate"
_Function = Callable[[Target, Array], Densities]


class Evaluation:
    """Log densities of the shards of a process.

    Parameters
    ----------
    target
        The subposterior of a shard. It is called again before anything may be said of the shard.
    n_threads
        How many shards are evaluated at the same time. More than 1 only for models that allow it.
    """

    def __init__(self, target: Callable[[int], Target], pulse: Pulse, n_threads: int) -> None:
        self._target = target
        self._pulse = pulse
        self._threads = ThreadPoolExecutor(n_threads) if n_threads > 1 else None
        self._undefined: dict[int, UndefinedPoints] = {}

    def of(
        self, shards: Sequence[int], points: Array, *, with_gradient: bool, is_check: bool
    ) -> Iterator[Densities]:
        """Log densities of shards at `points` (n, d), and gradients (n, d), shard by shard.

        A check judges points without density itself; in a pass, too many of them are an error.
        """
        function = densities_and_gradients if with_gradient else densities
        for shard, found in self._evaluated(shards, function, points):
            if not is_check:
                counts = self._undefined.setdefault(shard, UndefinedPoints(self._target(shard)))
                counts.count(points, found.undefined)
            yield found

    def _evaluated(
        self, shards: Sequence[int], function: _Function, points: Array
    ) -> Iterator[tuple[int, Densities]]:
        if self._threads is not None and len(shards) > 1:
            yield from zip(shards, self._in_threads(shards, function, points), strict=True)
            return
        for shard in shards:
            target = self._target(shard)
            with self._pulse.doing(_STEP):
                found = function(target, points)
            yield shard, found

    def _in_threads(
        self, shards: Sequence[int], function: _Function, points: Array
    ) -> list[Densities]:
        """All shards as one step: steps are those of one thread, so targets must not tell any."""
        assert self._threads is not None
        targets = [self._target(shard) for shard in shards]
        silent = [Target(target.model, target.shard, target.n_shards) for target in targets]
        found: list[Densities] = []
        with self._pulse.doing(_STEP):
            under_way = [self._threads.submit(function, target, points) for target in silent]
            for shard, result in zip(shards, under_way, strict=True):
                self._target(shard)
                found.append(result.result())
        return found
