"""A plan in words: what is usual, what plain CMC would do, what is advised, its price, its risk."""

from collections.abc import Sequence

import numpy as np

from quorate.errors import named_workers
from quorate.planner.measured import Measured
from quorate.planner.options import Option

_MINUTE, _HOUR = 60.0, 3600.0


def duration(seconds: float) -> str:
    """Seconds, minutes or hours."""
    if np.isinf(seconds):
        return "never"
    if seconds < _MINUTE:
        return f"{seconds:.3g} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.1f} min"
    return f"{seconds / _HOUR:.1f} h"


def assumed(latency: str, slow: str | None, dead: str | None, n_shards: int) -> str:
    """What was told of workers and blocks."""
    others = [f"{slow} slower" if slow else "", f"{dead} dead" if dead else ""]
    workers = " and ".join(filter(None, others))
    told = f", workers {workers}" if workers else ""
    return f"Assumed: {latency} seconds for one draw of one of {n_shards} shards{told}."


def seen(run: Measured) -> str:
    """How workers and blocks of a run vary."""
    ratio = float(run.levels.max() / np.median(run.levels))
    slowest = f"the slowest worker takes {'at least ' * bool(run.silent)}{ratio:.2g} times as long"
    lost = np.flatnonzero(np.isfinite(run.deaths)).tolist()
    losses = f", {named_workers(lost)} {'was' if len(lost) == 1 else 'were'} lost" if lost else ""
    return (
        f"Measured: {run.n_workers} workers, {len(run.factors)} blocks; {slowest} as the median "
        f"one{losses}; {_tail(run)}."
    )


def _tail(run: Measured) -> str:
    tail = run.tail
    if tail is None:
        return "too few blocks to tell how heavy the tail of block times is"
    if np.isinf(tail.index):
        return "block times have no tail at all"
    interval = f"{tail.index:.2g} (95 % interval {tail.low:.2g} to {tail.high:.2g})"
    how = "light" if tail.is_light else "very heavy" if tail.high < 2 else "heavy"
    return f"the tail of block times is {how}: Pareto index {interval}"


def explained(
    first: str, options: Sequence[Option], choice: Option, n_draws: int, measured_at: int
) -> tuple[str, ...]:
    """Five lines."""
    return (
        first,
        _waiting(options, choice, n_draws),
        _why(options, choice),
        _price(choice),
        _risk(choice, measured_at),
    )


def _waiting(options: Sequence[Option], choice: Option, n_draws: int) -> str:
    plain = [o for o in options if o.scheme == "cmc" and o.workers == choice.workers]
    if not plain:
        return f"Asked for: {n_draws} draws."
    (cmc,) = plain
    if np.isinf(cmc.median):
        return f"Waiting for everybody (cmc) never gets to {n_draws} draws: a worker is lost."
    return f"Waiting for everybody (cmc) takes {_times(cmc)} to {n_draws} draws."


def _times(option: Option) -> str:
    if np.isinf(option.p95):
        return f"{duration(option.median)} ({option.share_unfinished:.0%} of runs never get there)"
    return f"{duration(option.median)} (19 of 20 runs at most {duration(option.p95)})"


def _why(options: Sequence[Option], choice: Option) -> str:
    others = [o for o in options if o.scheme != choice.scheme and o.workers == choice.workers]
    second = min(others, key=lambda o: (o.p95, o.median), default=None)
    against = (
        f"; the best of the other schemes, {second.scheme} with r = {second.redundancy}, "
        f"{'never gets there' if np.isinf(second.median) else 'takes ' + _times(second)}"
        if second is not None
        else ""
    )
    return (
        f"Advised: {choice.scheme} with r = {choice.redundancy} on {choice.workers} workers takes "
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
