"""What a run was asked to be: kept with it, so that it can be gone on with."""

from dataclasses import dataclass
from typing import Literal

from quorate._extras import is_installed
from quorate.engines.latency import parse_dead, parse_slow
from quorate.engines.worker import Handicap
from quorate.errors import MissingExtraError, require
from quorate.protocol.scheme import Scheme
from quorate.protocol.schemes import scheme_maker
from quorate.protocol.supervisor import Limits

ENGINES = ("process", "ray")
TASKS_PER_SHARD = 20  # about; fewer let workers change the shard less often
OnLostShard = Literal["raise", "exclude"]


@dataclass(frozen=True)
class Settings:
    """All that is not the model and not the data; the words of `quorate.sample`."""

    workers: int = 8
    redundancy: int | None = None
    scheme: str = "grouped"
    draws: int = 2000
    seed: int = 1
    max_time: float | None = None
    target_ess: float | None = None
    engine: str = "process"
    processes: int | None = None
    restarts: int = 5
    on_lost_shard: OnLostShard = "raise"
    pairing: str | None = None
    weights: str | None = None
    cov_ridge: float = 0.0
    precision: str = "exact"
    precision_ridge: float | None = None
    code: str = "grouped"
    checked: bool = True
    gap: int | None = None
    slow: str | None = None
    dead: str | None = None
    straggle: float | None = None
    ray_address: str | None = None

    def __post_init__(self) -> None:
        draws, max_time, target_ess = self.draws, self.max_time, self.target_ess
        require(isinstance(draws, int) and draws >= 1, "draws", draws, "ask for at least one")
        require(max_time is None or max_time > 0, "max_time", max_time, "it must be above 0")
        require(
            target_ess is None or target_ess > 0, "target_ess", target_ess, "it must be above 0"
        )
        require(
            self.engine in ENGINES, "engine", self.engine, f"choose one of {', '.join(ENGINES)}"
        )
        processes = self.processes
        require(processes is None or processes >= 1, "processes", processes, "use at least one")
        is_ray = self.engine == "ray"
        way_out = "an actor is one worker: give the number of workers instead"
        require(not is_ray or processes is None, "processes", processes, way_out)
        address = self.ray_address
        require(is_ray or address is None, "ray_address", address, "it needs engine='ray'")
        require(self.restarts >= 0, "restarts", self.restarts, "use 0 or more")
        choices = ("raise", "exclude")
        require(
            self.scheme != "coded" or self.on_lost_shard == "raise",
            "on_lost_shard",
            self.on_lost_shard,
            "a coded sum has all shards in it: use 'raise', or another scheme",
        )
        require(
            self.on_lost_shard in choices, "on_lost_shard", self.on_lost_shard, f"one of {choices}"
        )

    @property
    def shards_per_worker(self) -> int:
        """R, which is 1 for CMC, whatever was said."""
        if self.scheme == "cmc":
            return 1
        return min(2, self.workers) if self.redundancy is None else self.redundancy

    def make_scheme(self, dim: int) -> Scheme:
        """The scheme, for one run."""
        is_exact = self.precision == "exact"
        is_coded = self.scheme == "coded"
        require(
            not is_coded or is_exact or self.cov_ridge > 0,
            "cov_ridge",
            self.cov_ridge,
            "estimated precisions need one in units of the posterior's variances, say a hundredth",
        )
        redundancy = min(2, self.workers) if self.redundancy is None else self.redundancy
        return scheme_maker(
            self.scheme,
            self.workers,
            redundancy,
            dim,
            self.cov_ridge,
            self.precision_ridge,
            self.code,
            pairing=self.pairing or ("paper" if is_coded else "all"),
            gap=self.gap,
            block_size=max(1, self.draws // TASKS_PER_SHARD),
            seed=self.seed,
            weights=self.weights or ("draws" if self.cov_ridge else "shrunk"),
            precision=self.precision,
            checked=self.checked and is_coded and is_exact,
            last=self.draws,
        )()

    def check_engine(self) -> None:
        """Raise early if what the engine needs is not installed."""
        if self.engine == "ray" and not is_installed("ray"):
            raise MissingExtraError("ray", "ray")

    def limits(self) -> Limits:
        """How much is put up with from workers."""
        return Limits(restarts=self.restarts)

    def handicaps(self) -> dict[int, Handicap]:
        """Delays put in on purpose, by worker: the slow come first, the dying last."""
        n_slow, factor = parse_slow(self.slow) if self.slow is not None else (0, 1.0)
        n_dead, after = parse_dead(self.dead) if self.dead is not None else (0, 0.0)
        require(
            n_slow + n_dead <= self.workers,
            "slow and dead workers",
            n_slow + n_dead,
            f"there are only {self.workers}",
        )
        require(
            self.straggle is None or self.straggle > 1,
            "straggle",
            self.straggle,
            "a Pareto factor has a mean only if its tail index is above 1",
        )
        first_dying = self.workers - n_dead
        return {
            worker: Handicap(
                factor=factor if worker < n_slow else 1.0,
                tail_index=self.straggle,
                dies_after=int(after) + 1 if worker >= first_dying else None,
            )
            for worker in range(self.workers)
        }
