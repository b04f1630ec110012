"""A plan in words: the times it starts from, the wait without redundancy, the advice, its price."""

from collections.abc import Sequence

import numpy as np

from quorate.engines.latency import LatencyModel
from quorate.errors import named_workers
from quorate.planner.measured import Measured
from quorate.planner.options import NEARLY_AS_FAST, Option
from quorate.protocol.pass_blocks import BLOCK

_MINUTE, _HOUR = 60.0, 3600.0
_CRITERION = (
    f"Ranked: of the options whose p95 is within {NEARLY_AS_FAST - 1:.0%} of the smallest, the one "
    "with the fewest workers comes first, then the one with the fewest shards at a worker."
)


def duration(seconds: float) -> str:
    """A time in seconds, minutes or hours."""
    if np.isinf(seconds):
        return "never"
    if seconds < _MINUTE:
        return f"{seconds:.3g} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.1f} min"
    return f"{seconds / _HOUR:.1f} h"


def assumed(
    latency: str | LatencyModel,
    slow: str | None,
    dead: str | None,
    n_shards: int,
    *,
    is_exact: bool,
) -> str:
    """The assumptions about workers and blocks, in a line."""
    given = [f"{slow} slower" if slow else "", f"{dead} dead" if dead else ""]
    workers = " and ".join(filter(None, given))
    others = f", workers {workers}" if workers else ""
    what = f"{BLOCK} points on" if is_exact else "one draw of"
    return f"Assumed: {latency} seconds for {what} one of {n_shards} shards{others}."


def seen(run: Measured, n_workers: int) -> str:
    """How workers and blocks of a run vary, in a line."""
    n = run.n_workers
    who, where = "worker", ""
    if n < n_workers:
        who, where = "process", f" in {n} process{'es' if n > 1 else ''}"
    ratio = float(run.levels.max() / np.median(run.levels))
    slowest = f"the slowest {who} takes {'at least ' * bool(run.silent)}{ratio:.2g} times as long"
    lost = np.flatnonzero(np.isfinite(run.deaths)).tolist()
    named = named_workers(lost) if who == "worker" else f"{len(lost)} of them"
    losses = f", {named} {'was' if len(lost) == 1 else 'were'} lost" if lost else ""
    return (
        f"Measured: {n_workers} workers{where}, {len(run.factors)} blocks; {slowest} as the median "
        f"one{losses}; {_tail(run)}."
    )


def _tail(run: Measured) -> str:
    tail = run.tail
    if tail is None:
        return "there are too few blocks to tell how heavy the tail of block times is"
    if np.isinf(tail.index):
        return "block times have no tail at all"
    interval = f"{tail.index:.2g} (95 % interval {tail.low:.2g} to {tail.high:.2g})"
    how = "light" if tail.is_light else "very heavy" if tail.high < 2 else "heavy"
    return f"the tail of block times is {how}: Pareto index {interval}"


def explained(
    first: str, options: Sequence[Option], choice: Option, n_draws: int, measured_at: int
) -> tuple[str, ...]:
    """The plan in six lines, of which `first` is the first."""
    return (
        first,
        _without_redundancy(options, choice, n_draws),
        _CRITERION,
        _why(options, choice),
        _price(choice),
        _risk(choice, measured_at),
    )


def _without_redundancy(options: Sequence[Option], choice: Option, n_draws: int) -> str:
    plain = [o for o in options if o.redundancy == 1 and o.workers == choice.workers]
    if not plain:
        return f"Asked for: {n_draws} draws."
    fastest = min(plain, key=_speed)
    if np.isinf(fastest.median):
        return f"Without redundancy, {fastest.title} never finishes {n_draws} draws: workers die."
    return f"Without redundancy, {fastest.title} takes {_times(fastest)} to {n_draws} draws."


def _speed(option: Option) -> tuple[float, float]:
    return option.p95, option.median


def _times(option: Option) -> str:
    if np.isinf(option.p95):
        return f"{duration(option.median)} ({option.share_unfinished:.0%} of runs never finish)"
    return f"{duration(option.median)} (19 of 20 runs at most {duration(option.p95)})"


def _why(options: Sequence[Option], choice: Option) -> str:
    others = [o for o in options if o.title != choice.title and o.workers == choice.workers]
    second = min(others, key=_speed, default=None)
    against = ""
    if second is not None:
        takes = "never finishes" if np.isinf(second.median) else f"takes {_times(second)}"
        against = f"; the best other scheme, {second.title} with r = {second.redundancy}, {takes}"
    return (
        f"Advised: {choice.title} with r = {choice.redundancy} on {choice.workers} workers takes "
        f"{_times(choice)}{against}."
    )


def _price(choice: Option) -> str:
    held = "one shard" if choice.redundancy == 1 else f"{choice.redundancy} shards"
    return (
        f"Its price: a worker holds {held}, {choice.storage:.0%} of the data; "
        f"{choice.worker_hours:.2g} worker-hours; about {choice.floats_per_draw:.3g} floats sent "
        "for each draw."
    )


def _risk(choice: Option, measured_at: int) -> str:
    any_of = f"the loss of any {choice.survives}" if choice.survives else "no loss for sure"
    scaled = (
        f"; times are those of {measured_at} workers, scaled by rows per shard"
        if choice.workers != measured_at
        else ""
    )
    return (
        f"It survives {any_of}, typically of {choice.survives_typically} of {choice.workers} "
        f"workers{scaled}."
    )
