"""How long workers take: models of the computing time ΔT_k^l of §II.

A model gives the time of *one unit of work* (one draw of one shard), of mean η. A batch of r draws
takes r times one such time, as in the paper, or the sum of r of them where each draw has a time of
its own. Times are addressed by (seed, worker, unit), so they never depend on who asks first.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol

import numpy as np

from quorate._registry import Registry
from quorate._types import Array
from quorate.errors import BadInputError, require
from quorate.numerics.streams import Purpose, Streams


class LatencyModel(Protocol):
    """Computing times, and when workers die."""

    def times(self, streams: Streams, n_workers: int, first: int, n: int) -> Array:
        """Times of units `first` to `first + n - 1` of every worker, shape (n_workers, n)."""

    def death_times(self, streams: Streams, n_workers: int) -> Array:
        """When each worker dies, infinity if never. Shape (n_workers,)."""


class LatencyParser(Protocol):
    """A class of models that can be written as text; `LATENCIES` holds them by name."""

    def parse(self, text: str) -> LatencyModel:
        """The model that the text after `NAME:` describes."""


def _never(self: LatencyModel, streams: Streams, n_workers: int) -> Array:
    """Death times of models in which nobody dies."""
    return np.full(n_workers, np.inf)


@dataclass(frozen=True)
class Pareto:
    """Pareto times of scale η(β-1)/β and shape β, the example of §II: mean η, heavy tail."""

    mean_per_shard: float
    tail_index: float

    def __post_init__(self) -> None:
        _require_positive("mean_per_shard", self.mean_per_shard)
        require(
            1 < self.tail_index < np.inf,
            f"tail_index must be finite and above 1, not {self.tail_index}: otherwise Pareto times "
            "have no mean.",
        )

    def times(self, streams: Streams, n_workers: int, first: int, n: int) -> Array:
        scale = self.mean_per_shard * (self.tail_index - 1) / self.tail_index
        return scale * uniforms(streams, n_workers, first, n) ** (-1 / self.tail_index)

    @classmethod
    def parse(cls, text: str) -> "Pareto":
        return cls(*_numbers(text, cls))

    death_times = _never


@dataclass(frozen=True)
class Exponential:
    """Exponential times of mean η."""

    mean_per_shard: float

    def __post_init__(self) -> None:
        _require_positive("mean_per_shard", self.mean_per_shard)

    def times(self, streams: Streams, n_workers: int, first: int, n: int) -> Array:
        return -self.mean_per_shard * np.log(uniforms(streams, n_workers, first, n))

    @classmethod
    def parse(cls, text: str) -> "Exponential":
        return cls(*_numbers(text, cls))

    death_times = _never


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

    @classmethod
    def parse(cls, text: str) -> "ShiftedExponential":
        return cls(*_numbers(text, cls))

    death_times = _never


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
            f"A trace needs at least one row, each with at least one time, not {self.recorded!r}.",
        )
        for time in (time for row in self.recorded for time in row):
            _require_positive("a recorded time", time)

    @classmethod
    def read(cls, path: str | Path) -> "Trace":
        """Read a text file: one line a worker, times separated by commas."""
        try:
            lines = Path(path).read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(f"The trace {path} cannot be read: {error}.") from None
        try:
            rows = tuple(tuple(map(float, line.split(","))) for line in lines if line.strip())
        except ValueError as error:
            raise BadInputError(
                f"The trace {path} is not made of numbers: {error}. "
                "Write each worker's times in one line, separated by commas."
            ) from None
        return cls(rows)

    parse = read

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

    death_times = _never


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
class Scaled:
    """All times are longer by a factor: of work that is worth so many units."""

    model: LatencyModel
    factor: float

    def __post_init__(self) -> None:
        _require_positive("factor", self.factor)

    def times(self, streams: Streams, n_workers: int, first: int, n: int) -> Array:
        return self.factor * self.model.times(streams, n_workers, first, n)

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
        require(0 <= self.since < np.inf, f"since must be a time, 0 or later, not {self.since}.")

    def times(self, streams: Streams, n_workers: int, first: int, n: int) -> Array:
        return self.model.times(streams, n_workers, first, n)

    def death_times(self, streams: Streams, n_workers: int) -> Array:
        deaths = self.model.death_times(streams, n_workers)
        dying = _chosen(self.workers, streams, n_workers, Purpose.WHO_IS_DEAD)
        deaths[dying] = np.minimum(deaths[dying], self.since)
        return deaths


LATENCIES: Registry[LatencyParser] = Registry(
    "latency",
    "quorate.latencies",
    {
        "pareto": Pareto,
        "exponential": Exponential,
        "shifted-exponential": ShiftedExponential,
        "trace": Trace,
    },
)


def parse_latency(latency: str | LatencyModel) -> LatencyModel:
    """Read `NAME:VALUES`, such as `pareto:0.1,1.2` or `trace:FILE`; a model stays as it is."""
    if not isinstance(latency, str):
        return latency
    name, _, values = latency.partition(":")
    return LATENCIES[name].parse(values)


def parse_slow(spec: str) -> tuple[int, float]:
    """Read `4x10`: four workers are ten times slower."""
    count, _, factor = spec.partition("x")
    try:
        return int(count), float(factor)
    except ValueError:
        raise BadInputError(f"`slow` is {spec!r}. Write COUNTxFACTOR, for example 4x10.") from None


def parse_dead(spec: str) -> tuple[int, float]:
    """Read `2` or `2@1.5`: two workers are dead from the start, or from time 1.5 on."""
    count, at, since = spec.partition("@")
    try:
        return int(count), float(since) if at else 0.0
    except ValueError:
        raise BadInputError(
            f"`dead` is {spec!r}. Write COUNT or COUNT@TIME, for example 1@2.5."
        ) from None


def parse_cluster(
    latency: str | LatencyModel, slow: str | None = None, dead: str | None = None
) -> LatencyModel:
    """A latency model in which some of the workers are slow or dead."""
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


def _chosen(
    workers: int | tuple[int, ...], streams: Streams, n_workers: int, purpose: Purpose
) -> list[int]:
    if isinstance(workers, int):
        require(
            workers <= n_workers,
            f"{workers} workers cannot be slow or dead: there are only {n_workers} workers.",
        )
        return streams.permutation(purpose, n_workers)[:workers]
    require(
        all(worker < n_workers for worker in workers),
        f"Workers are numbered from 0 to {n_workers - 1}. The slow or dead ones are {workers}.",
    )
    return list(workers)


def _numbers(text: str, model: type) -> list[float]:
    """The fields of `model` from `text`, separated by commas."""
    names = [field.name for field in fields(model)]
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    require(
        len(numbers) == len(names),
        f"The values {text!r} of the latency are not {' and '.join(names)}. "
        "Write them as numbers separated by commas, for example pareto:0.1,1.2.",
    )
    return numbers


def _require_positive(name: str, value: float) -> None:
    require(0 < value < np.inf, f"{name} must be a finite number above 0, not {value}.")


def _require_count(name: str, workers: int | tuple[int, ...]) -> None:
    fine = workers >= 0 if isinstance(workers, int) else all(worker >= 0 for worker in workers)
    require(fine, f"{name} cannot be negative, as {workers} is.")
