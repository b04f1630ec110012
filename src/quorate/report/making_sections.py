"""Sections of a report about how the run was made, and how to cite it."""

from importlib.metadata import version

from quorate.journal import Finished, Resumed, Started
from quorate.report import citing
from quorate.report.evidence import Evidence
from quorate.results.html import Html, bullet_list, code, element, joined
from quorate.run.settings import described


def configuration(evidence: Evidence) -> Html:
    """The settings of the run."""
    history = evidence.history
    kept = history.configuration
    about = {
        "folder": evidence.folder,
        **described(history.settings.as_json()),
        "sampler": kept["settings"]["sampler"],
        "unconstrained dimensions": history.dim,
    }
    rows = list(map(int, kept.get("rows", [])))
    if rows:
        about["rows"] = f"{sum(rows):,}, {min(rows):,} to {max(rows):,} in a shard"
    about |= kept.get("made_by", {})
    for event in history.events:
        if isinstance(event, Started | Resumed | Finished):
            about[f"{event.word} at"] = event.date.replace("T", " ").replace("+00:00", " UTC")
    return pairs({name.replace("_", " "): value for name, value in about.items()})


def versions(evidence: Evidence) -> Html:
    """Versions of the software that made the draws, and of the software that wrote the report."""
    kept = evidence.history.configuration.get("versions", {})
    return pairs({**kept, "this report": f"quorate {version('quorate')}"})


def how_to_cite() -> Html:
    """References in words and in BibTeX."""
    return joined([bullet_list(citing.references()), element("pre", Html(citing.bibtex()))])


def pairs(items: dict[str, object]) -> Html:
    """Names and values, in columns."""
    return element(
        "dl",
        *(
            element("div", element("dt", name), element("dd", code(value)))
            for name, value in items.items()
        ),
    )
