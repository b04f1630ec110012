"""Sections of a report about the run: workers, progress, waiting and bandwidth."""

import numpy as np

from quorate._types import Array
from quorate.errors import named_shards, named_workers
from quorate.journal import Excluded, WorkerEvent
from quorate.report import run_plots
from quorate.report.evidence import Evidence
from quorate.report.posterior_sections import TOO_FEW
from quorate.report.svg import Pictures, legend
from quorate.results.html import (
    Html,
    bullet_list,
    element,
    first_line,
    joined,
    note,
    scrolling,
    seconds,
    table,
)
from quorate.run.history import History

_MOST_EVENTS, _MOST_WAITING = 60, 40


def ran(history: History) -> str:
    """The run in one sentence."""
    settings = history.settings
    kind, by = "global draws", ""
    if history.passes is not None:
        kind, by = "exact draws", f", with {history.n_passes:,} passes"
    lacking = f", WITHOUT THE ROWS OF {named_shards(history.excluded).upper()}"
    return (
        f"{history.n_global:,} of {settings.draws:,} {kind} by "
        f"{settings.scheme_options.name} on {settings.workers} workers "
        f"(redundancy {settings.shards_per_worker}){by} in {seconds(history.seconds)}: "
        f"{history.stopped or 'not finished'}"
        f"{lacking if history.excluded else ''}"
    )


def timeline(evidence: Evidence, pictures: Pictures) -> Html:
    """A lane for each worker, and a list of what happened."""
    history, blocks = evidence.history, evidence.blocks
    if not len(blocks):
        return note(
            "No answer has arrived yet." if evidence.is_exact else "No block has arrived yet."
        )
    picture = pictures.svg(run_plots.timeline(history, blocks), "timeline of all workers", "lanes")
    what = "Answers" if evidence.is_exact else "Blocks"
    caption = element(
        "figcaption",
        f"{what} in the colours of their shards. ×: lost, failed, silent or refused; ▷: restarted; "
        "○: moved; □: retired; ◇: quarantined; dashed line: the run was resumed",
        "; dotted line: shards were left out." if history.excluded else ".",
    )
    figure = element("figure", scrolling(picture), caption)
    return joined([figure, legend(range(history.n_workers), history.excluded), _events(history)])


def _events(history: History) -> Html:
    told = [e for e in history.events if isinstance(e, WorkerEvent | Excluded)]
    if not told:
        return note("No worker was lost, failed or was restarted.")
    lines = [_line(event) for event in told[:_MOST_EVENTS]]
    more = len(told) - len(lines)
    events = "1 event" if len(told) == 1 else f"{len(told):,} events"
    summary = element("summary", f"{events} of workers")
    rest = note(f"… and {more:,} more.") if more else ""
    return element("details", summary, bullet_list(lines), rest)


def _line(event: WorkerEvent | Excluded) -> str:
    who = named_shards(event.shards) if isinstance(event, Excluded) else f"worker {event.worker}"
    first = first_line(event.text)
    return f"{event.time:.1f} s: {who} {event.word}" + (f": {first}" if first else "")


def progress(evidence: Evidence, pictures: Pictures) -> Html:
    """Global draws over time, L(t), and errors of the means."""
    if not evidence.history.n_global or not np.isfinite(evidence.ess).any():
        return note(TOO_FEW)
    cmc = (
        "Dashed: with the measured block times of the same workers, if every draw had waited for "
        "all of them."
    )
    if evidence.is_exact:
        cmc = "Every pass brings the chains of one ensemble further."
    elif np.isinf(evidence.cmc_times).all():
        cmc = "Plain CMC would have had none of them, because a worker sent no block."
    draws = pictures.figure(
        run_plots.draws_over_time(evidence),
        "global draws over time",
        f"Global draws that were complete. {cmc}",
    )
    errors = pictures.figure(
        run_plots.errors_over_time(evidence),
        "error over time",
        "An estimate, because the true means are unknown: the Monte Carlo error that the effective "
        "sample size predicts, and the distance of the means so far from those at the end (0 at "
        "the end by construction). Root mean square over unconstrained coordinates.",
    )
    return element("div", draws, errors, class_="pair")


def waiting(evidence: Evidence, pictures: Pictures) -> Html:
    """When plain CMC would have had the same draws, in virtual time."""
    history, took = evidence.history, evidence.blocks.releasing_time
    n_draws, gone = history.n_global, history.gone()
    if not n_draws:
        return note(TOO_FEW)
    times = np.array([pace.when(np.array([n_draws]))[0] for pace in evidence.paces])
    reasons = ["gone" if k in gone else "no block sent" for k in range(len(times))]
    latest = times.max()
    if np.isfinite(latest):
        then = f"would have had them after {seconds(latest)}"
    elif missed := [worker for worker in gone if np.isinf(times[worker])]:
        then = f"would still be waiting for {named_workers(missed)}, gone when the run ended"
    else:
        idle = [worker for worker in range(len(times)) if np.isinf(times[worker])]
        then = f"cannot be timed, because {named_workers(idle)} sent no block"
    told = (
        f"This run had its {n_draws:,} draws after {seconds(took)}. Plain CMC, which waits for "
        f"all workers at every draw, {then}."
    )
    figure = pictures.figure(
        run_plots.waiting(times, took, reasons),
        "when each worker would have been ready under CMC",
        "When each worker would have had its draws under CMC. Line: this run.",
    )
    beside = _waiting_table(evidence, times, reasons)
    how = note(
        "In virtual time: the measured time of a block, divided by the number of its shards. The "
        "times include what workers lost by sharing a core or a process. A worker that sent too "
        "few blocks repeats them."
    )
    return joined([element("p", told), element("div", figure, beside, class_="pair"), how])


def _waiting_table(evidence: Evidence, times: Array, reasons: list[str]) -> Html:
    n_blocks = np.bincount(evidence.blocks.workers, minlength=len(times))
    slowest = sorted(range(len(times)), key=lambda k: -times[k])[:_MOST_WAITING]
    rows = []
    for worker in sorted(slowest):
        extra = times[worker] - evidence.blocks.releasing_time
        if np.isinf(extra):
            ready, cost = reasons[worker], "—"
        else:
            ready, cost = seconds(times[worker]), seconds(extra) if extra > 0 else "none"
        rows.append([f"worker {worker}", f"{n_blocks[worker]:,}", ready, cost])
    rest = note(f"The slowest {len(rows)} of {len(times)}.") if len(rows) < len(times) else ""
    grid = table(["", "blocks", "ready", "extra wait"], rows)
    return element("div", scrolling(grid), rest)


def bandwidth(evidence: Evidence) -> Html:
    """How much workers sent; of a merge also how much they would send under plain CMC."""
    blocks, history = evidence.blocks, evidence.history
    n_bytes, n_floats = int(blocks.n_bytes.sum()), int(blocks.n_floats.sum())
    rows = [["total", f"{n_bytes:,}", f"{n_floats:,}"]]
    if history.n_global:
        each = [f"{total / history.n_global:,.1f}" for total in (n_bytes, n_floats)]
        rows.append(["per global draw", *each])
    what = "Answers at points and surveys of shards, without headers."
    if not evidence.is_exact:
        least = history.n_workers * history.dim
        rows.append(["per global draw, plain CMC", f"{8 * least:,}", f"{least:,}"])
        what = "Contents of blocks, without headers and without the states of chains."
    return joined([scrolling(table(["", "bytes", "floats"], rows)), note(what)])
