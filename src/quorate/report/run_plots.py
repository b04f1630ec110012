"""Pictures of the run: lanes of its workers, draws and errors over time, waiting under CMC."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from quorate._types import Array, IntArray
from quorate.journal import Excluded, Resumed, WorkerEvent
from quorate.protocol.messages import Happening
from quorate.report.evidence import Evidence
from quorate.report.svg import ACCENT, BAD, FAINT, INK, MUTED, PAPER, canvas, drawing, shard_colour
from quorate.run.blocks import Blocks
from quorate.run.history import History

_COLUMNS = 1400  # pixels of the lanes, for any number of blocks
_LANE, _GAP = 10, 2  # pixels of a lane, and between two lanes
_WIDE = 4  # pixels of a typical block, from which on neighbours have two shades
_MOST_MARKS = 400
_FAULT = ("x", BAD, 2.2)
_MARKS = {
    Happening.RESTARTED: (">", INK, 1.2),
    Happening.MOVED: ("o", INK, 1.2),
    Happening.RETIRED: ("s", BAD, 1.2),
    Happening.QUARANTINED: ("D", BAD, 1.2),
}
_LINES = {Resumed: ("--", MUTED, 1.0), Excluded: (":", BAD, 1.6)}
_STRAGGLER = 1.5  # times the median


def lanes(blocks: Blocks, n_workers: int, seconds: float) -> Array:
    """An image with one lane for each worker, shape (n_workers * 12, 1400, 4).

    A block has the colours of its shards, one above the other. Neighbours have two shades.
    """
    shades = np.array([to_rgb(shard_colour(shard)) for shard in range(n_workers)])
    image = np.zeros((n_workers, _LANE + _GAP, _COLUMNS, 4))
    scale = _COLUMNS / seconds if seconds else 0.0
    starts = (blocks.begins * scale).astype(int)
    stops = np.maximum((blocks.ends * scale).round().astype(int), starts + 1)
    are_wide = len(blocks) > 0 and np.median(stops - starts) >= _WIDE
    turns = [0] * n_workers
    for i in range(len(blocks)) if are_wide else _on_top(blocks.workers, starts, stops):
        worker, shards = blocks.workers[i], np.array(blocks.cells[blocks.cell[i]])
        stripe = shards[np.arange(_LANE) * len(shards) // _LANE]
        place = image[worker, _GAP // 2 : -_GAP // 2, starts[i] : stops[i]]
        place[..., :3] = shades[stripe][:, None]
        place[..., 3] = 0.7 if are_wide and turns[worker] % 2 else 1.0
        turns[worker] += 1
    return image.reshape(-1, _COLUMNS, 4)


def _on_top(*places: IntArray) -> list[int]:
    """Numbers of the last blocks at each place: those before cannot be seen."""
    _, from_end = np.unique(np.stack(places)[:, ::-1], axis=1, return_index=True)
    return list(map(int, np.sort(len(places[0]) - 1 - from_end)))


def timeline(history: History, blocks: Blocks) -> Figure:
    """The lanes, with marks for what happened to workers."""
    n, seconds = history.n_workers, max(history.seconds, 1e-9)
    lane = 24.0 if n <= 12 else max(14.0, 24.0 * 12 / n) if n <= 40 else max(3.0, 560 / n)
    with drawing():
        figure = canvas(900, n * lane + 50)
        axes = figure.add_subplot()
        image = (lanes(blocks, n, seconds) * 255).round().astype(np.uint8)
        extent = (0.0, seconds, n - 0.5, -0.5)
        axes.imshow(image, extent=extent, aspect="auto", interpolation="none", zorder=1)
        for worker, start, stop in _lives(history):
            axes.hlines(worker, start, stop, color=FAINT, linewidth=1.0, zorder=0.5)
        _marks(axes, history)
        every = 1 if lane >= 14 else int(np.ceil(14 / lane))
        places = range(0, n, every)
        axes.set_yticks(places, [f"worker {k}" for k in places])
        axes.set_ylim(n - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("seconds")
    return figure


def _lives(history: History) -> list[tuple[int, float, float]]:
    """Workers, and from when to when they were alive, with or without blocks."""
    since = dict.fromkeys(range(history.n_workers), 0.0)
    lives = []
    for event in history.events:
        if isinstance(event, Resumed):
            since |= {k: event.time for k in range(history.n_workers) if k not in since}
        elif isinstance(event, WorkerEvent) and not event.takes_away:
            since.setdefault(event.worker, event.time)
        elif isinstance(event, WorkerEvent) and event.worker in since:
            lives.append((event.worker, since.pop(event.worker), event.time))
    return lives + [(worker, start, history.seconds) for worker, start in since.items()]


def _marks(axes: Axes, history: History) -> None:
    for event in history.events[:_MOST_MARKS]:
        if isinstance(event, Resumed | Excluded):
            style, colour, width = _LINES[type(event)]
            axes.axvline(event.time, color=colour, linewidth=width, linestyle=style)
        elif isinstance(event, WorkerEvent):
            marker, colour, width = _MARKS.get(event.what, _FAULT)
            axes.plot(
                [event.time], [event.worker], marker, color=colour, markeredgewidth=width,
                markerfacecolor="none", markersize=8, clip_on=False, zorder=3,
            )  # fmt: skip


def draws_over_time(evidence: Evidence) -> Figure:
    """L(t), and what it would have been under CMC."""
    counts, times, cmc = evidence.counts, evidence.release_times, evidence.cmc_times
    there = np.isfinite(cmc)
    with drawing():
        figure = canvas(440, 290)
        axes = figure.add_subplot()
        axes.step(times, counts, where="post", color=ACCENT, linewidth=1.8, label="this run")
        if there.any():
            axes.step(
                cmc[there], counts[there], "--", where="post", color=MUTED, linewidth=1.3,
                label="plain CMC, same block times",
            )  # fmt: skip
        axes.set(xlabel="seconds", ylabel="global draws, L(t)")
        axes.set_xlim(0, _reach(times[-1], cmc[there]))
        axes.set_ylim(bottom=0)
        _finish(axes)
    return figure


def _reach(end: float, others: Array) -> float:
    """The end of an axis that shows the others, up to four times as long as this run."""
    return float(min(max(end, others.max(initial=0.0)), 4 * end) * 1.03)


def errors_over_time(evidence: Evidence) -> Figure:
    """Errors of the means as draws come in."""
    times = evidence.release_times
    expected, seen = evidence.errors()
    with drawing():
        figure = canvas(440, 290)
        axes = figure.add_subplot()
        axes.plot(times, expected, color=ACCENT, linewidth=1.8, label="expected from the ESS")
        axes.plot(times[:-1], seen[:-1], color=MUTED, linewidth=1.0, label="distance from the end")
        axes.set(xlabel="seconds", ylabel="error of the means (sds)", yscale="log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        low = min(expected.min() / 3, np.quantile(seen[:-1], 0.1) if len(seen) > 1 else 1.0)
        axes.set_ylim(bottom=max(low, expected.min() / 30))
        axes.set_xlim(left=0)
        _finish(axes)
    return figure


def waiting(times: Array, seconds: float, reasons: list[str]) -> Figure:
    """When each worker would have had its draws under CMC, and when this run had them.

    `reasons[k]` is why a worker would never have had them.
    """
    n = len(times)
    finite = times[np.isfinite(times)]
    edge = 1.15 * max(finite.max(initial=0.0), seconds, 1e-9)
    usual = float(np.median(finite)) if len(finite) else np.inf
    with drawing():
        figure = canvas(440, max(150.0, min(24.0 * n, 600.0) + 70))
        axes = figure.add_subplot()
        for worker, time in enumerate(times):
            late = not time <= _STRAGGLER * usual
            width = time if np.isfinite(time) else edge
            axes.barh(worker, width, color=BAD if late else ACCENT, height=0.62)
            if not np.isfinite(time):
                axes.annotate(
                    reasons[worker], (0.02, worker), xycoords=("axes fraction", "data"),
                    va="center", color=PAPER, fontsize=9,
                )  # fmt: skip
        axes.axvline(seconds, color=INK, linewidth=1.6, label="this run")
        every = int(np.ceil(n / 40))
        axes.set_yticks(range(0, n, every), [f"worker {k}" for k in range(0, n, every)])
        axes.set(xlabel="seconds", xlim=(0, edge), ylim=(n - 0.4, -0.6))
        axes.tick_params(axis="y", length=0)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), fontsize=9, borderpad=0)
    return figure


def _finish(axes: Axes) -> None:
    axes.grid(color=FAINT, linewidth=0.6)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), fontsize=9, borderpad=0)
