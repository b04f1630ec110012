"""Sections of a report about the posterior."""

from collections.abc import Iterable, Sequence
from itertools import islice
from math import floor, log10

import numpy as np

from quorate.errors import named_shards
from quorate.journal import WorkerEvent
from quorate.report.evidence import Evidence
from quorate.report.posterior_plots import forest, marginal
from quorate.report.svg import Pictures, legend
from quorate.results.html import (
    Html,
    code,
    count,
    element,
    fixed,
    joined,
    note,
    number,
    scrolling,
    shortened,
    table,
)
from quorate.results.marginals import Marginal
from quorate.results.summary import INTERVAL, gone_in_words
from quorate.run.slow import slow_workers

TOO_FEW = "There are too few global draws yet."
_MOST_ROWS, _MOST_INTERVALS = 400, 60
MOST_DECIMALS = 7
_DIGITS = {"sd": 3, "mcse": 2}


def answer(evidence: Evidence) -> Html:
    """The parameters, and warnings that come before them."""
    rows = evidence.rows
    lines = [
        [element("bdi", name), *_cells(row, evidence.columns)]
        for name, row in islice(rows.items(), _MOST_ROWS)
    ]
    more = len(rows) - len(lines)
    parts = [_left_out(evidence)] if evidence.history.excluded else []
    parts += [element("p", line, class_="warning") for line in _warnings(evidence)]
    head = ["parameter", *evidence.columns.values()]
    if not lines:
        return joined([*parts, note(TOO_FEW)])
    narrow = "stacked seven" if evidence.is_exact else "stacked"  # how phones fold it
    parts.append(scrolling(table(head, lines, class_=narrow)))
    parts.append(note(_about(evidence)))
    if more:
        parts.append(note(f"… and {more:,} more in summary.json."))
    return joined(parts)


def _about(evidence: Evidence) -> str:
    """What the columns of the table mean."""
    scale = "" if evidence.saved is not None else " All on the unconstrained scale."
    nested = (
        " R-hat: nested R-hat of groups of chains, 1 if all agree." if evidence.is_exact else ""
    )
    return (
        "3 % and 97 %: ends of the 94 % interval. ESS: effective sample size. MCSE: Monte Carlo "
        f"standard error of the mean, sd/√ESS.{nested}{scale}"
    )


def _left_out(evidence: Evidence) -> Html:
    """Which rows have no part in the draws, and what that does to the prior."""
    history = evidence.history
    n_out, n_shards = len(history.excluded), history.n_workers
    rows = list(map(int, history.configuration.get("rows", [])))
    given = f"the rows of the other {n_shards - n_out} shards"
    if len(rows) == n_shards:
        n_lost = sum(rows[shard] for shard in history.excluded)
        given = f"the other {sum(rows) - n_lost:,} of {sum(rows):,} rows"
    share, rest = f"{n_out}/{n_shards}", f"{n_shards - n_out}/{n_shards}"
    if evidence.saved is not None and history.prior_restored:
        prior = f"The prior is complete: the {share} of it that was lost with them was put back."
    elif history.prior_restored is False:
        prior = (
            f"The {share} of the prior that was lost with them could not be put back, because it "
            "is flat or cannot be drawn from: the prior p counts only as p to the power of "
            f"{rest}."
        )
    else:
        prior = (
            f"The {share} of the prior that was lost with them is missing here. It is put back "
            "when the run ends."
        )
    return element(
        "p",
        element("strong", f"Without the rows of {named_shards(history.excluded)}. "),
        f"No worker that holds them was left. All numbers describe the posterior given {given}, "
        f"not given all rows. {prior} To include them again, run ",
        code(f"quorate resume {evidence.folder}"),
        ".",
        class_="warning alarm",
    )


def _warnings(evidence: Evidence) -> list[str]:
    history, told = evidence.history, []
    if history.stopped is None:
        told.append("The run was still running, or had been killed, when this was written.")
    if evidence.saved is None:
        merged = "" if evidence.is_exact else " on which they are merged"
        told.append(
            "The run has not saved draws on the natural scale. The numbers are of the draws in its "
            f"journal, on the unconstrained scale{merged}."
        )
    if gone := history.gone():
        events = ((e.worker, e.what) for e in history.events if isinstance(e, WorkerEvent))
        told.append(f"Gone at the end: {', '.join(gone_in_words(gone, events))}.")
    told += [f"{words.capitalize()}." for words in slow_workers(history, history.blocks())]
    if history.n_dropped:
        told.append(f"{history.n_dropped:,} damaged rows of the journal were left out.")
    return told


def _cells(row: dict[str, float], columns: Iterable[str]) -> list[str]:
    """Numbers with as many decimals as three significant digits of the sd have."""
    told = {key: number(row[key], _DIGITS.get(key, 4)) for key in columns}
    for keys, by in ((("mean", "sd", *INTERVAL), "sd"), (("mcse",), "mcse")):
        decimals = decimals_of(row[by], _DIGITS[by])
        if decimals <= MOST_DECIMALS:
            told |= {key: fixed(row[key], max(decimals, 0)) for key in keys}
    told["ess"] = count(row["ess"])
    if "r_hat" in told:
        told["r_hat"] = fixed(row["r_hat"], 3) if np.isfinite(row["r_hat"]) else "—"
    return list(told.values())


def decimals_of(value: float, digits: int) -> int:
    """Decimals for so many significant digits; too many to show if `value` has no size."""
    return digits - 1 - floor(log10(value)) if 0 < value < np.inf else MOST_DECIMALS + 1


def marginals(evidence: Evidence, pictures: Pictures) -> Html:
    """A small picture of densities for each scalar."""
    history, found = evidence.history, evidence.densities
    if not found.marginals:
        return note(TOO_FEW)
    panels = [_panel(pictures, shown, found.shards) for shown in found.marginals]
    saved = evidence.saved_densities is not None
    scale = "On the natural scale" if saved else "On the unconstrained scale"
    if evidence.is_exact:
        told = "the exact draws. Shards only evaluate, so they have no draws of their own."
    elif history.sends_draws:
        told = (
            "each shard in its colour, the merged draws as a thick line. If a shard lies apart "
            "from the others, look at its rows."
        )
    else:
        told = (
            "the merged draws alone. Workers of a coded run send sums over their shards, so there "
            "are no draws of single shards to compare with."
        )
    return joined(
        [
            note(f"{scale}: {told}"),
            element("div", *panels, class_="panels"),
            legend(found.shards) if history.sends_draws else "",
            note(f"… and {found.n_more:,} more.") if found.n_more else "",
        ]
    )


def _panel(pictures: Pictures, shown: Marginal, shards: Sequence[int]) -> Html:
    picture = pictures.svg(marginal(shown, shards), f"density of {shown.name}")
    return element("figure", element("figcaption", shortened(shown.name)), picture)


def intervals(evidence: Evidence, pictures: Pictures) -> Html:
    """Means and intervals of all parameters in one picture."""
    finite = {
        name: row
        for name, row in evidence.rows.items()
        if np.all(np.isfinite([row[key] for key in ("mean", *INTERVAL)]))
    }
    if not finite:
        return note(TOO_FEW)
    shown = dict(islice(finite.items(), _MOST_INTERVALS))
    caption = "Means and 94 % intervals."
    if len(shown) < len(finite):
        caption += f" The first {len(shown)} of {len(finite):,} parameters."
    return pictures.figure(forest(shown), "means and intervals", caption)
