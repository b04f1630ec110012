"""How to cite quorate, as CITATION.cff says."""

from importlib.metadata import version

_TITLE = "quorate: Bayesian posteriors over many machines, without waiting for the slowest"
_AUTHORS = "The quorate authors"
_PAPER = "Robust Distributed Bayesian Learning with Stragglers via Consensus Monte Carlo"
_PAPER_AUTHORS = ("Hari Hara Suthan Chittoor", "Osvaldo Simeone")


def references() -> list[str]:
    """References to the software and to the paper whose schemes it runs."""
    return [
        f"{_AUTHORS}. {_TITLE}. Version {version('quorate')}.",
        f"{', '.join(_PAPER_AUTHORS)}. {_PAPER}.",
    ]


def bibtex() -> str:
    """The references in BibTeX."""
    return (
        f"@software{{quorate,\n  author = {{{{{_AUTHORS}}}}},\n  title = {{{_TITLE}}},\n"
        f"  version = {{{version('quorate')}}}\n}}\n"
        f"@inproceedings{{robust-consensus,\n  author = {{{' and '.join(_PAPER_AUTHORS)}}},\n"
        f"  title = {{{_PAPER}}}\n}}"
    )
