"""What a report says of the run: who did what when, and what it would have cost to wait."""

import numpy as np

from quorate._types import Array
from quorate.errors import named_shards, named_workers
from quorate.journal import EventRecord
from quorate.report import run_plots
from quorate.report.evidence import Evidence
from quorate.report.markup import (
    Html,
    bullet_list,
    element,
    joined,
    note,
    paragraph,
    seconds,
    shortened,
    table,
)
from quorate.report.posterior_sections import NONE_YET
from quorate.report.svg import Pictures, legend
from quorate.results.marginals import FEWEST
from quorate.run.history import History

_MOST_EVENTS, _MOST_WAITING = 60, 40


def ran(history: History) -> str:
    """The run in one sentence."""
    settings = history.settings
    lacking = f", WITHOUT THE ROWS OF {named_shards(history.excluded).upper()}"
    return (
        f"{history.n_global:,} of {settings.draws:,} global draws by {settings.scheme} on "
        f"{settings.workers} workers (redundancy {settings.shards_per_worker}) in "
        f"{seconds(history.seconds)}: {history.stopped or 'not finished'}"
        f"{lacking if history.excluded else ''}"
    )


def timeline(evidence: Evidence, pictures: Pictures) -> Html:
    """A lane for each worker."""
    history, blocks = evidence.history, evidence.blocks
    if not len(blocks):
        return note("No block has arrived yet.")
    picture = pictures.svg(run_plots.timeline(history, blocks), "timeline of all workers", "lanes")
    caption = element(
        "figcaption",
        "Blocks in the colours of their shards, one above the other. ×: lost, failed, silent or "
        "refused; ▷: started again; □: given up; dashed line: the run was resumed",
        "; dotted line: shards were left out." if history.excluded else ".",
    )
    figure = element("figure", element("div", picture, class_="scroll"), caption)
    return joined([figure, legend(range(history.n_workers), history.excluded), _events(history)])


def _events(history: History) -> Html:
    told = [e for e in history.events if e.worker is not None or e.what == "excluded"]
    if not told:
        return note("Nothing happened to any worker.")
    lines = [
        f"{event.time:.1f} s: {_who(event)} {event.what}"
        + (f": {first}" if (first := _first_line(event.details.get("text"))) else "")
        for event in told[:_MOST_EVENTS]
    ]
    more = len(told) - len(lines)
    summary = element("summary", f"{len(told):,} things happened to workers")
    rest = note(f"… and {more:,} more.") if more else ""
    return element("details", summary, bullet_list(lines), rest)


def _who(event: EventRecord) -> str:
    if event.worker is not None:
        return f"worker {event.worker}"
    return named_shards(event.details["shards"])


def _first_line(told: object) -> str:
    lines = str(told or "").strip().splitlines()
    return shortened(lines[0], 200) if lines else ""


def progress(evidence: Evidence, pictures: Pictures) -> Html:
    """L(t) and errors."""
    if not evidence.history.n_global or len(evidence.merged) < FEWEST:
        return note(NONE_YET)
    draws = pictures.figure(
        run_plots.draws_against_time(evidence),
        "global draws against time",
        "Global draws that were there at a time. Dashed: by the measured times of the same "
        "workers, if each draw had waited for all of them.",
    )
    errors = pictures.figure(
        run_plots.errors_against_time(evidence),
        "error against time",
        "A proxy, since the truth is not known: how far means over the draws so far are expected "
        "to be off, and how far they were from those over all draws (0 at the end by "
        "construction). Root mean square over coordinates, unconstrained.",
    )
    return element("div", draws, errors, class_="pair")


def waiting(evidence: Evidence, pictures: Pictures) -> Html:
    """CMC in virtual time."""
    history, took = evidence.history, evidence.blocks.releasing_time
    n_draws, gone = history.n_global, history.gone()
    if not n_draws:
        return note(NONE_YET)
    times = np.array([pace.when(np.array([n_draws]))[0] for pace in evidence.paces])
    reasons = ["not back" if k in gone else "no block sent" for k in range(len(times))]
    latest = times.max()
    if np.isfinite(latest):
        then = f"would have had them after {seconds(latest)}"
    elif missed := [worker for worker in gone if np.isinf(times[worker])]:
        then = f"would have had to wait for {named_workers(missed)}, not back when the run ended"
    else:
        then = "would have had them nobody knows when: a worker has sent no block"
    told = (
        f"This run had its {n_draws:,} draws after {seconds(took)}. Plain CMC, which waits for "
        f"every worker for every draw, {then}."
    )
    figure = pictures.figure(
        run_plots.waiting(times, took, reasons),
        "when each worker would have been ready under CMC",
        "When each worker alone would have had its draws under CMC. Line: this run.",
    )
    beside = _waiting_table(evidence, times, reasons)
    how = note(
        "In virtual time, from the measured time of each worker's blocks, divided by the shards "
        "each of them was of. Workers that share a core, or a process, were measured that way. "
        "Beyond its last block, a worker repeats those it has sent."
    )
    return joined([paragraph(told), element("div", figure, beside, class_="pair"), how])


def _waiting_table(evidence: Evidence, times: Array, reasons: list[str]) -> Html:
    n_blocks = np.bincount(evidence.blocks.workers, minlength=len(times))
    slowest = sorted(range(len(times)), key=lambda k: -times[k])[:_MOST_WAITING]
    rows = []
    for worker in sorted(slowest):
        extra = times[worker] - evidence.blocks.releasing_time
        if np.isinf(extra):
            ready, cost = reasons[worker], "who knows"
        else:
            ready, cost = seconds(times[worker]), seconds(extra) if extra > 0 else "nothing"
        rows.append([f"worker {worker}", f"{n_blocks[worker]:,}", ready, cost])
    rest = note(f"The slowest {len(rows)} of {len(times)}.") if len(rows) < len(times) else ""
    return element("div", table(["", "blocks", "ready", "extra wait"], rows), rest)


def bandwidth(evidence: Evidence) -> Html:
    """What was sent."""
    blocks, history = evidence.blocks, evidence.history
    n_bytes, n_floats = int(blocks.n_bytes.sum()), int(blocks.n_floats.sum())
    rows = [["in all", f"{n_bytes:,}", f"{n_floats:,}"]]
    if history.n_global:
        each = [f"{total / history.n_global:,.1f}" for total in (n_bytes, n_floats)]
        rows.append(["for each global draw", *each])
    least = history.n_workers * history.dim
    rows.append(["plain CMC, for each global draw", f"{8 * least:,}", f"{least:,}"])
    what = note(
        "Of what blocks hold, without headers, and without the states of chains that travel with "
        "them."
    )
    return joined([table(["", "bytes", "floats"], rows), what])
