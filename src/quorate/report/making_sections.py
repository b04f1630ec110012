"""What a report says of how the run was made, and how to cite it."""

from importlib.metadata import version

from quorate.report import citing
from quorate.report.evidence import Evidence
from quorate.report.markup import Html, bullet_list, code, element, joined


def configuration(evidence: Evidence) -> Html:
    """All that was asked for."""
    history = evidence.history
    kept = history.configuration
    rows = list(map(int, kept.get("rows", [])))
    about: dict[str, object] = {
        "folder": evidence.folder,
        "sampler": kept.get("sampler", "unknown"),
        "unconstrained dimensions": history.dim,
        **{name: value for name, value in vars(history.settings).items() if value is not None},
    }
    if rows:
        about["rows"] = f"{sum(rows):,}, {min(rows):,} to {max(rows):,} in a shard"
    for event in history.events:
        if event.what != "prior" and "date" in event.details:
            about[f"{event.what} at"] = event.details["date"]
    return _pairs({name.replace("_", " "): value for name, value in about.items()})


def versions(evidence: Evidence) -> Html:
    """Of what made the draws, and of what made this."""
    kept = evidence.history.configuration.get("versions", {})
    return _pairs({**kept, "this report": f"quorate {version('quorate')}"})


def how_to_cite() -> Html:
    """In words and for a bibliography."""
    return joined([bullet_list(citing.references()), element("pre", Html(citing.bibtex()))])


def _pairs(items: dict[str, object]) -> Html:
    return element(
        "dl",
        *(
            element("div", element("dt", name), element("dd", code(value)))
            for name, value in items.items()
        ),
    )
