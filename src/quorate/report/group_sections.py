"""Section of a report about the parameters of groups."""

import numpy as np

from quorate._types import IntArray
from quorate.report.evidence import Evidence, Rows
from quorate.report.posterior_plots import caterpillar
from quorate.report.posterior_sections import MOST_DECIMALS, decimals_of
from quorate.report.svg import Pictures
from quorate.results.html import Html, code, element, fixed, joined, note, scrolling, table
from quorate.results.level_summary import LevelSummary
from quorate.results.local import INTERVAL
from quorate.results.saved_local import LocalSummaries, digest_of, load
from quorate.results.some_draws import scattered

_MOST_LISTED, _MOST_SHOWN = 10, 30
_DIGITS = 3


def groups(evidence: Evidence, pictures: Pictures) -> dict[str, Html]:
    """The section by its title; none if no local parameters were summarised."""
    found = load(evidence.folder)
    if found is None:
        return {}
    if not _is_of_these_draws(found, evidence):
        told = note(
            "The summaries of groups in the folder are of other draws than those of this report. "
            "To renew them, run ",
            code(f"quorate local {evidence.folder}"),
            ".",
        )
        return {"Groups": told}
    n_draws = min(found.n_points, len(evidence.merged))
    told = note(f"Averages over {n_draws:,} draws of the global parameters.")
    levels = (_level(level, pictures) for level in found.levels)
    return {"Groups": joined([told, *levels])}


def _is_of_these_draws(found: LocalSummaries, evidence: Evidence) -> bool:
    draws = evidence.merged
    if not len(draws) or found.n_points < 1:
        return False
    return found.digest == digest_of(draws[scattered(len(draws), found.n_points)])


def _level(level: LevelSummary, pictures: Pictures) -> Html:
    shown = [_parameter(level, i, pictures) for i in range(len(level.parameters))]
    return joined([element("h3", level.name), _listed(level), *shown])


def _listed(level: LevelSummary) -> Html:
    """A table of the groups that stand out most."""
    columns, labels = level.table(INTERVAL), level.texts()
    with_parameter = len(level.parameters) > 1
    lines = []
    for group, parameter in zip(*level.standing_out(_MOST_LISTED), strict=True):
        name = labels[group]
        name = f"{name}, {level.parameters[parameter]}" if with_parameter else name
        values = [float(of[group, parameter]) for of in columns.values()]
        decimals = max(decimals_of(float(level.sds[group, parameter]), _DIGITS), 0)
        numbers = (fixed(value, min(decimals, MOST_DECIMALS)) for value in values)
        lines.append([element("bdi", name), *numbers])
    lows, highs = list(columns.values())[-2:]
    n_apart = int(((lows > 0) | (highs < 0)).any(axis=1).sum())
    told = (
        f"{len(level.labels):,} groups. {n_apart:,} of them have a 94 % interval without 0. The "
        "groups that are furthest from 0, in units of their sds:"
    )
    head = ["group", *(column.replace("%", " %") for column in columns)]
    return joined([note(told), scrolling(table(head, lines))])


def _parameter(level: LevelSummary, parameter: int, pictures: Pictures) -> Html:
    """A caterpillar plot of the most extreme groups."""
    name = level.parameters[parameter]
    extreme = _extreme(level, parameter)
    label = f"{name} of groups of {level.name}"
    caption = f"{name} of the {len(extreme)} groups furthest from 0, in units of their sds."
    return pictures.figure(caterpillar(_rows(level, parameter, extreme)), label, caption)


def _extreme(level: LevelSummary, parameter: int) -> IntArray:
    """Groups with the largest |mean|/sd of a parameter, in the order of their means."""
    chosen, _ = level.of_parameter(parameter).standing_out(_MOST_SHOWN)
    return np.asarray(chosen[np.argsort(-level.means[chosen, parameter])])


def _rows(level: LevelSummary, parameter: int, chosen: IntArray) -> Rows:
    columns, labels = level.table(INTERVAL), level.texts()
    return {
        labels[group]: {name: float(of[group, parameter]) for name, of in columns.items()}
        for group in chosen
    }
