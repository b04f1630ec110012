"""Delays and deaths put in on purpose, for demonstrations and tests."""

from dataclasses import dataclass

from quorate.engines.latency import parse_dead, parse_slow
from quorate.errors import require


@dataclass(frozen=True)
class Handicap:
    """What is done to one worker.

    Every block takes `factor` times as long as it would. `tail_index`, if given, draws one more
    factor of mean 1 from a Pareto distribution for each block. The worker dies after `dies_after`
    blocks, if given.
    """

    factor: float = 1.0
    tail_index: float | None = None
    dies_after: int | None = None

    def seconds(self, spent: float, uniform: float) -> float:
        """How long to wait after a block that took `spent` seconds."""
        factor = self.factor
        if self.tail_index is not None:
            scale = (self.tail_index - 1) / self.tail_index
            factor *= scale * uniform ** (-1 / self.tail_index)
        return spent * max(factor - 1.0, 0.0)


@dataclass(frozen=True)
class Faults:
    """Delays and deaths put in on purpose.

    Parameters
    ----------
    slow
        Make workers slower: "2x10" makes two of them ten times slower.
    dead
        End workers: "2@5" ends two of them after five blocks.
    straggle
        Delay every block by a random Pareto factor of mean 1 with this tail index, above 1.
    """

    slow: str | None = None
    dead: str | None = None
    straggle: float | None = None

    def __post_init__(self) -> None:
        require(
            self.straggle is None or self.straggle > 1,
            f"straggle must be above 1, not {self.straggle}: a Pareto factor with a smaller tail "
            "index has no mean.",
        )
        self._counts()

    def handicaps(self, n_workers: int) -> dict[int, Handicap]:
        """What is done to each worker: the slow ones come first, the dying ones last."""
        (n_slow, factor), (n_dead, after) = self._counts()
        require(
            n_slow + n_dead <= n_workers,
            f"{n_slow + n_dead} workers are to be slow or dead, but there are only {n_workers}.",
        )
        return {
            worker: Handicap(
                factor=factor if worker < n_slow else 1.0,
                tail_index=self.straggle,
                dies_after=int(after) + 1 if worker >= n_workers - n_dead else None,
            )
            for worker in range(n_workers)
        }

    def _counts(self) -> tuple[tuple[int, float], tuple[int, float]]:
        slow = parse_slow(self.slow) if self.slow is not None else (0, 1.0)
        dead = parse_dead(self.dead) if self.dead is not None else (0, 0.0)
        return slow, dead
