"""Draws from Bayesian posteriors over many machines, without waiting for the slowest.

What is named here is imported when it is first used: workers need little of it, and start sooner.
"""

from typing import TYPE_CHECKING, Any

from quorate._lazy import lazily

if TYPE_CHECKING:
    from quorate.api import check, resume, sample, stream
    from quorate.data.cut import Cut
    from quorate.engines.faults import Faults
    from quorate.engines.options import Processes, Ray
    from quorate.errors import BadInputError, QuorateError
    from quorate.lab.simulate import SimulationSummary, simulate
    from quorate.merging import combine
    from quorate.merging.combined import Combined
    from quorate.models.gaussian import (
        GaussianSubposteriors,
        gaussian_mean_model,
        paper_subposteriors,
    )
    from quorate.planner import Plan, plan
    from quorate.protocol.schemes import CMC, Adaptive, Coded, Grouped
    from quorate.results.result import Result
    from quorate.run.learning import design_in_place
    from quorate.run.opened import load
    from quorate.run.stopping import Until
    from quorate.run.updating import update
    from quorate.trust.verdict import Verdict

__all__ = [
    "CMC",
    "Adaptive",
    "BadInputError",
    "Coded",
    "Combined",
    "Cut",
    "Faults",
    "GaussianSubposteriors",
    "Grouped",
    "Plan",
    "Processes",
    "QuorateError",
    "Ray",
    "Result",
    "SimulationSummary",
    "Until",
    "Verdict",
    "check",
    "combine",
    "design_in_place",
    "gaussian_mean_model",
    "load",
    "paper_subposteriors",
    "plan",
    "resume",
    "sample",
    "simulate",
    "stream",
    "update",
]

_found = lazily(
    __name__,
    {
        "api": ("check", "resume", "sample", "stream"),
        "data.cut": ("Cut",),
        "engines.faults": ("Faults",),
        "engines.options": ("Processes", "Ray"),
        "errors": ("BadInputError", "QuorateError"),
        "lab.simulate": ("SimulationSummary", "simulate"),
        "merging": ("combine",),
        "merging.combined": ("Combined",),
        "models.gaussian": ("GaussianSubposteriors", "gaussian_mean_model", "paper_subposteriors"),
        "planner": ("Plan", "plan"),
        "protocol.schemes": ("CMC", "Adaptive", "Coded", "Grouped"),
        "results.result": ("Result",),
        "run.learning": ("design_in_place",),
        "run.opened": ("load",),
        "run.stopping": ("Until",),
        "run.updating": ("update",),
        "trust.verdict": ("Verdict",),
    },
)


def __getattr__(name: str) -> Any:
    if name != "__version__":
        return _found(name)
    from importlib.metadata import version  # slow to import

    return version("quorate")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
