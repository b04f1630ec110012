"""What a report says of the posterior."""

from itertools import islice
from math import floor, log10

import numpy as np

from quorate.errors import named_workers
from quorate.plots import FEWEST
from quorate.report.evidence import COLUMNS, Evidence
from quorate.report.markup import Html, element, fixed, joined, note, number, shortened, table
from quorate.report.posterior_plots import forest, marginal
from quorate.report.svg import Pictures, legend

NONE_YET = "There are too few global draws yet."
_MOST_ROWS, _MOST_INTERVALS, _MOST_CURVES = 400, 60, 500
_FEWEST_PANELS = 4
_MOST_DECIMALS = 7
_DIGITS = {"sd": 3, "mcse": 2}


def answer(evidence: Evidence) -> Html:
    """The parameters, and what to know before believing them."""
    rows = evidence.rows
    lines = [[element("bdi", name), *_cells(row)] for name, row in islice(rows.items(), _MOST_ROWS)]
    more = len(rows) - len(lines)
    parts = [element("p", line, class_="warning") for line in _warnings(evidence)]
    parts.append(table(["parameter", *COLUMNS.values()], lines) if lines else note(NONE_YET))
    if more:
        parts.append(note(f"… and {more:,} more in summary.json."))
    return joined(parts)


def _warnings(evidence: Evidence) -> list[str]:
    story, told = evidence.story, []
    if story.stopped is None:
        told.append("The run was going on, or had been killed, when this was written.")
    if evidence.saved is None:
        told.append(
            "The run has saved no draws on the natural scale. What is shown is merged from its "
            "journal, in the unconstrained space in which draws are combined."
        )
    if story.gone():
        told.append(f"Lost, and not back at the end: {named_workers(story.gone())}.")
    if story.n_dropped:
        told.append(f"{story.n_dropped:,} damaged rows of the journal were left out.")
    return told


def _cells(row: dict[str, float]) -> list[str]:
    """Numbers with the digits that three of the standard deviation make worth reading."""
    sd, ess = row["sd"], row["ess"]
    decimals = 2 - floor(log10(sd)) if 0 < sd < np.inf else _MOST_DECIMALS + 1
    told = {key: number(row[key], _DIGITS.get(key, 4)) for key in COLUMNS}
    if decimals <= _MOST_DECIMALS:
        for key in ("mean", "sd", "3%", "97%"):
            told[key] = fixed(row[key], max(decimals, 0))
    if np.isfinite(ess):
        told["ess"] = fixed(ess, 0)
    return list(told.values())


def marginals(evidence: Evidence, pictures: Pictures) -> Html:
    """A small picture for each coordinate."""
    story = evidence.story
    if not story.sends_draws:
        return note(
            "Workers of a coded run send sums over their shards, never draws of a single one: "
            "there is nothing to compare the merge with."
        )
    if len(evidence.merged) < FEWEST:
        return note(NONE_YET)
    n_shown = max(_FEWEST_PANELS, _MOST_CURVES // (story.n_workers + 1))
    panels = [_panel(evidence, pictures, name, i) for i, name in enumerate(story.names[:n_shown])]
    more = len(story.names) - len(panels)
    return joined(
        [
            note(
                "In the unconstrained space in which draws are combined: each shard in its "
                "colour, the merge in a thick line. A shard that lies apart from the others "
                "deserves a look at its rows."
            ),
            element("div", *panels, class_="panels"),
            legend(story.n_workers),
            note(f"… and {more:,} more.") if more else "",
        ]
    )


def _panel(evidence: Evidence, pictures: Pictures, name: str, coordinate: int) -> Html:
    shards = [draws[:, coordinate] for draws in evidence.shards]
    figure = marginal(evidence.merged[:, coordinate], shards)
    picture = pictures.svg(figure, f"density of {name}")
    return element("figure", element("figcaption", shortened(name)), picture)


def intervals(evidence: Evidence, pictures: Pictures) -> Html:
    """Intervals under each other."""
    finite = {
        name: row
        for name, row in evidence.rows.items()
        if np.all(np.isfinite([row["mean"], row["3%"], row["97%"]]))
    }
    if not finite:
        return note(NONE_YET)
    shown = dict(islice(finite.items(), _MOST_INTERVALS))
    caption = "Means and 94 % intervals."
    if len(shown) < len(finite):
        caption += f" The first {len(shown)} of {len(finite):,} parameters."
    return pictures.figure(forest(shown), "forest plot", caption)
