"""The report of a run: one HTML file that needs no network, no script and no other file.

It is made from the run's journal and saved summary. It never loads the model or runs its code.
"""

from importlib import resources
from pathlib import Path
from string import Template

from quorate._files import save
from quorate.errors import require
from quorate.report import (
    exact_sections,
    group_sections,
    making_sections,
    posterior_sections,
    run_sections,
    verdict,
)
from quorate.report.evidence import Evidence, gathered
from quorate.report.svg import Pictures
from quorate.results.html import Html, element, joined, palette, text
from quorate.run.history import History


def report(folder: str | Path) -> str:
    """The report of the run in `folder`, finished or not, as HTML."""
    with History(Path(folder)) as history:
        history.read()
        return _page(gathered(history, Path(folder)))


def write_report(folder: str | Path, path: str | Path) -> None:
    """Write the report of the run in `folder` to the file `path`.

    A symbolic link there is not followed: somebody may have put it there to lead elsewhere.
    """
    page, path = report(folder), Path(path)
    require(
        not path.is_symlink() and (path.is_file() or not path.exists()),
        f"{path} is a symbolic link or no plain file, so no report is written there. Choose "
        "another file.",
    )
    save(path, page.encode())


def _page(evidence: Evidence) -> str:
    files = resources.files("quorate.report")
    name = evidence.folder.resolve().name
    return Template((files / "page.html").read_text("utf-8")).substitute(
        title=text(f"quorate report: {name}"),
        style=palette() + (files / "style.css").read_text("utf-8"),
        name=element("bdi", name),
        ran=text(run_sections.ran(evidence.history)),
        content=_sections(evidence, Pictures()),
    )


def _sections(evidence: Evidence, pictures: Pictures) -> Html:
    """The answer first, then why to believe it, then how it was made."""
    log = evidence.history.passes
    of_answer = {
        "Answer": posterior_sections.answer(evidence),
        "Verdict": verdict.section(
            evidence.verdict, str(evidence.folder), "exact" if evidence.is_exact else "merged"
        ),
    }
    of_groups = group_sections.groups(evidence, pictures)
    if log is None:
        of_run = {
            "Shards and merged draws": posterior_sections.marginals(evidence, pictures),
            "Intervals": posterior_sections.intervals(evidence, pictures),
            "Workers": run_sections.timeline(evidence, pictures),
            "Draws and errors over time": run_sections.progress(evidence, pictures),
            "What waiting would have cost": run_sections.waiting(evidence, pictures),
        }
    else:
        of_run = {
            "Passes": exact_sections.passes(evidence, log),
            "Densities": posterior_sections.marginals(evidence, pictures),
            "Intervals": posterior_sections.intervals(evidence, pictures),
            "Merge beside exact": exact_sections.merge_beside(evidence, log, pictures),
            "Workers": run_sections.timeline(evidence, pictures),
            "Draws and errors over time": run_sections.progress(evidence, pictures),
            "What waiting would have cost": exact_sections.waiting(evidence, log, pictures),
        }
    of_making = {
        "Bandwidth": run_sections.bandwidth(evidence),
        "Configuration": making_sections.configuration(evidence),
        "Versions": making_sections.versions(evidence),
        "How to cite": making_sections.how_to_cite(),
    }
    return joined(
        element("section", element("h2", title), content, id=title.lower().replace(" ", "-"))
        for title, content in {**of_answer, **of_groups, **of_run, **of_making}.items()
    )
