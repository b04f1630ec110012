"""How long workers take: models of the computing time ΔT_k^l of §II.

A model gives the time of *one unit of work* (one draw of one shard), of mean η. A batch of r draws
takes r times one such time, as in the paper, or the sum of r of them where each draw has a time of
its own. Times are addressed by (seed, worker, unit), so they never depend on who asks first.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from quorate._types import Array
from quorate.errors import BadInputError, require
from quorate.numerics.streams import Purpose, Streams


class LatencyModel(Protocol):
    """Computing times, and when workers die."""

    def times(self, streams: Streams, n_workers: int, first: int, n: int) -> Array:
        """Times of units `first` to `first + n - 1` of every worker, shape (n_workers, n)."""

    def death_times(self, streams: Streams, n_workers: int) -> Array:
        """When each worker dies, infinity if never. Shape (n_workers,)."""


@dataclass(frozen=True)
class Pareto:
    """Pareto times of scale η(β-1)/β and shape β, the example of §II: mean η, heavy tail."""

    mean_per_shard: float
    tail_index: float

    def __post_init__(self) -> None:
        _require_positive("mean_per_shard", self.mean_per_shard)
        require(
            1 < self.tail_index < np.inf,
            "tail_index",
            self.tail_index,
            "a Pareto time has a mean only if its tail index is above 1, and finite",
        )

    def times(self, streams: Streams, n_workers: int, first: int, n: int) -> Array:
        scale = self.mean_per_shard * (self.tail_index - 1) / self.tail_index
        return scale * uniforms(streams, n_workers, first, n) ** (-1 / self.tail_index)

    def death_times(self, streams: Streams, n_workers: int) -> Array:
        return _never(n_workers)


@dataclass(frozen=True)
class Exponential:
    """Exponential times of mean η."""

    mean_per_shard: float

    def __post_init__(self) -> None:
        _require_positive("mean_per_shard", self.mean_per_shard)

    def times(self, streams: Streams, n_workers: int, first: int, n: int) -> Array:
        return -self.mean_per_shard * np.log(uniforms(streams, n_workers, first, n))

    def death_times(self, streams: Streams, n_workers: int) -> Array:
        return _never(n_workers)


@dataclass(frozen=True)
class ShiftedExponential:
    """A fixed time plus an exponential one of mean `mean_excess`: η is their sum."""

    shift: float
    mean_excess: float

    def __post_init__(self) -> None:
        _require_positive("shift", self.shift)
        _require_positive("mean_excess", self.mean_excess)

    def times(self, streams: Streams, n_workers: int, first: int, n: int) -> Array:
        return self.shift + Exponential(self.mean_excess).times(streams, n_workers, first, n)

    def death_times(self, streams: Streams, n_workers: int) -> Array:
        return _never(n_workers)


@dataclass(frozen=True)
class Trace:
    """Recorded times, one row for each recorded worker, played again.

    Each worker plays one row in order, starting again at its end, so that slow spells stay
    together. With `shuffle` the row and the point it starts from are drawn by the seed; without,
    worker k plays row k from its beginning.
    """

    recorded: tuple[tuple[float, ...], ...]
    shuffle: bool = True

    def __post_init__(self) -> None:
        require(
            bool(self.recorded) and all(self.recorded),
            "recorded",
            self.recorded,
            "a trace needs at least one row, each with at least one time",
        )
        for time in (time for row in self.recorded for time in row):
            _require_positive("a recorded time", time)

    @classmethod
    def read(cls, path: str | Path) -> "Trace":
        """Read a text file: one line a worker, times separated by commas."""
        try:
            lines = Path(path).read_text().splitlines()
            return cls(tuple(tuple(map(float, line.split(","))) for line in lines if line.strip()))
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError("trace", str(path), f"cannot be read ({error})") from None
        except ValueError as error:
            if isinstance(error, BadInputError):
                raise
            raise BadInputError(
                "trace", str(path), "each line is one worker's times, separated by commas"
            ) from None

    def times(self, streams: Streams, n_workers: int, first: int, n: int) -> Array:
        units = np.arange(first, first + n)
        starts = self._starts(streams, n_workers)
        rows = [np.asarray(self.recorded[row]) for row, _ in starts]
        played = zip(rows, starts, strict=True)
        return np.array([row[(units + start) % len(row)] for row, (_, start) in played])

    def _starts(self, streams: Streams, n_workers: int) -> list[tuple[int, int]]:
        if not self.shuffle:
            return [(worker % len(self.recorded), 0) for worker in range(n_workers)]
        lanes = [(worker, 0) for worker in range(n_workers)]
        which, where = streams.uniforms(Purpose.WHERE_IN_A_TRACE, lanes, 0, 1, 2)[:, 0].T
        rows = [int(u * len(self.recorded)) for u in which]
        return [(row, int(u * len(self.recorded[row]))) for row, u in zip(rows, where, strict=True)]

    def death_times(self, streams: Streams, n_workers: int) -> Array:
        return _never(n_workers)


@dataclass(frozen=True)
class Slowed:
    """Some workers are slower by a factor, all the time.

    `workers` is how many, drawn by the seed, or a tuple of which.
    """

    model: LatencyModel
    workers: int | tuple[int, ...]
    factor: float

    def __post_init__(self) -> None:
        _require_count("slow workers", self.workers)
        _require_positive("factor", self.factor)

    def times(self, streams: Streams, n_workers: int, first: int, n: int) -> Array:
        times = self.model.times(streams, n_workers, first, n)
        times[_chosen(self.workers, streams, n_workers, Purpose.WHO_IS_SLOW)] *= self.factor
        return times

    def death_times(self, streams: Streams, n_workers: int) -> Array:
        return self.model.death_times(streams, n_workers)


@dataclass(frozen=True)
class Dying:
    """Some workers are dead from time `since` on: what they had not finished is lost.

    `workers` is how many, drawn by the seed, or a tuple of which.
    """

    model: LatencyModel
    workers: int | tuple[int, ...]
    since: float = 0.0

    def __post_init__(self) -> None:
        _require_count("dead workers", self.workers)
        require(0 <= self.since < np.inf, "since", self.since, "a worker dies at time 0 or later")

    def times(self, streams: Streams, n_workers: int, first: int, n: int) -> Array:
        return self.model.times(streams, n_workers, first, n)

    def death_times(self, streams: Streams, n_workers: int) -> Array:
        deaths = self.model.death_times(streams, n_workers)
        dying = _chosen(self.workers, streams, n_workers, Purpose.WHO_IS_DEAD)
        deaths[dying] = np.minimum(deaths[dying], self.since)
        return deaths


def parse_latency(spec: str) -> LatencyModel:
    """Read `pareto:0.1,1.2`, `exponential:0.1`, `shifted-exponential:0.05,0.05`, `trace:FILE`."""
    name, _, values = spec.partition(":")
    if name == "trace":
        return Trace.read(values)
    models = {
        "pareto": Pareto,
        "exponential": Exponential,
        "shifted-exponential": ShiftedExponential,
    }
    try:
        model: LatencyModel = models[name](*map(float, values.split(",")))
    except BadInputError:
        raise
    except (KeyError, TypeError, ValueError):
        raise BadInputError(
            "latency",
            spec,
            "write pareto:MEAN,TAIL_INDEX, exponential:MEAN, shifted-exponential:SHIFT,MEAN "
            "or trace:FILE, for example pareto:0.1,1.2",
        ) from None
    return model


def parse_slow(spec: str) -> tuple[int, float]:
    """Read `4x10`: four workers are ten times slower."""
    count, _, factor = spec.partition("x")
    try:
        return int(count), float(factor)
    except ValueError:
        raise BadInputError("slow", spec, "write COUNTxFACTOR, for example 4x10") from None


def parse_dead(spec: str) -> tuple[int, float]:
    """Read `2` or `2@1.5`: two workers are dead from the start, or from time 1.5 on."""
    count, at, since = spec.partition("@")
    try:
        return int(count), float(since) if at else 0.0
    except ValueError:
        raise BadInputError("dead", spec, "write COUNT or COUNT@TIME, for example 1@2.5") from None


def parse_cluster(latency: str, slow: str | None = None, dead: str | None = None) -> LatencyModel:
    """A latency model with what happens to some of the workers."""
    model = parse_latency(latency)
    if slow is not None:
        model = Slowed(model, *parse_slow(slow))
    if dead is not None:
        model = Dying(model, *parse_dead(dead))
    return model


def uniforms(streams: Streams, n_workers: int, first: int, n: int) -> Array:
    """One uniform a unit of work, four to a row, so that none of a row's bits are thrown away."""
    lanes = [(worker, 0) for worker in range(n_workers)]
    first_row, skip = divmod(first, 4)
    n_rows = -(-(skip + n) // 4)
    rows = streams.uniforms(Purpose.TIMES, lanes, first_row, n_rows, 4)
    return rows.reshape(n_workers, -1)[:, skip : skip + n]


def _never(n_workers: int) -> Array:
    return np.full(n_workers, np.inf)


def _chosen(
    workers: int | tuple[int, ...], streams: Streams, n_workers: int, purpose: Purpose
) -> list[int]:
    if isinstance(workers, int):
        require(
            workers <= n_workers,
            "slow or dead workers",
            workers,
            f"there are only {n_workers} workers",
        )
        return streams.permutation(purpose, n_workers)[:workers]
    require(
        all(worker < n_workers for worker in workers),
        "slow or dead workers",
        workers,
        f"workers are numbered from 0 to {n_workers - 1}",
    )
    return list(workers)


def _require_positive(name: str, value: float) -> None:
    require(0 < value < np.inf, name, value, "it must be a finite number above 0")


def _require_count(name: str, workers: int | tuple[int, ...]) -> None:
    fine = workers >= 0 if isinstance(workers, int) else all(worker >= 0 for worker in workers)
    require(fine, name, workers, "it cannot be negative")
