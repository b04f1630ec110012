"""What a report says of the posterior."""

from collections.abc import Sequence
from itertools import islice
from math import floor, log10

import numpy as np

from quorate.errors import named_shards, named_workers
from quorate.report.evidence import COLUMNS, Evidence
from quorate.report.markup import Html, code, element, fixed, joined, note, number, shortened, table
from quorate.report.posterior_plots import forest, marginal
from quorate.report.svg import Pictures, legend
from quorate.results.marginals import Marginal

NONE_YET = "There are too few global draws yet."
_MOST_ROWS, _MOST_INTERVALS = 400, 60
_MOST_DECIMALS = 7
_DIGITS = {"sd": 3, "mcse": 2}


def answer(evidence: Evidence) -> Html:
    """The parameters, and what to know before believing them."""
    rows = evidence.rows
    lines = [[element("bdi", name), *_cells(row)] for name, row in islice(rows.items(), _MOST_ROWS)]
    more = len(rows) - len(lines)
    parts = [_left_out(evidence)] if evidence.history.excluded else []
    parts += [element("p", line, class_="warning") for line in _warnings(evidence)]
    head = ["parameter", *COLUMNS.values()]
    parts.append(table(head, lines, "stacked") if lines else note(NONE_YET))
    if more:
        parts.append(note(f"… and {more:,} more in summary.json."))
    return joined(parts)


def _left_out(evidence: Evidence) -> Html:
    """What the draws are of, where rows have no part in them."""
    history = evidence.history
    n_out, n_shards = len(history.excluded), history.n_workers
    rows = list(map(int, history.configuration.get("rows", [])))
    given = f"the rows of the other {n_shards - n_out} shards"
    if len(rows) == n_shards:
        n_lost = sum(rows[shard] for shard in history.excluded)
        given = f"the other {sum(rows) - n_lost:,} of {sum(rows):,} rows"
    share, rest = f"{n_out}/{n_shards}", f"{n_shards - n_out}/{n_shards}"
    if evidence.saved is not None and history.prior_restored:
        prior = f"The prior is whole: the {share} of it that went with them was put back."
    elif history.prior_restored is False:
        prior = (
            f"The {share} of the prior that went with them could not be put back, since it is flat "
            f"or cannot be drawn from: what is left of the prior p is p to the power of {rest}."
        )
    else:
        prior = (
            f"The {share} of the prior that went with them is missing here; it is put back when "
            "the run ends."
        )
    return element(
        "p",
        element("strong", f"Without the rows of {named_shards(history.excluded)}. "),
        f"Nobody was left who held them. All numbers are of the posterior given {given}, not of "
        f"that given all. {prior} To have them back: ",
        code(f"quorate resume {evidence.folder}"),
        class_="warning alarm",
    )


def _warnings(evidence: Evidence) -> list[str]:
    history, told = evidence.history, []
    if history.stopped is None:
        told.append("The run was going on, or had been killed, when this was written.")
    if evidence.saved is None:
        told.append(
            "The run has saved no draws on the natural scale. What is shown is merged from its "
            "journal, in the unconstrained space in which draws are combined."
        )
    if history.gone():
        told.append(f"Lost, and not back at the end: {named_workers(history.gone())}.")
    if history.n_dropped:
        told.append(f"{history.n_dropped:,} damaged rows of the journal were left out.")
    return told


def _cells(row: dict[str, float]) -> list[str]:
    """Numbers with the digits that three of the standard deviation make worth reading."""
    told = {key: number(row[key], _DIGITS.get(key, 4)) for key in COLUMNS}
    for keys, by in ((("mean", "sd", "3%", "97%"), "sd"), (("mcse",), "mcse")):
        decimals = _decimals(row[by], _DIGITS[by])
        if decimals <= _MOST_DECIMALS:
            told |= {key: fixed(row[key], max(decimals, 0)) for key in keys}
    if np.isfinite(row["ess"]):
        told["ess"] = fixed(row["ess"], 0)
    return list(told.values())


def _decimals(value: float, digits: int) -> int:
    """After the point, for so many digits that matter; more than anybody reads, of no number."""
    return digits - 1 - floor(log10(value)) if 0 < value < np.inf else _MOST_DECIMALS + 1


def marginals(evidence: Evidence, pictures: Pictures) -> Html:
    """A small picture for each scalar."""
    history, found = evidence.history, evidence.densities
    if not found.marginals:
        return note(NONE_YET)
    panels = [_panel(pictures, shown, found.shards) for shown in found.marginals]
    saved = evidence.saved_densities is not None
    scale = "On the natural scale" if saved else "In the space in which draws are combined"
    if history.sends_draws:
        told = (
            "each shard in its colour, the merge in a thick line. A shard that lies apart from the "
            "others deserves a look at its rows."
        )
    else:
        told = (
            "the merge alone. Workers of a coded run send sums over their shards, never draws of a "
            "single one: there is nothing to compare the merge with."
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
