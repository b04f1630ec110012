"""Sections of a report that only exact runs have: passes, a merge beside them, and waiting."""

import numpy as np

from quorate._types import Array
from quorate.errors import named_shards, named_workers
from quorate.passes.first_fit import fits_of, product_of
from quorate.passes.hmc import HmcEnsemble
from quorate.report import run_plots
from quorate.report.counterfactual import seconds_alone, seconds_of_passes, seconds_per_point
from quorate.report.evidence import Evidence, Rows
from quorate.report.making_sections import pairs
from quorate.report.posterior_plots import beside
from quorate.report.posterior_sections import TOO_FEW
from quorate.report.svg import Pictures
from quorate.results.html import (
    Html,
    count,
    element,
    fixed,
    joined,
    note,
    number,
    scrolling,
    seconds,
    table,
)
from quorate.results.marginals import FEWEST
from quorate.results.summary import INTERVAL
from quorate.run.earlier_fit import UPDATE_OF
from quorate.run.pass_log import PHASES, SURVEY, PassLog

_MOST_BESIDE, _MOST_WAITING = 40, 40
_GAUSSIAN = np.array([-1.8808, 1.8808])  # ends of its 94 % interval


def passes(evidence: Evidence, log: PassLog) -> Html:
    """How the draws were made: passes and phases, chains, evidence and how they mixed."""
    told = element(
        "p",
        "The draws are of the posterior itself. A pass asks for the log posterior at common "
        "points: every shard is evaluated there by a worker that holds it, and the answers are "
        "added. Nothing is merged.",
    )
    return joined([told, pairs(_facts(evidence, log)), element("h3", "Phases"), _phases(log)])


def _facts(evidence: Evidence, log: PassLog) -> dict[str, object]:
    inquiry = log.inquiry
    facts: dict[str, object] = {
        "method": "exact",
        "passes": f"{inquiry.n_passes:,}",
        "points": f"{log.n_points:,}",
    }
    if inquiry.ensembles:
        hamiltonian = isinstance(inquiry.ensembles[0], HmcEnsemble)
        facts["chains"] = f"{inquiry.n_chains:,}, by " + (
            "Hamiltonian Monte Carlo" if hamiltonian else "elliptical slices"
        )
        facts["draws of each chain"] = f"{inquiry.n_steps:,}"
    if inquiry.evidence is not None:
        value, error = inquiry.evidence
        facts["log evidence"] = f"{fixed(value, 2)} ± {number(error, 2)}"
    ess, r_hats = (_known(evidence.rows, column) for column in ("ess", "r_hat"))
    if ess:
        facts["smallest ESS"] = count(min(ess))
    if r_hats:
        facts["largest nested R-hat"] = fixed(max(r_hats), 3)
    if isinstance(evidence.verdict, dict) and evidence.verdict.get("k_hat") is not None:
        facts["Pareto k̂ of the check"] = number(evidence.verdict["k_hat"], 2)
    return facts


def _known(rows: Rows, column: str) -> list[float]:
    """Numbers in a column of the table."""
    return [row[column] for row in rows.values() if np.isfinite(row.get(column, np.nan))]


def _phases(log: PassLog) -> Html:
    """When each phase began, and what it took."""
    rows, now = [], log.inquiry.phase
    for phase in log.phases():
        n_passes = "—" if phase.name == SURVEY else f"{phase.n_answers:,}"
        took = seconds(phase.ended - phase.began) + (" so far" if phase.name == now else "")
        n_points = f"{phase.n_points:,}" if phase.n_points else "—"
        rows.append([PHASES[phase.name], seconds(phase.began), took, n_passes, n_points])
    if now != "done" and now not in [phase.name for phase in log.phases()]:
        began = max((phase.ended for phase in log.phases()), default=0.0)
        rows.append([PHASES[now], seconds(began), "—", "—", "—"])
    return joined(
        [
            scrolling(table(["", "began at", "took", "passes", "points"], rows)),
            note(
                "Fitting centres a Gaussian on the posterior. Weighing evaluates points around it: "
                "they give the evidence, and the chains their starts. The log evidence counts the "
                "constants that the model leaves in its log densities."
            ),
        ]
    )


# ---------------------------------------------------------------- a merge of the fits


def merge_beside(evidence: Evidence, log: PassLog, pictures: Pictures) -> Html:
    """How far off the Gaussian product of the shards' surveys would have been."""
    if UPDATE_OF in evidence.history.configuration:
        return note(
            "Rows were added to an earlier run, whose shards were surveyed with a larger share of "
            "the prior each. Their fits cannot be merged with those of the new shards."
        )
    draws = evidence.merged
    fits = fits_of(log.surveys)
    if len(draws) < FEWEST or not np.all(draws.std(axis=0) > 0):
        return note(TOO_FEW)
    if not fits:
        return note(
            "No shard has a Gaussian fit of its own: alone, its rows leave the posterior "
            "without a mode. There is nothing to merge."
        )
    merge, sds = product_of(fits, len(log.surveys)), draws.std(axis=0)
    shifts = (merge.mean - draws.mean(axis=0)) / sds
    ratios = np.sqrt(np.diag(merge.covariance)) / sds
    shown = np.sort(np.argsort(-np.abs(shifts), kind="stable")[:_MOST_BESIDE])
    names = [evidence.history.names[i] for i in shown]
    exact = (np.quantile(draws, list(INTERVAL.values()), axis=0) - draws.mean(axis=0)) / sds
    merged = shifts[:, None] + ratios[:, None] * _GAUSSIAN
    figure = pictures.figure(
        beside(names, exact.T[shown], merged[shown]),
        "a merge of the shards' fits beside the exact draws",
        "94 % intervals on the unconstrained scale, from the mean of the exact draws.",
    )
    rows = [
        [element("bdi", name), fixed(shifts[i], 2), f"× {fixed(ratios[i], 2)}"]
        for name, i in zip(names, shown, strict=True)
    ]
    grid = scrolling(table(["parameter", "mean off by (sds)", "sd"], rows))
    rest = f"The {len(shown)} that are most off, of {len(sds):,}." if len(shown) < len(sds) else ""
    parts = [
        element("p", _off_by(evidence, shifts, ratios)),
        element("div", figure, element("div", grid, note(rest) if rest else ""), class_="pair"),
    ]
    if lacking := [shard for shard in sorted(log.surveys) if "lower" not in log.surveys[shard]]:
        parts.append(
            note(
                f"Without {named_shards(lacking)}, where no Gaussian fit was found: the other fits "
                "stand for all."
            )
        )
    return joined(parts)


def _off_by(evidence: Evidence, shifts: Array, ratios: Array) -> str:
    worst = int(np.argmax(np.abs(shifts)))
    stretched = int(np.argmax(np.abs(np.log(ratios))))
    names = evidence.history.names
    noise = 1 / np.sqrt(evidence.ess[worst])
    error = f" (Monte Carlo error {noise:.2f})" if np.isfinite(noise) else ""
    return (
        "Each shard was surveyed once, and the product of the Gaussians found there is what a "
        "one-shot merge of these fits would have given. Its mean would have been off by up to "
        f"{abs(shifts[worst]):.2f} posterior sds{error}, for {names[worst]}; its sd by a factor of "
        f"{fixed(ratios[stretched], 2)}, for {names[stretched]}."
    )


# ---------------------------------------------------------------- waiting


def waiting(evidence: Evidence, log: PassLog, pictures: Pictures) -> Html:
    """How long the passes would have taken at least, had they waited for all workers."""
    history = evidence.history
    if not any(phase.name == "fit" for phase in log.phases()):
        return note("There was no pass yet.")
    took = seconds_of_passes(history)
    rates, times, gone = seconds_per_point(history), seconds_alone(history), history.gone()
    reasons = ["gone" if k in gone else "no answer" for k in range(len(times))]
    told = f"The passes over {log.n_points:,} points took {seconds(took)}. {_waited(times, took)}"
    figure = pictures.figure(
        run_plots.waiting(times, took, reasons),
        "how long each worker would have needed for one shard at all points",
        "How long each worker would have needed for one shard at all points. Line: this run.",
    )
    how = note(
        "From the measured seconds of a worker per point and shard, which include what it lost by "
        "sharing a core. The surveys before the passes are left out."
    )
    grid = _waiting_table(evidence, rates, times, reasons)
    return joined([element("p", told), element("div", figure, grid, class_="pair"), how])


def _waited(times: Array, took: float) -> str:
    """What the passes would have taken, if worker k needs `times[k]` for one shard."""
    slowest = int(np.argmax(times))
    if times[slowest] <= took:
        return (
            "No worker is so slow that it alone would have made them longer: the slowest, worker "
            f"{slowest}, needs {seconds(times[slowest])} for one shard at all points."
        )
    with_all = "With one shard at every worker, and every pass waiting for all of them, they would"
    if np.isfinite(times[slowest]):
        return (
            f"{with_all} have taken at least {seconds(times[slowest])}: as long as worker "
            f"{slowest} needs for its shard."
        )
    silent = named_workers([k for k in range(len(times)) if np.isinf(times[k])])
    return f"{with_all} have waited for {silent}: gone when the run ended, or without an answer."


def _waiting_table(evidence: Evidence, rates: Array, times: Array, reasons: list[str]) -> Html:
    blocks = evidence.blocks
    n_answers = np.bincount(blocks.workers, blocks.n_draws > 0, len(times))
    n_points = np.bincount(blocks.workers, blocks.n_draws * blocks.n_shards, len(times))
    shown = sorted(sorted(range(len(times)), key=lambda k: -times[k])[:_MOST_WAITING])
    rows = [
        [
            f"worker {k}",
            count(n_answers[k]),
            count(n_points[k]),
            f"{1e3 * rates[k]:.3g} ms" if np.isfinite(rates[k]) else "—",
            seconds(times[k]) if np.isfinite(times[k]) else reasons[k],
        ]
        for k in shown
    ]
    rest = note(f"The slowest {len(rows)} of {len(times)}.") if len(rows) < len(times) else ""
    head = ["", "answers", "points", "per point", "all points"]
    return element("div", scrolling(table(head, rows)), rest)
